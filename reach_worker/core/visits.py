"""Who has had a task before: agents that handed it on, or that call another one for it."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

VISITED: Final = "x-reach-visited"


class Visit(NamedTuple):
    """An agent that handed the task on, or calls another. ``work`` names what it had, see :func:`work_name`."""

    agent_id: str
    work: str


def work_name(capability: str, payload: Mapping[str, Any]) -> str:
    """A short name for one piece of work: the same for the same capability and the same payload, in any order of keys.

    Raises ``ValueError`` where the payload cannot be written as JSON (it is nested too deep).
    """
    try:
        written = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise ValueError(f"the payload cannot be written as JSON: {error}") from error
    return blake2b(capability.encode() + b"\x00" + written, digest_size=8).hexdigest()


def been_at(visited: Sequence[Visit], name: str) -> frozenset[str]:
    """Agents that have had the work of this name before."""
    return frozenset(visit.agent_id for visit in visited if visit.work == name)


def written(visited: Sequence[Visit]) -> str:
    """The header that tells it."""
    return orjson.dumps([list(visit) for visit in visited]).decode()


def visits_from(raw: str | None) -> tuple[Visit, ...]:
    """The inverse of :func:`written`, nobody where there is no header. Raises ``ValueError`` on anything else."""
    if raw is None:
        return ()
    match orjson.loads(raw):
        case [*items] if all(_is_visit(item) for item in items):
            return tuple(Visit(*item) for item in items)
        case _:
            raise ValueError("it is no list of pairs of texts")


def _is_visit(item: object) -> bool:
    return (
        isinstance(item, list)
        and len(item) == len(Visit._fields)
        and all(isinstance(part, str) for part in item)
    )
