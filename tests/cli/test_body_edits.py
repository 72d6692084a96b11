"""Changing bodies at JSON pointers (RFC 6901)."""

from typing import Any

import orjson
import pytest

from reach_worker.cli.body_edits import Changes, of_the_same_task, set_out
from reach_worker.core.dead_letter import DeadLetter
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.replaying import HeldBack

BODY = {"payload": {"a/b": 1, "m~n": 2, "list": [10, 20], "": 5}, "requires": []}


@pytest.mark.parametrize(
    ("pointer", "value", "at"),
    [
        ("/payload", {"x": 1}, lambda body: body["payload"]),
        ("/new", None, lambda body: body["new"]),
        ("/payload/a~1b", 7, lambda body: body["payload"]["a/b"]),
        ("/payload/m~0n", 7, lambda body: body["payload"]["m~n"]),
        ("/payload/", 7, lambda body: body["payload"][""]),
        ("/payload/list/1", "x", lambda body: body["payload"]["list"][1]),
        ("/payload/list/-", "x", lambda body: body["payload"]["list"][2]),
        ("/requires/-", "vision", lambda body: body["requires"][0]),
    ],
)
def test_set_replaces_or_adds(pointer: str, value: Any, at: Any) -> None:
    changed = Changes(settings=[(pointer, value)]).apply(orjson.dumps(BODY))

    assert isinstance(changed, bytes)
    assert at(orjson.loads(changed)) == value


def test_unset_takes_out_before_anything_is_set() -> None:
    changed = Changes([("/capability", "text.echo")], ["/capabilty", "/payload/list/0"]).apply(
        orjson.dumps({"capabilty": "text.echo", "payload": {"list": [1, 2]}})
    )

    assert isinstance(changed, bytes)
    assert orjson.loads(changed) == {"capability": "text.echo", "payload": {"list": [2]}}


@pytest.mark.parametrize(
    "pointer", ["/no/where", "/payload/list/2", "/payload/list/01", "/payload/list/x", "/payload/a~1b/c"]
)
def test_a_pointer_that_leads_nowhere_holds_the_letter_back(pointer: str) -> None:
    body = orjson.dumps(BODY)

    assert Changes(settings=[(pointer, 1)]).apply(body) == HeldBack(f"its body has no {pointer}")
    assert Changes(removals=[pointer]).apply(body) == HeldBack(f"its body has no {pointer}")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff"])
def test_in_a_body_that_is_no_json_nothing_can_be_set(body: bytes) -> None:
    held = Changes(settings=[("/a", 1)]).apply(body)

    assert isinstance(held, HeldBack)
    assert "is no JSON, so nothing can be set in it" in held.why


@pytest.mark.parametrize("body", [b"[]", b"1", b'"text"', b"null"])
def test_in_a_body_that_is_no_object_there_is_no_such_place(body: bytes) -> None:
    assert Changes(settings=[("/a", 1)]).apply(body) == HeldBack("its body has no /a")


def letter(task_id: str, body: bytes) -> DeadLetter:
    return DeadLetter(Envelope(task_id, task_id, "c", "anonymous", 0), DeadLetterReason.INVALID, "", 0, body)


@pytest.mark.parametrize(
    ("new", "allowed"),
    [
        (b'{"task_id": "t-1"}', True),
        (b'{"task_id": "given"}', True),
        (b"{}", True),
        (b"nonsense", True),
        (b'{"task_id": "t-2"}', False),
        (b'{"task_id": 5}', False),
    ],
)
def test_an_edited_body_stays_the_same_task(new: bytes, allowed: bool) -> None:
    given = letter("given", b'{"task_id": "t-1"}')

    result = of_the_same_task(given, new)

    assert (result == new) is allowed
    assert allowed or isinstance(result, HeldBack)


def test_json_is_set_out_and_anything_else_stays() -> None:
    assert set_out(b'{"a":1}') == b'{\n  "a": 1\n}\n'
    assert set_out(b"\xff{") == b"\xff{"
