"""The file of an agent that is an adapter: a manifest with an ``adapter`` section, each checked by its own model."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from pydantic import BaseModel, ConfigDict, create_model

from reach_worker.adapters.section import Section
from reach_worker.adapters.templates import Place, template, texts
from reach_worker.core.document import Document, json_pointer, nearest, validate
from reach_worker.core.manifest import Manifest
from reach_worker.errors import Problem

ADAPTER: Final = "adapter"


def no_section(document: Document, unknown: list[str]) -> Problem:
    """There is no section. ``unknown``: names beside it that no manifest has."""
    close = nearest(ADAPTER, unknown)
    if close:
        return document.located(
            Problem("unknown field", json_pointer([close]), hint=f"did you mean {ADAPTER}?")
        )
    hint = "it says of what kind, and how to reach what does the work"
    return Problem("an agent in a file needs an `adapter` section", file=document.file, hint=hint)


def checked_section(section_type: type[Section], document: Document) -> Section:
    """The section, checked under its own name, so that problems have their place in the file."""
    around: type[BaseModel] = create_model(
        "Around", __config__=ConfigDict(frozen=True), adapter=(section_type, ...)
    )
    checked = validate(around, replace(document, data={ADAPTER: document.members[ADAPTER]}))
    return getattr(checked, ADAPTER)  # type: ignore[no-any-return]


def manifest_document(document: Document, section_type: type[Section]) -> Document:
    """The manifest's part. Capabilities that declare no input get the schema of the adapter's kind, if it has one."""
    manifest = {name: value for name, value in document.members.items() if name != ADAPTER}
    usual = getattr(section_type, "input_schema", None)
    section = document.members.get(ADAPTER)
    capabilities = manifest.get("capabilities")
    if usual and isinstance(section, dict) and "prompt" not in section and isinstance(capabilities, list):
        manifest["capabilities"] = [
            {"input_schema": dict(usual), **each} if isinstance(each, dict) else each for each in capabilities
        ]
    return replace(document, data=manifest)


def missing_variables(document: Document, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Variables that the section names and the environment lacks."""
    for at, text in _texts(document):
        for name in template(text).variables:
            if name not in environ:
                hint = f"export {name}=… before the agent starts"
                problem = Problem(f"the environment has no {name}", json_pointer((ADAPTER, *at)), hint=hint)
                yield document.located(problem)


def unknown_fields(document: Document, manifest: Manifest) -> Iterator[Problem]:
    """Places for fields that no capability's schema knows, where every one of them says which it knows."""
    schemas = [capability.input_schema.get("properties") for capability in manifest.capabilities]
    if not all(isinstance(schema, dict) for schema in schemas):
        return
    known = {name for schema in schemas for name in schema or ()}
    for at, text in _texts(document):
        for place in template(text).places:
            if not place.fact and place.path[0] not in known:
                yield document.located(_unknown(place, known, json_pointer((ADAPTER, *at))))


def _unknown(place: Place, known: set[str], pointer: str) -> Problem:
    close = nearest(place.path[0], known)
    hint = f"did you mean {{{close}}}?" if close else f"known: {', '.join(sorted(known)) or 'none'}"
    return Problem(f"no capability's input_schema has the field {place.path[0]!r}", pointer, hint=hint)


def _texts(document: Document) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The texts of the section that are templates."""
    for at, text in texts(document.members.get(ADAPTER)):
        try:
            template(text)
        except ValueError:
            continue  # it is no template, or its problem is told already
        yield at, text
