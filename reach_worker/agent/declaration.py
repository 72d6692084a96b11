"""An agent's declaration from two sides: what its code says, and a manifest file that has the last word."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reach_worker.core.document import Document, Place, json_pointer, nearest
from reach_worker.core.manifest import Manifest
from reach_worker.core.tags import fold
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, Problem


def manifest_document(manifest: Manifest | Path | str) -> Document:
    """A manifest's fields, and where they stand; no more than what it says. Raises ``BadInput``."""
    if isinstance(manifest, Manifest):
        return Document(manifest.model_dump(mode="json", exclude_unset=True))
    path = Path(manifest)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Problem(f"the manifest cannot be read: {error}", file=str(path))) from error
    document = parse(text, file=str(path))
    if not isinstance(document.data, dict):
        raise BadInput(Problem("a manifest is a mapping, `name: value`", file=str(path), line=1))
    return document


def overridden(code: Mapping[str, Any], document: Document) -> Document:
    """The fields of the document, and from the code those that it does not say; capabilities are joined by their ids."""
    given = document.members
    by_id = {fold(each["id"]): each for each in code["capabilities"]}
    from_code = {json_pointer((name,)) for name in code if name not in given}
    listed = given.get("capabilities", [])
    if not isinstance(listed, list):
        return document
    joined: list[Any] = []
    for index, each in enumerate(listed):
        theirs = by_id.pop(_id(each), {})
        joined.append({**theirs, **each} if isinstance(each, dict) else each)
        from_code |= {json_pointer(("capabilities", index, name)) for name in theirs if name not in each}
    from_code |= {json_pointer(("capabilities", len(joined) + index)) for index in range(len(by_id))}
    place = Place(f"agent {code['id']!r}")
    return replace(
        document,
        data={**code, **given, "capabilities": [*joined, *by_id.values()]},
        values={**document.values, **dict.fromkeys(from_code, place)},
    )


def declared_capability(document: Document | None, capability_id: str) -> Mapping[str, Any]:
    """What the document says of a capability."""
    listed = [] if document is None else document.members.get("capabilities", [])
    named = [each for each in listed if _id(each) == capability_id] if isinstance(listed, list) else []
    return named[0] if named else {}


def all_handled(agent_id: str, document: Document, handled: Sequence[str]) -> None:
    """Raises ``BadInput`` with the place of every capability that no function handles."""
    listed = document.members.get("capabilities", [])
    names = [_id(each) for each in listed] if isinstance(listed, list) else []
    problems = []
    for index, name in enumerate(names):
        if name in handled or not name:
            continue
        close = nearest(name, [each for each in handled if each not in names])
        hint = f"did you mean {close}?" if close else f'@agent.capability("{name}")'
        message = f"agent {agent_id!r}: the manifest declares {name}, but no function handles it"
        problems.append(document.located(Problem(message, f"/capabilities/{index}/id", hint=hint)))
    if problems:
        raise BadInput(problems)


def _id(capability: object) -> str:
    name = capability.get("id") if isinstance(capability, dict) else None
    return fold(name) if isinstance(name, str) else ""
