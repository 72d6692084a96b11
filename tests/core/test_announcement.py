"""What is said on the events exchange, and what is made of it."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.announcement import (
    RouterBeat,
    Unreadable,
    beat_body,
    beat_from,
    cancel_key,
    manifest_key,
    presence_key,
    router_body,
    router_from,
    router_key,
)
from reach_worker.core.presence import Heartbeat
from tests.core.agents import beat

SAID: dict[str, Any] = orjson.loads(beat_body(beat("a", running=("d1", "d2"))))
NAME = st.text(min_size=1, max_size=40)


def test_each_kind_has_its_key() -> None:
    assert [presence_key("a"), manifest_key("a"), router_key("r"), cancel_key("a")] == [
        "presence.a",
        "manifest.a",
        "router.r",
        "cancel.a",
    ]


@given(
    st.builds(
        Heartbeat,
        agent_id=NAME,
        instance_id=NAME,
        mailbox=NAME,
        capacity=st.integers(0, 2**63),
        running=st.lists(st.text()).map(tuple),
        manifest_hash=NAME,
        version=NAME,
        stopping=st.booleans(),
        completed=st.none() | st.integers(0, 2**63),
        consuming=st.none() | st.booleans(),
    )
)
def test_a_heartbeat_comes_back_as_it_was(said: Heartbeat) -> None:
    assert beat_from(beat_body(said)) == said


@given(NAME, st.booleans(), st.none() | st.text(max_size=100))
def test_a_routers_heartbeat_comes_back_as_it_was(
    router_id: str, stopping: bool, unready: str | None
) -> None:
    said = RouterBeat(router_id, stopping, unready)

    assert router_from(router_body(said)) == said


def test_what_a_newer_agent_adds_is_let_go() -> None:
    assert beat_from(orjson.dumps({**SAID, "gpu": True})) == beat("a", running=("d1", "d2"))


@pytest.mark.parametrize("value", ["true", 1, None, [True]])
def test_only_a_clear_goodbye_is_one(value: Any) -> None:
    said = beat_from(orjson.dumps({**SAID, "stopping": value}))

    assert isinstance(said, Heartbeat)
    assert not said.stopping


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"agent": None}, "no heartbeat: agent must be text of 1 to 255 bytes"),
        ({"agent": ""}, "no heartbeat: agent must be text of 1 to 255 bytes"),
        ({"instance": 7}, "no heartbeat: instance must be text of 1 to 255 bytes"),
        ({"mailbox": "日" * 86}, "no heartbeat: mailbox must be text of 1 to 255 bytes"),
        ({"version": "v" * 1001}, "no heartbeat: version must be text of 1 to 1000 bytes"),
        ({"capacity": -1}, "no heartbeat: capacity must be a whole number from 0"),
        ({"capacity": "8"}, "no heartbeat: capacity must be a whole number from 0"),
        ({"capacity": True}, "no heartbeat: capacity must be a whole number from 0"),
        ({"capacity": 1.5}, "no heartbeat: capacity must be a whole number from 0"),
        ({"running": "d1"}, "no heartbeat: running must be a list of texts"),
        ({"running": {"d1": 1}}, "no heartbeat: running must be a list of texts"),
        ({"running": [1]}, "no heartbeat: running must be a list of texts"),
        ({"completed": -1}, "no heartbeat: completed must be a whole number from 0"),
        ({"completed": "1"}, "no heartbeat: completed must be a whole number from 0"),
        ({"manifest_hash": []}, "no heartbeat: manifest_hash must be text of 1 to 255 bytes"),
    ],
)
def test_a_heartbeat_of_another_shape_is_told(change: dict[str, Any], error: str) -> None:
    assert beat_from(orjson.dumps({**SAID, **change})) == Unreadable(error)


@pytest.mark.parametrize("field", [field for field in SAID if field != "stopping"])
def test_a_heartbeat_needs_its_fields(field: str) -> None:
    less = {name: value for name, value in SAID.items() if name != field}

    assert isinstance(beat_from(orjson.dumps(less)), Unreadable)


@pytest.mark.parametrize("router", [None, "", 7, "r" * 256])
def test_a_router_has_a_name(router: Any) -> None:
    assert router_from(orjson.dumps({"router": router})) == Unreadable(
        "no router's heartbeat: router must be text of 1 to 255 bytes"
    )


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"null", b"7", b'"a"', b"[" * 5000])
def test_what_is_no_object_is_told(body: bytes) -> None:
    assert isinstance(beat_from(body), Unreadable)
    assert isinstance(router_from(body), Unreadable)


@given(st.binary(max_size=60))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    assert isinstance(beat_from(body), Heartbeat | Unreadable)
    assert isinstance(router_from(body), RouterBeat | Unreadable)
