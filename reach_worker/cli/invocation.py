"""What every command is given: the settings, read when they are first asked for."""

import logging
import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from reach_worker.core.visible import indented

if TYPE_CHECKING:
    from reach_worker.settings import Settings

DEFAULT_CONFIG: Final = Path("config/reach.yaml")
_LINE: Final = "%(asctime)s %(levelname)-7s %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"
_OTHERS: Final = ("aio_pika", "aiormq", "aiosqlite", "watchfiles")
"""Libraries that log what they raise, or what we say ourselves; it is said once."""
_INDISCREET: Final = ("httpcore", "httpx")
"""Libraries that log addresses and headers, which may hold keys."""


class OneRecord(logging.Formatter):
    """What a message from outside says stays inside its record: no control characters, further lines indented."""

    def format(self, record: logging.LogRecord) -> str:
        return indented(super().format(record))


@dataclass
class Invocation:
    """One call of the program. ``config``: the file that was named, ``None`` for the usual place."""

    config: Path | None = None
    verbose: bool = False
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def config_file(self) -> Path | None:
        """The settings file: the one that was named, else the usual one if it is there."""
        if self.config is not None:
            return self.config
        return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None

    @cached_property
    def settings(self) -> "Settings":
        """The settings. Raises ``BadInput``."""
        from reach_worker.settings import load_settings  # noqa: PLC0415 - `reach --help` needs none of it

        return load_settings(self.config_file, self.environ)

    def log_to_stderr(self, level: int = logging.WARNING) -> None:
        """Write the log to standard error: from ``level`` on, with ``-v`` all of it."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(OneRecord(_LINE, _TIME))
        logging.basicConfig(handlers=[handler])
        logging.getLogger().setLevel(logging.DEBUG if self.verbose else level)
        for name in _OTHERS:
            logging.getLogger(name).setLevel(logging.INFO if self.verbose else logging.CRITICAL)
        for name in _INDISCREET:
            logging.getLogger(name).setLevel(logging.WARNING)


pass_invocation = click.make_pass_decorator(Invocation)
