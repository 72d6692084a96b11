"""What came from the environment never shows in an error text, whoever wrote that text."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from reach_worker.adapters.templates import template, texts
from reach_worker.agent.outcomes import AgentOutcome

SHORTEST: Final = 6
"""Characters. Shorter values are no secrets, and hiding them would garble texts."""


class Secrets:
    """The values of the variables that an adapter's section names."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = sorted({value for value in values if len(value) >= SHORTEST}, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """The text without them."""
        for value in self._values:
            text = text.replace(value, "***")
        return text

    @contextmanager
    def kept(self, where: str) -> Iterator[None]:
        """Endings that are raised within the block say where, and none of them."""
        try:
            yield
        except AgentOutcome as found:
            found.args = (self.hidden(f"{where}: {found}"),)
            raise


def secrets_in(section: object, environ: Mapping[str, str]) -> Secrets:
    """The secrets of an adapter's section."""
    names = (name for _, text in texts(section) for name in template(text).variables)
    return Secrets(environ[name] for name in names if name in environ)
