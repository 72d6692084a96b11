"""The files that a router goes on reading while it runs: manifests, tags, and the routing of the settings."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reach_worker.core.document import Document
from reach_worker.core.fresh_files import Reading
from reach_worker.core.policy import PRESETS
from reach_worker.core.tags import TagTable
from reach_worker.errors import BadInput, Problem
from reach_worker.settings.fleet import (
    FleetFiles,
    Folder,
    load_fleet,
    manifest_files,
    read_folder,
    read_tags,
    settings_warnings,
)
from reach_worker.settings.load import read_settings
from reach_worker.settings.model import Settings

TAKEN = "routing"
"""The section of the settings that is taken while the router runs."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where they are. ``settings``: as the router started with; ``config``: their file, ``None`` if there is none."""

    settings: Settings
    config: Path | None
    environ: Mapping[str, str]

    def start(self) -> FleetFiles:
        """Tags and manifests for the start. Raises ``BadInput``: a router does not begin with a broken file."""
        document = Document(None)
        if self.config is not None:
            _, document = read_settings(self.config, self.environ)
        return load_fleet(self.settings, document)

    def look(self) -> dict[str, tuple[int, ...]]:
        """By file: its time, size and number, which is another one where a file was put in the place of another."""
        paths = [self.settings.paths.tags, *manifest_files(self.settings.paths.agents, [])]
        found: dict[str, tuple[int, ...]] = {}
        for path in paths if self.config is None else [self.config, *paths]:
            with suppress(OSError):
                stat = path.stat()
                found[str(path)] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return found

    def read(self, tags: TagTable) -> Reading:
        """What they say now, each with the problems of its own. ``tags``: the table for where theirs is broken."""
        problems: list[Problem] = []
        settings, document = self._settings(problems)
        table, doubts = self._tags(problems)
        folder = read_folder(self.settings.paths.agents, table or tags)
        gone = _gone(folder)
        problems += folder.problems
        current = settings or self.settings
        manifests = list(folder.manifests.values())
        return Reading(
            manifests=None if gone or _unreadable(folder) else folder.by_file(),
            gone=gone,
            broken=frozenset(folder.broken),
            tags=table,
            routing=None if settings is None else settings.routing,
            problems=tuple(problems),
            warnings=(*doubts, *settings_warnings(current, manifests, document), *folder.warnings(current)),
            later=() if settings is None else tuple(later(self.settings, settings)),
        )

    def _settings(self, problems: list[Problem]) -> tuple[Settings | None, Document]:
        if self.config is None:
            return self.settings, Document(None)
        try:
            return read_settings(self.config, self.environ)
        except BadInput as error:
            problems += error.problems
            return None, Document(None)

    def _tags(self, problems: list[Problem]) -> tuple[TagTable | None, list[Problem]]:
        table, doubts, faults = read_tags(self.settings.paths.tags)
        problems += faults
        return (None if faults else table), doubts


def _gone(folder: Folder) -> Problem | None:
    if folder.path.exists():
        return None
    return Problem("there is no such folder any more; no agent is withdrawn for that", file=str(folder.path))


def _unreadable(folder: Folder) -> bool:
    """The folder itself cannot be listed: of its files nothing is known."""
    return any(problem.file == str(folder.path) for problem in folder.problems)


def later(before: Settings, after: Settings) -> Iterator[str]:
    """The settings that differ and wait for the next start. A preset's own breaker numbers are among them."""
    for name, section in after:
        was = getattr(before, name)
        if name != TAKEN:
            yield from (f"{name}.{each}" for each, value in section if getattr(was, each) != value)
    if PRESETS[before.routing.preset].breaker != PRESETS[after.routing.preset].breaker:
        yield f"the breaker numbers of the preset {after.routing.preset}"
