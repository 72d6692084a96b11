"""From a file and the environment to one checked ``Settings``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from reach_worker.core.document import Document, Place, fields_at, json_pointer, validate
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, Problem
from reach_worker.settings.files import read_text
from reach_worker.settings.model import Settings

PREFIX: Final = "REACH_"
URL_VARIABLE: Final = "REACH_AMQP_URL"
DEFAULT_FOLDER: Final = Path("config")
"""Where the settings would be, if there is no file: paths are relative to it all the same."""

_URL: Final = ("broker", "url")
Note = TypeVar("Note")


def load_settings(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """The settings in ``path`` (``None``: the defaults), the ``REACH_*`` variables of ``environ`` over them.

    ``REACH_RETRY__MAX_RETRIES=5`` is ``retry.max_retries``, ``REACH_AMQP_URL`` is ``broker.url``; an empty
    variable counts as not set. The paths in the result no longer depend on where the file lies.
    Raises ``BadInput`` with all problems.
    """
    return read_settings(path, environ)[0]


def read_settings(path: Path | None, environ: Mapping[str, str]) -> tuple[Settings, Document]:
    """What :func:`load_settings` gives, and where each field of it was written."""
    document = Document({}) if path is None else _sections(parse(read_text(path), file=str(path)))
    for variable, parts, value in _overrides(environ):
        document = _with(document, parts, value, variable)
    settings = validate(Settings, document)
    return _rooted(settings, DEFAULT_FOLDER if path is None else path.parent), document


def _sections(document: Document) -> Document:
    """A section of which every line is a comment is empty, not wrong; so is a file."""
    if document.data is None:
        return replace(document, data={})
    if not isinstance(document.data, dict):
        return document
    return replace(document, data={key: value for key, value in document.data.items() if value is not None})


def _overrides(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], object]]:
    """Name, place and value of each variable that sets a field."""
    named = {name: text for name, text in sorted(environ.items()) if name.startswith(PREFIX) and text.strip()}
    section_url = f"{PREFIX}BROKER__URL"
    if named.get(URL_VARIABLE, named.get(section_url)) != named.get(section_url, named.get(URL_VARIABLE)):
        raise BadInput(Problem(f"and {section_url} differ", file=URL_VARIABLE, hint="set one of them"))
    for name, text in named.items():
        if name == URL_VARIABLE:
            yield name, _URL, _value(_URL, text, name)
        elif "__" in name:
            parts = tuple(name.removeprefix(PREFIX).lower().split("__"))
            yield name, parts, _value(parts, text, name)


def _value(parts: tuple[str, ...], text: str, variable: str) -> object:
    """A variable's value by the kind of its field: text as it is, URLs parted by commas, the rest as YAML."""
    if parts == _URL:
        urls = [url for url in re.split(r"[,\s]+", text) if url]
        return urls if len(urls) > 1 else text.strip()
    field = fields_at(Settings, parts[:-1]).get(parts[-1])
    if field is not None and field.annotation in (str, Path):
        return text
    return parse(text, file=variable).data


def _with(document: Document, parts: Sequence[str], value: object, variable: str) -> Document:
    """The document with one value set by a variable, which is then its place."""
    if not isinstance(document.data, dict) or not isinstance(document.data.get(parts[0], {}), dict):
        return document  # the file's own fault, and it is told
    pointer = json_pointer(parts)
    around = {json_pointer(parts[:depth]): Place(variable) for depth in range(1, len(parts))}
    keys = {**around, **_outside(pointer, document.keys), pointer: Place(variable)}
    values, bare = _outside(pointer, document.values), _outside(pointer, document.bare)
    return Document(_set(document.data, parts, value), document.file, values, keys, bare)


def _outside(pointer: str, notes: Mapping[str, Note]) -> dict[str, Note]:
    """What is noted of other places than ``pointer`` and what lies below it."""
    return {place: note for place, note in notes.items() if not f"{place}/".startswith(f"{pointer}/")}


def _set(data: Any, parts: Sequence[str], value: object) -> Any:
    if not parts:
        return value
    known = data if isinstance(data, dict) else {}
    return {**known, parts[0]: _set(known.get(parts[0]), parts[1:], value)}


def _rooted(settings: Settings, folder: Path) -> Settings:
    paths = settings.paths.model_copy(
        update={"agents": _under(folder, settings.paths.agents), "tags": _under(folder, settings.paths.tags)}
    )
    store = settings.store.model_copy(update={"path": _under(_root(folder), settings.store.path)})
    return settings.model_copy(update={"paths": paths, "store": store})


def _root(folder: Path) -> Path:
    """The folder that holds ``config/``, or the file's own folder if that has another name."""
    if folder.absolute().name != DEFAULT_FOLDER.name:
        return folder
    return folder.parent if folder.name else folder / ".."


def _under(folder: Path, path: Path) -> Path:
    return folder / path.expanduser()
