"""The task: what a caller wants done, one JSON object."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from reach_worker.core.document import json_pointer, nearest
from reach_worker.core.handed import Handed
from reach_worker.core.outcome import DeadLetterReason, cut
from reach_worker.core.plain_words import in_words, kind_of

SUPPORTED_SCHEMA_VERSIONS: Final = (1,)
LONGEST_ID: Final = 200
OURS: Final = "~"
"""Is in the id of every task that we make (a leg of a race, a call), and in none that a caller gives: with an id that he
can guess he could have been first, and the answer to a stranger's task would count as the agent's.
"""
MOST_ENTRIES: Final = 1_000
"""Entries of ``metadata`` and ``attachments``. Without a bound a few megabytes of wrong ones take half a minute."""
LONGEST_DEADLINE_MS: Final = 365 * 24 * 3_600_000
_TOLD: Final = 5
"""Faults that are told of one task."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def usable_id(text: str | None) -> bool:
    """The text can stand for a task in logs, headers and tables: printable, not blank, not endless."""
    return (
        text is not None
        and len(text) <= LONGEST_ID
        and text.isprintable()
        and not text.isspace()
        and text != ""
    )


def _is_id(text: str) -> str:
    if not usable_id(text):
        raise ValueError(f"must be 1 to {LONGEST_ID} printable characters, and not blank")
    return text


def _is_given_id(text: str) -> str:
    if OURS in text:
        raise ValueError(f"must hold no {OURS!r}: it marks the tasks that routers and agents make themselves")
    return text


def _is_name(text: str) -> str:
    if not text.strip() or (not text.isprintable() and _CONTROL.search(text)):
        raise ValueError("must not be blank, and holds no control characters")
    return text


def _is_object(value: object) -> dict[str, Any]:
    """Taken as it is: copying a large payload costs more than reading it."""
    if not isinstance(value, dict):
        raise PydanticCustomError("dict_type", "must be an object")
    return value


def _few(value: object) -> object:
    if isinstance(value, dict) and len(value) > MOST_ENTRIES:
        raise ValueError(f"has {len(value)} entries, {MOST_ENTRIES} at most")
    return value


Id = Annotated[str, AfterValidator(_is_id)]
GivenId = Annotated[str, AfterValidator(_is_id), AfterValidator(_is_given_id)]
Name = Annotated[str, StringConstraints(max_length=LONGEST_ID), AfterValidator(_is_name)]
Intent = Annotated[str, StringConstraints(min_length=1, max_length=8192)]
Payload = Annotated[dict[str, Any], PlainValidator(_is_object, json_schema_input_type=dict[str, Any])]
Metadata = Annotated[dict[str, str], BeforeValidator(_few)]
Attachments = Annotated[list[Payload], FailFast(), Field(max_length=MOST_ENTRIES)]


class Task(BaseModel):
    """The body of a task message. Unknown fields are refused: a mistyped one must not be ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    task_id: GivenId | None = Field(None, description="unique id; else the message id, else one is made")
    capability: Name | None = Field(None, description="exact id of the capability wanted")
    intent: Intent | None = Field(
        None, description="what is wanted, in free text, where the capability is not known"
    )
    payload: Payload = Field(default_factory=dict, description="the capability's input")
    flow_id: Id | None = Field(None, description="ties tasks of one flow together; defaults to the task id")
    requires: list[Name] = Field(
        default_factory=list, max_length=64, description="capability tags, all needed"
    )
    domain: Name | None = Field(None, description="permission domain the task belongs to")
    mode: Literal["single", "race", "fanout"] = Field(
        "single", description="one agent, the first of two, or all"
    )
    aggregate: Literal["all", "first_n", "vote"] = Field(
        "all", description="of a fan-out: every answer, the first ones, or the one that most agents gave"
    )
    first_n: int | None = Field(None, ge=1, le=1000, description="how many answers `first_n` waits for")
    stream: bool = Field(
        default=False, description="the caller wants what the agent says while it works, too"
    )
    deadline_ms: int | None = Field(
        None, gt=0, le=LONGEST_DEADLINE_MS, description="milliseconds until it is worthless"
    )
    max_cost: float | None = Field(None, ge=0, description="highest price the caller pays")
    side_effects: bool = Field(default=False, description="running it twice would do harm")
    session_id: Id | None = Field(None, description="conversation or user session it belongs to")
    metadata: Metadata = Field(
        default_factory=dict, description="the caller's own fields, passed on untouched"
    )
    attachments: Attachments = Field(default_factory=list, description="references to larger inputs")
    handoff: Handed | None = Field(None, description="written by routers, where an agent handed the task on")
    schema_version: int = Field(1, description="version of this format")


_validated: Final = Task.__pydantic_validator__.validate_python
"""``Task.model_validate``, without what that looks up anew each time."""
TASK_FIELDS: Final = tuple(Task.model_fields)
_KNOWN: Final = frozenset(TASK_FIELDS)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that is not a task, with what is wrong in words."""

    reason: DeadLetterReason
    error: str


def decode_task(body: bytes, *, max_bytes: int, content_encoding: str | None = None) -> Task | Refusal:
    """The task in a message body, or why it is none. Never raises, whatever the bytes are.

    Of a key that comes twice the last one counts, as in most readers of JSON.
    """
    if len(body) > max_bytes:
        return Refusal(
            DeadLetterReason.TOO_LARGE, f"the body has {len(body)} bytes, the limit is {max_bytes}"
        )
    if content_encoding and content_encoding.lower() not in ("utf-8", "utf8", "identity"):
        shown = content_encoding[:40]
        return Refusal(
            DeadLetterReason.UNDECODABLE, f"content encoding {shown!r} is not read; send plain UTF-8 JSON"
        )
    if not body:
        return Refusal(DeadLetterReason.UNDECODABLE, "the body is empty; a task is a JSON object")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return Refusal(DeadLetterReason.UNDECODABLE, f"not JSON: {error}")
    if not isinstance(data, dict):
        kind = _JSON_KINDS[type(data)]
        return Refusal(DeadLetterReason.INVALID, f"a task is a JSON object, this is {kind}")
    return task_from(data)


_JSON_KINDS: Final[Mapping[type, str]] = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def task_from(data: Mapping[str, Any]) -> Task | Refusal:
    """A task from plain data, or why it is none."""
    faults = _version_faults(data) or _unknown_fields(data)
    if faults:
        return _invalid(faults)
    try:
        task: Task = _validated(data)
    except ValidationError as error:
        return _invalid(_explain(item) for item in islice(error.errors(include_url=False), _TOLD))
    faults = _mode_faults(task)
    if (task.capability is None) == (task.intent is None):
        faults.append("a task names either a capability or an intent, exactly one of them")
    return _invalid(faults) if faults else task


def _mode_faults(task: Task) -> list[str]:
    faults = []
    if task.mode != "single" and task.side_effects:
        faults.append(f"a task with side effects goes to one agent only: mode 'single', not {task.mode!r}")
    if task.mode == "fanout" and task.stream:
        faults.append(
            "a fan-out does not stream: of several agents at once nobody could tell whose chunks they are"
        )
    if task.mode != "fanout" and (task.aggregate != "all" or task.first_n is not None):
        faults.append(f"'aggregate' and 'first_n' belong to mode 'fanout', not {task.mode!r}")
    elif (task.aggregate == "first_n") != (task.first_n is not None):
        faults.append(
            "'first_n' says how many answers the aggregate 'first_n' waits for: give both, or neither"
        )
    return faults


def _invalid(faults: Iterable[str]) -> Refusal:
    return Refusal(DeadLetterReason.INVALID, "; ".join(faults))


def _version_faults(data: Mapping[str, Any]) -> list[str]:
    """Looked at first: of a newer version the router cannot say what else is wrong."""
    version = data.get("schema_version", 1)
    if not isinstance(version, int) or version in SUPPORTED_SCHEMA_VERSIONS:
        return []
    known = ", ".join(map(str, SUPPORTED_SCHEMA_VERSIONS))
    if version > max(SUPPORTED_SCHEMA_VERSIONS):
        return [
            f"schema_version {version} is newer than this router reads ({known}); update the router, then replay"
        ]
    return [f"schema_version {version} is none that this router reads ({known})"]


def _unknown_fields(data: Mapping[str, Any]) -> list[str]:
    """Looked for by hand: a body may hold a million of them, and pydantic would describe each."""
    if data.keys() <= _KNOWN:
        return []
    return [_unknown(name) for name in islice((name for name in data if name not in _KNOWN), _TOLD)]


def _unknown(name: str) -> str:
    close = nearest(name, TASK_FIELDS)
    return f"unknown field {name[:80]!r}" + (f", did you mean {close!r}?" if close else "")


def _explain(item: ErrorDetails) -> str:
    where = cut(json_pointer(item["loc"])[1:], 80)
    if item["type"] == "dict_type":
        return f"field {where!r} must be an object, not {kind_of(item['input'])}"
    return f"field {where!r} {in_words(item)}"
