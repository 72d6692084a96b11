"""Rows as lines of JSON, for the spill file."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

import orjson

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.ports import Ended, OutcomeSeen, Row, Standing

_KINDS: Final[Mapping[str, type[Row]]] = {kind.__name__: kind for kind in get_args(Row)}

_READ: Final[Mapping[type[Row], Mapping[str, Callable[[Any], object]]]] = {
    OutcomeSeen: {"outcome": OutcomeClass, "standing": Standing},
    Ended: {"state": TaskState, "reason": DeadLetterReason, "answer": b64decode},
}
"""Fields that JSON does not give back as they were."""


def to_json(value: object) -> bytes:
    """JSON of anything; what has no form there is written as text. Raises ``TypeError`` on broken strings."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return dict(value) if isinstance(value, Mapping) else str(value)


def to_line(row: Row) -> bytes:
    """The row as one line. Raises ``TypeError`` where it holds what JSON cannot."""
    return to_json({"row": type(row).__name__, "of": row}) + b"\n"


def from_line(line: bytes) -> Row:
    """The inverse of :func:`to_line`. ``KeyError``, ``TypeError`` or ``ValueError`` on another line."""
    data = orjson.loads(line)
    kind, values = _KINDS[data["row"]], dict(data["of"])
    for name, read in _READ.get(kind, {}).items():
        if values[name] is not None:
            values[name] = read(values[name])
    return kind(**values)
