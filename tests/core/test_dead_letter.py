"""What a message among the dead letters says, and what replaying it sends, whoever put it there."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from reach_worker.core.dead_letter import DeadLetter, dead_letter_from
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.envelope import Envelope
from reach_worker.core.message import Delivery
from reach_worker.core.names import Names
from reach_worker.core.outcome import Attempt, DeadLetterReason, OutcomeClass
from reach_worker.core.replaying import Anew, HeldBack, gone_on, replayed
from reach_worker.services.router.messages import dead_letter_message

NAMES = Names("reach.v1")
NOW_US = 1_700_000_000_000_000
BODY = b'{"capability": "text.echo", "payload": {}, "deadline_ms": 5000}'
FORGED = Envelope(
    "victim", "victim", "text.echo", "boss", 1, reply_to="reach.v1.returns", to_agent="slow", life=7
)


def ours(**more: Any) -> DeadLetter:
    """One that a router wrote."""
    attempt = Attempt(1, "a", "d", "e", OutcomeClass.FAILED, "m", 1, 2)
    envelope = replace(Envelope("t", "f", "text.echo", "bob", 1, attempts=(attempt,), crashes=2), **more)
    message = dead_letter_message(NAMES, envelope, BODY, DeadLetterReason.POISON, "it died", NOW_US)
    return dead_letter_from(Delivery(NAMES.dlq, message.body, None, message.headers))


def given_up(queue: str, **more: Any) -> DeadLetter:
    """One that the broker took out of a queue, with headers as somebody else wrote them."""
    death = {"queue": queue, "reason": "expired", "count": 1}
    headers = {**FORGED.headers(), "x-reach-reason": "poison", "x-reach-outcome": "x", "x-death": [death]}
    return dead_letter_from(Delivery(NAMES.dlq, BODY, None, headers, **more))


def anew(**more: Any) -> Anew:
    return Anew(**{"now_us": NOW_US, "max_bytes": 1000, "new_id": "new", **more})


def sent(letter: DeadLetter, **more: Any) -> Envelope:
    result = replayed(letter, anew(**more))
    assert not isinstance(result, HeldBack), result
    return result[0]


def test_a_new_life_has_a_fresh_budget_and_the_old_history() -> None:
    again = sent(ours())

    assert (again.task_id, again.flow_id, again.caller) == ("t", "f", "bob")
    assert (again.life, again.replays, again.attempts, again.crashes) == (1, 1, (), 0)
    assert [attempt["agent"] for attempt in orjson.loads(again.past or "[]")] == ["a"]


def test_the_deadline_counts_anew() -> None:
    assert sent(ours(deadline=3)).deadline == NOW_US + 5_000_000
    assert sent(ours(deadline=3), body=b'{"capability": "text.echo"}').deadline is None


def test_the_same_letter_always_makes_the_same_life() -> None:
    """So a second copy of a replay, made by a crash, is told from another replay."""
    assert sent(ours()).life == sent(ours(), new_id="other").life


@pytest.mark.parametrize(
    "queue", ["reach.v1.lane.text.echo", "reach.v1.outcomes.router-1", "reach.v1.returns"]
)
def test_what_the_broker_took_from_our_own_queues_is_believed(queue: str) -> None:
    letter = given_up(queue)

    assert (letter.task_id, letter.envelope.caller) == ("victim", "boss")


def test_what_the_broker_took_from_the_public_door_is_not_believed() -> None:
    """A publisher may forge any header, and have the broker bury it by an expiration of his own."""
    letter = given_up(NAMES.intake, message_id="mine", user_id="eve", reply_to="eves-queue")

    assert (letter.task_id, letter.envelope.caller, letter.envelope.life) == ("mine", "eve", 0)
    assert (letter.reason, letter.is_outcome) == (DeadLetterReason.EXPIRED, False)
    again = sent(letter)
    assert (again.task_id, again.caller, again.to_agent, again.reply_to) == (
        "mine",
        "eve",
        None,
        "eves-queue",
    )


def test_what_came_past_the_intake_queue_is_not_believed() -> None:
    delivery = Delivery(NAMES.dlq, BODY, None, FORGED.headers(), message_id="mine", exchange=NAMES.tasks)

    assert dead_letter_from(delivery).envelope.caller == "anonymous"


@pytest.mark.parametrize("reply_to", ["reach.v1.returns", "reach.v1.intake", "reach.v1", "reach.v2.dlq"])
def test_no_answer_of_a_replay_goes_into_our_own_queues(reply_to: str) -> None:
    assert given_up(NAMES.intake, reply_to=reply_to).envelope.reply_to is None


def test_one_without_an_id_gets_a_new_one_each_time_it_is_sent() -> None:
    letter = given_up(NAMES.intake)

    assert letter.nameless
    assert letter.task_id == given_up(NAMES.intake).task_id
    assert (sent(letter, new_id="n1").task_id, sent(letter, new_id="n2").task_id) == ("n1", "n2")


def test_properties_that_cannot_be_decoded_are_named() -> None:
    letter = dead_letter_from(Delivery(NAMES.dlq, BODY, None, {}, fault="message_id is not UTF-8"))

    assert letter.reason is DeadLetterReason.UNDECODABLE
    assert "message_id is not UTF-8" in letter.error


@pytest.mark.parametrize("deaths", ["often", [1], [{}], [{"queue": 1}], {"queue": "x"}, None])
def test_any_x_death_can_be_read(deaths: object) -> None:
    letter = dead_letter_from(Delivery(NAMES.dlq, BODY, None, {"x-death": deaths}))

    assert letter.reason is DeadLetterReason.BROKER_REFUSED


def test_an_outcome_is_never_a_task() -> None:
    headers = {**FORGED.headers(), "x-reach-outcome": "unreadable"}
    letter = dead_letter_from(Delivery(NAMES.dlq, BODY, None, headers))

    assert isinstance(replayed(letter, anew(force=True)), HeldBack)


def known(life: int, state: TaskState) -> KnownTask:
    return KnownTask("t", life, state, "r1", None, 1, 0, None)


@pytest.mark.parametrize(
    ("life", "state", "held", "forced"),
    [
        (0, TaskState.DEAD_LETTER, False, False),
        (0, TaskState.UNDER_WAY, False, False),
        (0, TaskState.SUCCEEDED, True, False),
        *((1, state, True, True) for state in TaskState),
    ],
)
def test_what_has_gone_on_since_is_past(life: int, state: TaskState, *, held: bool, forced: bool) -> None:
    assert (gone_on(ours(), known(life, state), force=False) is not None) == held
    assert (gone_on(ours(), known(life, state), force=True) is not None) == forced


def test_nobody_knows() -> None:
    assert gone_on(ours(), None, force=False) is None
