"""Everything this package raises on purpose, grouped by whose fault it is.

``BadInput``: the caller's file, task or argument is wrong; it lists every problem found, with its place.
``OutsideWorld``: the broker or the store is away, or is not what it should be; no other input would help.
``OurBug``: a promise of this package was broken; worth an issue, never worth a retry.

Texts are for people. Programs read the attributes.
"""

from collections.abc import Iterable
from dataclasses import dataclass


class ReachError(Exception):
    """The base of every error of this package."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where. Lines and columns count from 1, ``field`` is a JSON pointer."""

    message: str
    field: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def render(self) -> str:
        """``file:line:col: field: message (hint)``, without the parts that are not known."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = ": ".join(part for part in (place, self.field, self.message) if part)
        return f"{text} ({self.hint})" if self.hint else text


class BadInput(ReachError):  # noqa: N818 - named for whose fault it is
    """The caller's fault. ``problems`` holds all that was found, so that it can be mended in one go."""

    def __init__(self, problems: Iterable[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(problem.render() for problem in self.problems)


class OutsideWorld(ReachError):  # noqa: N818 - named for whose fault it is
    """The broker or the store is not there, or is not what it should be."""


class BrokerUnavailable(OutsideWorld):
    """No broker answers at the address."""


class WrongCredentials(OutsideWorld):
    """The broker is there and refuses the user name, the password or the virtual host."""


class TopologyMismatch(OutsideWorld):
    """A queue or exchange of our name exists with another argument; the broker will not declare it again."""

    def __init__(
        self, queue: str, argument: str, expected: object = None, found: object = None, detail: str = ""
    ) -> None:
        self.queue = queue
        self.argument = argument
        self.expected = expected
        self.found = found
        self.detail = detail
        super().__init__(queue, argument, expected, found, detail)

    def __str__(self) -> str:
        text = f"{self.queue!r} exists on the broker with another {self.argument!r}"
        if self.expected is not None or self.found is not None:
            text += f": expected {self.expected!r}, found {self.found!r}"
        if self.detail:
            text += f" ({self.detail})"
        return text + "; use another broker.prefix, or drain and delete it"


class StoreUnavailable(OutsideWorld):
    """The store's file cannot be opened, read or written: missing, locked, full or damaged."""


class StoreForeign(OutsideWorld):
    """The file at the store's path is a database, but not one of ours."""


class StoreNewer(OutsideWorld):
    """The store was written by a newer version of this package."""


class StartupFailed(OutsideWorld):
    """What an agent opens before its first task did not open: its lifespan or a start-up hook raised."""


class OurBug(ReachError):  # noqa: N818 - named for whose fault it is
    """A promise of this package was broken."""
