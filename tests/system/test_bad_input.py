"""Everything that a publisher can get wrong, over the wire; and what nobody but an attacker would send.

Each is kept with its reason and answered, and the router and its agents go on as if nothing had been.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import orjson
import pytest
from aiormq.abc import DeliveredMessage

from reach_worker.core.announcement import manifest_key, presence_key, router_key
from reach_worker.core.dead_letter import ERROR, REASON
from reach_worker.core.dispatch import Dispatch, outcome_headers
from reach_worker.core.envelope import TASK, Envelope
from reach_worker.core.names import Names
from reach_worker.core.outcome import Attempt, Outcome, OutcomeClass
from tests.bus.hostile_publisher import RawPublisher, catalogue, odd_messages
from tests.system.caller import Caller
from tests.system.processes import Processes

pytestmark = [pytest.mark.broker, pytest.mark.system]

LIMIT: Final = 8 * 1024 * 1024


@pytest.fixture
def names(fleet: Processes) -> Names:
    return Names(fleet.environment["REACH_BROKER__PREFIX"])


@pytest.fixture
def caller(broker_url: str, names: Names) -> Iterator[Caller]:
    """With nothing of the test before left in the dead letters."""
    with Caller(broker_url, names.tasks) as caller:
        caller.take(names.dlq)
        yield caller


@pytest.fixture(autouse=True)
def they_go_on(fleet: Processes, caller: Caller) -> Iterator[None]:
    """After each of these tests a good task is done, and no session was ever renewed."""
    yield
    caller.publish({"good": echo("good")})
    caller.until_answered(["good"])
    assert caller.answers.pop("good")[0]["result"] == {"text": "good"}
    for running in fleet.running:
        assert running.process.poll() is None
        assert "broker session ended" not in running.log()
        assert "Traceback" not in running.log()


def echo(text: str, **more: Any) -> dict[str, Any]:
    return {"capability": "text.echo", "payload": {"text": text}, **more}


def with_spaces(size: int) -> bytes:
    """A good task that is so many bytes long."""
    task = json.dumps(echo("large")).encode()
    return task + b" " * (size - len(task))


REFUSED: Final[Mapping[str, tuple[bytes, str, Sequence[str]]]] = {
    "not JSON": (b"{capability: text.echo}", "undecodable", ["not JSON"]),
    "not UTF-8": (b'{"capability": "\xff"}', "undecodable", ["not JSON"]),
    "an empty body": (b"", "undecodable", ["empty"]),
    "an array": (b"[]", "invalid", ["a JSON object", "an array"]),
    "a text": (b'"text.echo"', "invalid", ["a JSON object", "a string"]),
    "null": (b"null", "invalid", ["a JSON object", "null"]),
    "deeper than anybody means": (b"[" * 50_000 + b"]" * 50_000, "undecodable", ["not JSON"]),
    "nothing to do": (b"{}", "invalid", ["a capability or an intent"]),
    "an unknown field": (
        b'{"capability": "text.echo", "paylod": {}}',
        "invalid",
        ["unknown field 'paylod'", "did you mean 'payload'?"],
    ),
    "a wrong type": (b'{"capability": "text.echo", "payload": []}', "invalid", ["'payload'"]),
    "a number as text": (b'{"capability": "text.echo", "deadline_ms": "5"}', "invalid", ["'deadline_ms'"]),
    "a later format": (b'{"capability": "text.echo", "schema_version": 2}', "invalid", ["schema_version 2"]),
    "handed on by nobody": (
        b'{"capability": "text.echo", "handoff": {"from_agent": "slow", "origin": ""}}',
        "invalid",
        ["'handoff' is written by routers"],
    ),
    "a payload without what the schema asks for": (
        b'{"capability": "text.echo", "payload": {}}',
        "payload_refused",
        ["payload", '"text" is a required property'],
    ),
    "a payload against the schema": (
        b'{"capability": "text.echo", "payload": {"text": 5}}',
        "payload_refused",
        ["payload/text", "is not of type"],
    ),
    "a body above the limit": (
        with_spaces(LIMIT + 1),
        "too_large",
        [f"{LIMIT + 1} bytes", f"limit is {LIMIT}"],
    ),
}


@pytest.mark.parametrize(("body", "reason", "words"), REFUSED.values(), ids=REFUSED)
def test_it_is_answered_and_kept_with_the_reason(
    caller: Caller, names: Names, body: bytes, reason: str, words: Sequence[str]
) -> None:
    caller.send((body, {"correlation_id": "bad"}))
    caller.until_answered(["bad"])
    answer = caller.final("bad")
    assert (answer["status"], answer["reason"]) == ("dead_letter", reason)
    assert [word for word in words if word not in answer["error"]] == []
    (letter,) = caller.take(names.dlq)
    assert (letter.body, header(letter, REASON), header(letter, ERROR)) == (body, reason, answer["error"])


def header(message: DeliveredMessage, name: str) -> Any:
    return (message.header.properties.headers or {}).get(name)


@pytest.mark.parametrize("size", [1024 * 1024, LIMIT])
def test_a_large_body_within_the_limit_is_done(caller: Caller, size: int) -> None:
    caller.send((with_spaces(size), {"correlation_id": "large"}))
    caller.until_answered(["large"])
    assert caller.final("large")["result"] == {"text": "large"}


def test_an_encoded_body_is_told_apart(caller: Caller, names: Names) -> None:
    caller.send((b"\x1f\x8b", {"correlation_id": "zipped", "content_encoding": "gzip"}))
    caller.until_answered(["zipped"])
    assert "content encoding 'gzip' is not read" in caller.final("zipped")["error"]
    assert len(caller.take(names.dlq)) == 1


def test_an_unknown_capability_waits_for_a_person(caller: Caller, names: Names) -> None:
    caller.publish({"whose": {"capability": "text.ehco", "payload": {}}})
    caller.until(lambda: bool(caller.answers))
    (answer,) = caller.answers["whose"]
    assert (answer["status"], answer["final"]) == ("unmatched", False)
    assert "did you mean 'text.echo'?" in answer["error"]
    (parked,) = caller.take(names.unmatched)
    assert header(parked, TASK) == "whose"
    assert caller.take(names.dlq) == []


@pytest.mark.parametrize("kind", ["intake", "returns", "dlq", "outcomes.router-1", "agent.quick"])
def test_nobody_is_answered_into_our_own_queues(caller: Caller, names: Names, kind: str) -> None:
    caller.send((json.dumps(echo("x")).encode(), {"reply_to": f"{names.prefix}.{kind}"}))
    (letter,) = caller.take_until(names.dlq, 1)
    assert header(letter, REASON) == "invalid"
    assert "is one of the router's own queues" in header(letter, ERROR)


def test_our_own_headers_are_not_believed_from_outside(caller: Caller, names: Names) -> None:
    """They would say that the task is somebody's else, was tried, is late, and has succeeded."""
    forged = {**failed_outcome().headers, **envelope("victim").headers(), "x-reach-to-agent": "slow"}
    caller.send(
        (
            json.dumps(echo("mine")).encode(),
            {"correlation_id": "forged", "message_id": "mine", "headers": forged},
        )
    )
    caller.until_answered(["forged"])
    answer = caller.final("forged")
    assert (answer["task_id"], answer["status"], answer["attempt"], answer["agent"]) == (
        "mine",
        "succeeded",
        1,
        "quick",
    )
    assert caller.take(names.dlq) == []


# ---- Into the queues that only we write to


def envelope(task_id: str) -> Envelope:
    attempt = Attempt(1, "slow", "d0", "e0", OutcomeClass.FAILED, "it broke", 1, 2)
    return Envelope(
        task_id=task_id,
        flow_id=task_id,
        capability="text.echo",
        caller="anonymous",
        first_seen=1_700_000_000_000_000,
        deadline=4_000_000_000_000_000,
        attempts=(attempt,),
        past="[]",
        replays=1,
        life=1,
        reply_to="nobody",
        correlation_id="c",
        content_type="application/json",
        not_before=1,
    )


class Forged:
    """A message as one of us would send it: its body and its headers."""

    def __init__(self, headers: Mapping[str, Any]) -> None:
        self.body = json.dumps(echo("forged")).encode()
        self.headers = dict(headers)


def dispatch(task_id: str = "forged") -> Dispatch:
    return Dispatch(
        envelope=envelope(task_id),
        dispatch_id=f"d-{task_id}",
        decision_id="e1",
        agent_id="quick",
        owner="router-1",
        dispatched_at=1_700_000_000_000_000,
        start_by=4_000_000_000_000_000,
        timeout_ms=1000,
    )


def failed_outcome(task_id: str = "forged") -> Forged:
    outcome = Outcome(
        dispatch_id=f"d-{task_id}",
        task_id=task_id,
        agent_id="quick",
        instance_id="i1",
        outcome=OutcomeClass.FAILED,
        message="it broke",
        retry_after_ms=1,
        duration_ms=1.5,
        started=True,
        crashed=True,
    )
    return Forged(outcome_headers(dispatch(task_id).headers(), outcome))


GOOD_ATTEMPT: Final = Attempt(1, "a", "d", "e", OutcomeClass.FAILED, "m", 1, 2).as_dict()
ODD_PARTS: Final[tuple[dict[str, Any], ...]] = (
    {"attempt": 1e300}, {"attempt": "1"}, {"agent": []}, {"message": None}, {"ended_at": 1e308},
    {"dispatched_at": -(2**70)}, {"outcome": "unheard of"}, {"more": 1},
)  # fmt: skip
ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 2**63 - 1, -(2**63), 1.5, "", " ", "x" * 300, "\0\n\x1b[2J", "🙈",
    [], [1, [2]], {"a": {"b": 1}}, bytearray(b"\xff\0"), "[", "null", "7", "[7]", "[{}]", '{"a": 1}',
    *(json.dumps([{**GOOD_ATTEMPT, **part}]) for part in ODD_PARTS),
    "succeeded", "cancelled", "handoff", "started",
)  # fmt: skip


def each_header_odd(forged: Forged) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The message with each header missing, and with each odd value in place of each header's own."""
    for name in forged.headers:
        rest = {key: value for key, value in forged.headers.items() if key != name}
        for headers in (rest, *({**rest, name: value} for value in ODD)):
            yield forged.body, {"headers": headers}


def test_junk_in_our_own_queues_ends_as_a_dead_letter(caller: Caller, names: Names) -> None:
    queues = (names.outcomes("router-1"), names.returns, names.agent("quick"), names.lane("text.echo"))
    junk: list[tuple[bytes, Mapping[str, Any]]] = [
        (b"", {}),
        (b"junk", {"headers": {"x-reach-task": 7}}),
        (b"{}", {"headers": {"x-reach-task": "t"}}),
    ]
    for queue in queues:
        caller.send(*junk, exchange="", key=queue)
    letters = caller.take_until(names.dlq, len(queues) * len(junk))
    assert len(letters) == len(queues) * len(junk)
    assert {header(letter, REASON) for letter in letters} == {"invalid"}


def test_odd_headers_in_our_own_queues_stop_nobody(caller: Caller, names: Names) -> None:
    """Some of these messages make sense, and are done; none of them may end the router, an agent or a session."""
    outcome = failed_outcome("odd")
    asked = Forged(dispatch("odd").headers())
    returned = Forged(envelope("odd").headers())
    for queue, forged in (
        (names.outcomes("router-1"), outcome),
        (names.returns, asked),
        (names.returns, returned),
        (names.agent("quick"), asked),
    ):
        messages = list(each_header_odd(forged))
        caller.send(*messages, exchange="", key=queue)
    for queue in (names.outcomes("router-1"), names.returns, names.agent("quick")):
        caller.until_empty(queue)
    caller.take(names.dlq)


@pytest.mark.parametrize(
    "body", [b"", b"junk", b"[]", b"{}", orjson.dumps({"agent": "quick", "running": 5, "capacity": []})]
)
def test_odd_announcements_are_passed_over(caller: Caller, names: Names, body: bytes) -> None:
    for key in (
        presence_key("quick"),
        manifest_key("quick"),
        router_key("router-2"),
        "cancel.quick",
        "who",
        "x",
    ):
        caller.send((body, {}), exchange=names.events, key=key, mandatory=False)


# ---- Bytes that no client library would send


def test_no_bytes_that_a_producer_can_send_stop_anybody(
    caller: Caller, names: Names, broker_url: str
) -> None:
    """What the broker takes of them ends as a dead letter or with a person, or is done; nothing is left over."""
    good = json.dumps(echo("odd")).encode()
    odd = [*catalogue(), *islice(odd_messages(seed=11, bodies=[good]), 150)]

    async def send() -> int:
        async with RawPublisher(broker_url) as publisher:
            answers = [
                await publisher.publish(message, exchange=names.tasks, routing_key="k") for message in odd
            ]
        return sum(answer.taken for answer in answers)

    taken = asyncio.run(send())
    assert taken > len(odd) * 3 / 4
    caller.until_empty(names.intake)
    letters = caller.take_until(names.dlq, 50)
    assert {header(letter, REASON) for letter in letters} >= {"undecodable", "invalid"}
    assert len(caller.take_until(names.unmatched, 20)) <= taken
