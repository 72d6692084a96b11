"""The fleet's files: the manifests of a folder and the table of tags."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reach_worker.adapters.agent_file import ADAPTER
from reach_worker.core import dead_ends
from reach_worker.core.dead_ends import located
from reach_worker.core.document import Document
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.manifest_lint import fleet_warnings, manifest_warnings
from reach_worker.core.tags import TagTable, fold, load_tags
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, Problem
from reach_worker.settings.files import find_text, read_text
from reach_worker.settings.model import Settings

SUFFIXES: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class FleetFiles:
    """What the files say: the manifests by id, and what is allowed there but probably not meant."""

    tags: TagTable
    manifests: tuple[Manifest, ...]
    warnings: tuple[Problem, ...]
    by_file: Mapping[str, Manifest]


def load_fleet(settings: Settings, document: Document | None = None) -> FleetFiles:
    """Tags and manifests. Raises one ``BadInput`` with the problems of all files.

    ``document``: where the settings were written, for the places of warnings about them.
    """
    tags, doubts, problems = read_tags(settings.paths.tags)
    folder = read_folder(settings.paths.agents, tags)
    problems += folder.problems
    if problems:
        raise BadInput(problems)
    manifests = tuple(folder.manifests.values())
    doubts += settings_warnings(settings, manifests, document or Document(None))
    return FleetFiles(tags, manifests, (*doubts, *folder.warnings(settings)), folder.by_file())


def settings_warnings(settings: Settings, manifests: Sequence[Manifest], document: Document) -> list[Problem]:
    """What the settings say that can never happen in this fleet."""
    return [
        *located(dead_ends.routing_dead_ends(settings.routing, manifests), document, "/routing"),
        *located(dead_ends.presence_dead_ends(settings.presence), document, "/presence"),
        *located(dead_ends.breaker_dead_ends(settings.breaker), document, "/breaker"),
        *located(dead_ends.retry_dead_ends(settings.retry), document, "/retry"),
    ]


def load_manifests(folder: Path, tags: TagTable) -> list[Manifest]:
    """The manifests of a folder by id; no folder, no manifests. Raises one ``BadInput`` for all files."""
    read = read_folder(folder, tags)
    if read.problems:
        raise BadInput(read.problems)
    return list(read.manifests.values())


def read_tags(path: Path) -> tuple[TagTable, list[Problem], list[Problem]]:
    """The table in ``path``, warnings and problems. A fleet needs none; a mistyped path should be seen."""
    try:
        text = find_text(path)
        if text is None:
            return (
                TagTable({}),
                [Problem("there is no such file, so no tag has synonyms", file=str(path))],
                [],
            )
        return load_tags(text, file=str(path)), [], []
    except BadInput as error:
        return TagTable({}), [], list(error.problems)


@dataclass(slots=True)
class Folder:
    """What the files of a folder say, and what is wrong in them. ``broken``: files that are no manifest.

    A second file with the id of another is broken too.
    """

    path: Path
    manifests: dict[str, Manifest] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def add(self, manifest: Manifest, document: Document) -> None:
        """Keep a manifest; a second one with its id is a problem that names both files."""
        known = self.documents.get(manifest.id)
        if known is not None:
            message = f"two manifests have the id {manifest.id!r}, the other is {known.file}"
            self.problems.append(document.located(Problem(message, "/id", hint="give one another id")))
            self.broken.add(document.file or "")
            return
        self.manifests[manifest.id] = manifest
        self.documents[manifest.id] = document

    def by_file(self) -> dict[str, Manifest]:
        """The manifests by the file that holds each."""
        return {
            self.documents[agent_id].file or "": manifest for agent_id, manifest in self.manifests.items()
        }

    def warnings(self, settings: Settings) -> Iterator[Problem]:
        """What is allowed and probably not meant."""
        if not self.path.exists():
            yield Problem(
                "there is no such folder, so agents are known only by the manifests that they bring",
                file=str(self.path),
            )
        for agent_id, document in self.documents.items():
            if fold(Path(document.file or "").stem) != agent_id:
                message = f"the file of agent {agent_id!r} has another name"
                yield document.located(Problem(message, "/id", hint=f"call it {agent_id}.yaml"))
            manifest = self.manifests[agent_id]
            yield from manifest_warnings(manifest, document)
            yield from located(dead_ends.manifest_dead_ends(manifest), document)
            yield from located(
                dead_ends.time_dead_ends(manifest, settings.retry, settings.timeouts), document
            )
        yield from fleet_warnings(list(self.manifests.values()), self.documents)


def read_folder(path: Path, tags: TagTable) -> Folder:
    """The manifests of a folder; no folder, no manifests."""
    folder = Folder(path)
    for file in manifest_files(path, folder.problems):
        try:
            document = parse(read_text(file), file=str(file))
            folder.add(manifest_in(document, tags), document)
        except BadInput as error:
            folder.problems += error.problems
            folder.broken.add(str(file))
    folder.manifests = dict(sorted(folder.manifests.items()))
    return folder


def manifest_in(document: Document, tags: TagTable) -> Manifest:
    """The manifest in a file; of one with an ``adapter`` section, which has to be right too, the rest of it."""
    if ADAPTER in document.members:
        from reach_worker.adapters.agents import checked  # noqa: PLC0415 - few fleets have such files

        return checked(document).manifest.with_tags(tags)
    return manifest_from(document, tags=tags)


def manifest_files(path: Path, problems: list[Problem]) -> list[Path]:
    """The manifests' files, by name; hidden files are none."""
    try:
        files = sorted(path.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(Problem(f"cannot be read: {error.strerror or error}", file=str(path)))
        return []
    return [file for file in files if file.suffix in SUFFIXES and not file.name.startswith(".")]
