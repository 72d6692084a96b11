"""What a program is started with: its arguments for one task, and which of our variables it gets."""

from collections.abc import Mapping, Sequence
from typing import Final

from reach_worker.adapters.templates import Place, Template, Values
from reach_worker.agent.outcomes import BadRequest

OURS: Final = "REACH_"
"""Variables of this name hold the broker's password: no program that we run needs them."""


def inherited(environ: Mapping[str, str], names: Sequence[str] | None) -> dict[str, str]:
    """The variables of ours that a program gets."""
    if names is None:
        return {name: value for name, value in environ.items() if not name.startswith(OURS)}
    return {name: environ[name] for name in names if name in environ}


def arguments(argv: Sequence[Template], values: Values) -> list[str]:
    """The arguments for one task.

    Raises :class:`BadRequest` for a value that would be taken for an option: one with a dash in front where no option
    that is written in the file stands before it, and no ``--``.
    """
    found: list[str] = []
    options_end = expects_value = False
    for item in argv:
        text = item.filled(values)
        if text is None:
            continue
        if text.startswith("-") and _begins_with_place(item) and not (options_end or expects_value):
            raise BadRequest(f"the argument {item.source!r} would be an option: {text[:40]!r}")
        options_end = options_end or item.source == "--"
        expects_value = item.source.startswith("-") and not item.places
        found.append(plain_text(text, item.source))
    return found


def _begins_with_place(item: Template) -> bool:
    return bool(item.parts) and isinstance(item.parts[0], Place)


def plain_text(text: str, name: str) -> str:
    """The text, for an argument or variable of that name. Raises :class:`BadRequest` for what no program can be given."""
    if "\0" in text:
        raise BadRequest(f"{name!r} would hold a null character, which no program can be given")
    return text
