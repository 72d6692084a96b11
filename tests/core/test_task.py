"""From bytes to a task, or to the reason why they are none."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.task import MOST_ENTRIES, TASK_FIELDS, Refusal, Task, decode_task, task_from, usable_id

LIMIT = 8 * 1024 * 1024
ID = "must be 1 to 200 printable characters, and not blank"
NAME = "must not be blank, and holds no control characters"
UNDECODABLE, INVALID, TOO_LARGE = (
    DeadLetterReason.UNDECODABLE,
    DeadLetterReason.INVALID,
    DeadLetterReason.TOO_LARGE,
)


def decode(
    body: bytes | dict[str, Any], *, limit: int = LIMIT, encoding: str | None = None
) -> Task | Refusal:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return decode_task(raw, max_bytes=limit, content_encoding=encoding)


def refused(body: bytes | dict[str, Any], **options: Any) -> tuple[DeadLetterReason, str]:
    refusal = decode(body, **options)
    assert isinstance(refusal, Refusal)
    return refusal.reason, refusal.error


def accepted(body: bytes | dict[str, Any]) -> Task:
    task = decode(body)
    assert isinstance(task, Task), task
    return task


def nested(depth: int) -> bytes:
    return b'{"capability":"c","payload":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


def test_a_capability_is_enough() -> None:
    task = accepted(b'{"capability": "log.query"}')

    assert (task.capability, task.payload, task.mode, task.side_effects) == ("log.query", {}, "single", False)
    assert (task.task_id, task.deadline_ms, task.max_cost, task.domain) == (None, None, None, None)


def test_every_field_is_read() -> None:
    fields = {
        "task_id": "t-1",
        "capability": "log.query",
        "payload": {"status": 500},
        "flow_id": "f-1",
        "requires": ["vision", "报表"],
        "domain": "ops",
        "mode": "fanout",
        "aggregate": "first_n",
        "first_n": 2,
        "deadline_ms": 1000,
        "max_cost": 1,
        "side_effects": False,
        "session_id": "s-1",
        "metadata": {"order": "17"},
        "attachments": [{"url": "s3://x"}],
        "schema_version": 1,
    }

    assert accepted(fields).model_dump(exclude={"intent", "stream", "handoff"}) == fields
    assert accepted({"intent": "how many errors?"}).intent == "how many errors?"
    assert {*fields, "intent", "stream", "handoff"} == set(TASK_FIELDS)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the body is empty; a task is a JSON object"),
        (b" \n", "not JSON: input data is empty"),
        (b"hello", "not JSON: unexpected character"),
        (b"{'capability': 'c'}", "not JSON: unexpected character, expected a string key: line 1 column 2"),
        (b'{"capability": "c",}', "not JSON: trailing comma is not allowed: line 1 column 19"),
        (b'{"capability": "c"} {}', "not JSON: unexpected content after document: line 1 column 21"),
        (b'{"capability": "c"', "not JSON: "),
        (b'\xef\xbb\xbf{"capability": "c"}', "not JSON: UTF-8 byte order mark (BOM) is not supported"),
        ('{"capability": "c"}'.encode("utf-16"), "not JSON: str is not valid UTF-8"),
        (b'{"capability": "\xff"}', "not JSON: str is not valid UTF-8"),
        (b'{"capability": "\xed\xa0\x80"}', "not JSON: str is not valid UTF-8: surrogates not allowed"),
        (b'{"capability": "\\ud800"}', "not JSON: no low surrogate in string: line 1 column 17"),
        (b"\x00", "not JSON: unexpected character"),
        (b'{"capability": "c"}\x00', "not JSON: unexpected content after document"),
        (b'{"capability": "a\x00b"}', "not JSON: unexpected control character in string: line 1 column 18"),
        (b'{"max_cost": NaN}', "not JSON: unexpected character, expected a JSON value: line 1 column 14"),
        (b'{"max_cost": Infinity}', "not JSON: unexpected character, expected a JSON value"),
        (b'{"max_cost": 1e400}', "not JSON: number is infinity when parsed as double"),
        (b'{"deadline_ms": ' + b"9" * 400 + b"}", "not JSON: number is infinity when parsed as double"),
        (b"[" * 100_000, "not JSON: "),
        (nested(2000), "not JSON: "),
    ],
)
def test_what_is_not_json_is_undecodable(body: bytes, error: str) -> None:
    reason, told = refused(body)

    assert reason is UNDECODABLE
    assert told.startswith(error)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[]", "an array"),
        (b'"task"', "a string"),
        (b"17", "a number"),
        (b"1.5", "a number"),
        (b"true", "true or false"),
        (b"null", "null"),
    ],
)
def test_json_that_is_no_object_is_invalid(body: bytes, kind: str) -> None:
    assert refused(body) == (INVALID, f"a task is a JSON object, this is {kind}")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"mode": "race", "side_effects": True}, "a task with side effects goes to one agent only"),
        ({"mode": "fanout", "side_effects": True}, "a task with side effects goes to one agent only"),
        ({"mode": "fanout", "stream": True}, "a fan-out does not stream"),
        ({"first_n": 2}, "'aggregate' and 'first_n' belong to mode 'fanout', not 'single'"),
        ({"mode": "race", "aggregate": "vote"}, "belong to mode 'fanout', not 'race'"),
        ({"mode": "fanout", "first_n": 2}, "give both, or neither"),
        ({"mode": "fanout", "aggregate": "first_n"}, "give both, or neither"),
    ],
)
def test_what_does_not_go_with_the_mode_is_refused(fields: dict[str, Any], error: str) -> None:
    reason, told = refused({"capability": "c", **fields})

    assert reason is INVALID
    assert error in told


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("capabilty", "capability"),
        ("Capability", "capability"),
        ("pay_load", "payload"),
        ("deadline-ms", "deadline_ms"),
        ("sideeffects", "side_effects"),
        ("deadline", "deadline_ms"),
        ("zzz", None),
        ("", None),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(name: str, meant: str | None) -> None:
    error = f"unknown field {name!r}" + (f", did you mean {meant!r}?" if meant else "")

    assert refused({"capability": "c", name: 1}) == (INVALID, error)


def test_of_many_unknown_fields_a_few_are_told() -> None:
    _, error = refused({f"zz{number}": number for number in range(1000)})

    assert error == "; ".join(f"unknown field 'zz{number}'" for number in range(5))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"capability": 5}, "field 'capability' must be text, not 5"),
        ({"capability": ""}, f"field 'capability' {NAME}"),
        ({"capability": "  "}, f"field 'capability' {NAME}"),
        ({"capability": "a\nb"}, f"field 'capability' {NAME}"),
        ({"capability": "a\x00b"}, f"field 'capability' {NAME}"),
        ({"capability": "a" * 201}, "field 'capability' is too long, 200 characters at most"),
        ({"capability": "c", "task_id": ""}, f"field 'task_id' {ID}"),
        ({"capability": "c", "task_id": " "}, f"field 'task_id' {ID}"),
        ({"capability": "c", "task_id": "a\u202eb"}, f"field 'task_id' {ID}"),
        ({"capability": "c", "flow_id": "f" * 201}, f"field 'flow_id' {ID}"),
        ({"capability": "c", "session_id": 3}, "field 'session_id' must be text, not 3"),
        ({"capability": "c", "payload": []}, "field 'payload' must be an object, not a list"),
        ({"capability": "c", "payload": None}, "field 'payload' must be an object, not nothing"),
        ({"capability": "c", "payload": "{}"}, "field 'payload' must be an object, not text"),
        ({"capability": "c", "requires": "vision"}, "field 'requires' must be a list, not text"),
        ({"capability": "c", "requires": ["a", 2]}, "field 'requires/1' must be text, not 2"),
        ({"capability": "c", "requires": [" "]}, f"field 'requires/0' {NAME}"),
        ({"capability": "c", "requires": ["a"] * 65}, "field 'requires' has too many items, 64 at most"),
        ({"capability": "c", "mode": "all"}, "field 'mode' must be 'single', 'race' or 'fanout', not 'all'"),
        ({"capability": "c", "deadline_ms": 0}, "field 'deadline_ms' must be greater than 0, not 0"),
        ({"capability": "c", "deadline_ms": -5}, "field 'deadline_ms' must be greater than 0, not -5"),
        ({"capability": "c", "deadline_ms": 1.5}, "field 'deadline_ms' must be a whole number, not 1.5"),
        ({"capability": "c", "deadline_ms": "1000"}, "field 'deadline_ms' must be a whole number, not text"),
        ({"capability": "c", "deadline_ms": True}, "field 'deadline_ms' must be a whole number, not true"),
        ({"capability": "c", "deadline_ms": 2**40}, "field 'deadline_ms' must be at most 3.1536e+10, not 1099511627776"),
        ({"capability": "c", "max_cost": -1}, "field 'max_cost' must be at least 0, not -1"),
        ({"capability": "c", "max_cost": "free"}, "field 'max_cost' must be a number, not text"),
        ({"capability": "c", "side_effects": 1}, "field 'side_effects' must be true or false, not 1"),
        ({"capability": "c", "metadata": {"a": 1}}, "field 'metadata/a' must be text, not 1"),
        ({"capability": "c", "metadata": []}, "field 'metadata' must be an object, not a list"),
        ({"capability": "c", "attachments": ["x"]}, "field 'attachments/0' must be an object, not text"),
        ({"capability": "c", "attachments": {}}, "field 'attachments' must be a list, not a mapping"),
        ({"capability": "c", "schema_version": "1"}, "field 'schema_version' must be a whole number, not text"),
        ({"intent": ""}, "field 'intent' must not be empty"),
        ({"intent": "x" * 8193}, "field 'intent' is too long, 8192 characters at most"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_its_field(fields: dict[str, Any], error: str) -> None:
    assert refused(fields) == (INVALID, error)


def test_several_wrong_values_are_told_together() -> None:
    _, error = refused({"capability": 1, "payload": 2, "mode": 3})

    assert error.count(";") == 2


@pytest.mark.parametrize(
    "fields", [{}, {"payload": {}}, {"capability": "c", "intent": "i"}, {"capability": None}]
)
def test_a_task_names_a_capability_or_an_intent(fields: dict[str, Any]) -> None:
    assert refused(fields) == (INVALID, "a task names either a capability or an intent, exactly one of them")


def test_a_newer_version_is_told_before_anything_else() -> None:
    error = "schema_version 2 is newer than this router reads (1); update the router, then replay"

    assert refused({"schema_version": 2, "new_field": 1}) == (INVALID, error)


@pytest.mark.parametrize("version", [0, -1, False])
def test_a_version_that_never_was_is_not_called_newer(version: int) -> None:
    assert refused({"capability": "c", "schema_version": version})[1].endswith(
        "is none that this router reads (1)"
    )


def test_of_a_key_that_comes_twice_the_last_one_counts() -> None:
    assert accepted(b'{"capability": "a", "capability": "b"}').capability == "b"


def test_a_payload_may_hold_anything_that_json_can() -> None:
    payload = {"nul": "\x00", "huge": 1e308, "long": 2**64 - 1, "emoji": "🙂", "": {"a": [None]}}

    assert accepted({"capability": "c", "payload": payload}).payload == payload


def test_a_number_that_no_integer_holds_becomes_the_nearest_float() -> None:
    assert accepted(b'{"capability":"c","payload":{"n":18446744073709551616}}').payload == {"n": 2.0**64}


def test_a_payload_may_be_nested_deep() -> None:
    inner = accepted(nested(1000)).payload
    for _ in range(999):
        inner = inner["a"]

    assert inner == {"a": 1}


def test_a_body_of_one_megabyte_works() -> None:
    text = "x" * 1_000_000

    assert accepted({"capability": "c", "payload": {"text": text}}).payload == {"text": text}


def test_a_body_above_the_limit_is_too_large() -> None:
    body = b'{"capability": "c"}'

    assert isinstance(decode(body, limit=len(body)), Task)
    assert refused(body, limit=len(body) - 1) == (TOO_LARGE, "the body has 19 bytes, the limit is 18")


def test_the_default_limit_is_eight_megabytes() -> None:
    assert refused(b" " * (LIMIT + 1))[0] is TOO_LARGE


@pytest.mark.parametrize("encoding", [None, "", "utf-8", "UTF-8", "utf8", "identity"])
def test_plain_text_is_read(encoding: str | None) -> None:
    assert isinstance(decode({"capability": "c"}, encoding=encoding), Task)


@pytest.mark.parametrize("encoding", ["gzip", "utf-16", "deflate" * 100])
def test_other_encodings_are_not_guessed(encoding: str) -> None:
    reason, error = refused({"capability": "c"}, encoding=encoding)

    assert reason is UNDECODABLE
    assert error == f"content encoding {encoding[:40]!r} is not read; send plain UTF-8 JSON"


@pytest.mark.parametrize(
    "fields",
    [
        {f"zz{number}": 1 for number in range(100_000)},
        {"capability": "c", "metadata": {f"k{number}": 1 for number in range(100_000)}},
        {"capability": "c", "attachments": [1] * 300_000},
        {"capability": "c", "attachments": [{}] * 300_000},
        {"capability": "c", "requires": [1] * 300_000},
        {"capability": "c" * 1_000_000},
        {"capability": "c", "x" * 1_000_000: 1},
        {"capability": "c", "metadata": {"x" * 1_000_000: 1}},
        {"capability": "c", "mode": "x" * 1_000_000},
    ],
    ids=lambda fields: f"{list(fields)[-1]:.12}",
)
@pytest.mark.timeout(10)
def test_a_body_full_of_faults_is_refused_shortly(fields: dict[str, Any]) -> None:
    reason, error = refused(fields)

    assert reason is INVALID
    assert len(error) < 600


def test_metadata_has_a_bound() -> None:
    most = {str(number): "" for number in range(MOST_ENTRIES)}

    assert len(accepted({"capability": "c", "metadata": most}).metadata) == MOST_ENTRIES
    assert refused({"capability": "c", "metadata": {**most, "one more": ""}}) == (
        INVALID,
        "field 'metadata' has 1001 entries, 1000 at most",
    )


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("t-1", True),
        ("报表 7", True),
        ("x" * 200, True),
        ("x" * 201, False),
        ("", False),
        (None, False),
        ("  ", False),
        ("a\tb", False),
        ("a\x00", False),
        ("a\ud800", False),
        ("a\u2028b", False),
    ],
)
def test_what_can_stand_for_a_task(text: str | None, usable: bool) -> None:
    assert usable_id(text) is usable


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    assert isinstance(decode(body), Task | Refusal)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(TASK_FIELDS) | st.text(max_size=8), JSON, max_size=6))
def test_no_json_object_makes_it_raise(fields: dict[str, Any]) -> None:
    result = task_from(fields)

    assert isinstance(result, Task | Refusal)
    if isinstance(result, Refusal):
        assert result.reason is INVALID
        assert result.error
        orjson.dumps(result.error)


@given(st.fixed_dictionaries({"capability": st.just("c"), "payload": st.dictionaries(st.text(), JSON)}))
def test_a_payload_arrives_as_it_was_sent(fields: dict[str, Any]) -> None:
    assert accepted(fields).payload == orjson.loads(orjson.dumps(fields))["payload"]
