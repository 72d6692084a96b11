"""Each outcome class and its effects: on the task, on the agent's record, on its breaker (SPEC 6)."""

from dataclasses import dataclass

import pytest

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.dispatch import DISPATCH, outcome_headers
from reach_worker.core.duplicates import TaskState
from reach_worker.core.envelope import ATTEMPTS, CRASHES
from reach_worker.core.outcome import DeadLetterReason, Outcome, OutcomeClass
from reach_worker.ports import AnswerLost, Standing
from reach_worker.testing import Fate
from tests.services.scripted import Reply, always, succeed
from tests.services.stage import Stage

LONG_S = 90.0


@dataclass(frozen=True)
class Case:
    """What an outcome of the first agent, asked first, leads to."""

    kind: OutcomeClass
    state: TaskState
    done_by: str | None
    attempts: int
    counts_against: bool = False
    opens_breaker: bool = False
    delayed: bool = False
    reason: DeadLetterReason | None = None


CASES = [
    Case(OutcomeClass.SUCCEEDED, TaskState.SUCCEEDED, "a", 1),
    Case(OutcomeClass.RATE_LIMITED, TaskState.SUCCEEDED, "b", 2),
    Case(
        OutcomeClass.TIMEOUT,
        TaskState.SUCCEEDED,
        "b",
        2,
        counts_against=True,
        opens_breaker=True,
        delayed=True,
    ),
    Case(
        OutcomeClass.UNAVAILABLE,
        TaskState.SUCCEEDED,
        "b",
        2,
        counts_against=True,
        opens_breaker=True,
        delayed=True,
    ),
    Case(
        OutcomeClass.FAILED,
        TaskState.SUCCEEDED,
        "b",
        2,
        counts_against=True,
        opens_breaker=True,
        delayed=True,
    ),
    Case(OutcomeClass.BAD_REQUEST, TaskState.DEAD_LETTER, None, 1, reason=DeadLetterReason.BAD_REQUEST),
    Case(OutcomeClass.REJECTED, TaskState.SUCCEEDED, "b", 2),
    Case(OutcomeClass.CANCELLED, TaskState.CANCELLED, None, 1),
]


async def played(case: Case) -> Stage:
    """Two agents; ``a`` is asked first and ends everything as the case says."""
    stage = Stage(breaker=BreakerPolicy(streak=1))
    await stage.router()
    await stage.agent("a", script=always(case.kind, "because"), capability_cost=1)
    await stage.agent("b", script=succeed, capability_cost=5)
    stage.publish("t1")
    await stage.settle()
    return stage


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind.value)
async def test_what_an_outcome_means_for_its_task(case: Case) -> None:
    stage = await played(case)
    assert bool(stage.answers()) is not case.delayed
    await stage.pass_time(LONG_S)
    end, answer = stage.end("t1"), stage.answer("t1")
    assert (end.state, end.reason) == (case.state, case.reason)
    assert answer["status"] == case.state.value
    assert answer.get("agent") == case.done_by
    sent = stage.dispatches("t1")
    assert [row.agent_id for row in sent] == ["a", "b"][: case.attempts]
    assert [row.attempt for row in sent] == list(range(1, case.attempts + 1))
    assert stage.outcomes("t1")[0].message == "because"
    assert stage.r1.leases == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind.value)
async def test_what_an_outcome_means_for_its_agent(case: Case) -> None:
    stage = await played(case)
    agent = stage.r1.desk.fleet.agents["a"]
    track = stage.r1.desk.fleet.record.of("a", "text.echo")
    rate = track.success() if track is not None else None
    expected = 1.0 if case.kind is OutcomeClass.SUCCEEDED else 0.0 if case.counts_against else None
    assert rate == expected
    assert (agent.breaker.state.value != "closed") is case.opens_breaker
    rejected = track.rejections.rate() if track is not None else None
    assert (rejected == 1.0) is (case.kind is OutcomeClass.REJECTED)


async def test_a_rate_limited_agent_rests_exactly_as_long_as_it_asks() -> None:
    stage = Stage()
    await stage.router()
    replies = [Reply(OutcomeClass.RATE_LIMITED, retry_after_ms=20_000)]
    agent = await stage.agent("a", script=lambda _: replies.pop() if replies else Reply())
    stage.publish("t1")
    await stage.pass_time(19.0)
    assert agent.ran["t1"] == 1
    assert not stage.answers()
    await stage.pass_time(3.0)
    assert stage.answer("t1")["attempt"] == 2
    assert stage.r1.desk.fleet.agents["a"].breaker.streak == 0


async def test_released_is_routed_again_at_once_and_spends_nothing() -> None:
    stage = Stage()
    await stage.router()
    replies = [Reply(OutcomeClass.RELEASED, started=False)]
    await stage.agent("a", script=lambda _: replies.pop() if replies else Reply())
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["attempt"] == 1
    assert [row.attempt for row in stage.dispatches("t1")] == [1, 1]
    assert stage.end("t1").state is TaskState.SUCCEEDED


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.STORED])
async def test_the_dispatch_that_an_outcome_led_to_is_sent_again_where_nobody_knows_of_it(fate: Fate) -> None:
    """Its confirm was lost with the session. Behind it is the outcome, which comes again, and no other message."""
    stage = Stage()
    r1 = await stage.router()
    agents = [await stage.agent(name, script=lambda _: None) for name in ("a", "b")]
    stage.publish("t1")
    await stage.settle()
    (first,) = (agent for agent in agents if agent.held)
    r1.bus.fail_next(fate, to=".agent.")
    await first.end(first.held[0], Reply(OutcomeClass.RELEASED, started=False))
    await stage.settle()
    assert [work.task_id for agent in agents for work in agent.held] == ["t1"]
    assert [one.standing for one in stage.outcomes("t1")] == [Standing.CURRENT]
    assert len(stage.dispatches("t1")) == 2


async def test_an_agent_that_hands_back_everything_is_not_asked_at_full_speed() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.RELEASED, started=False))
    stage.publish("t1")
    for _ in range(20):
        await stage.settle()
    assert agent.ran["t1"] == 2
    await stage.pass_time(60)
    assert agent.ran["t1"] < 60
    assert not stage.ends("t1")


async def test_an_answer_that_nobody_takes_is_recorded_and_the_task_is_done() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    stage.publish("t1", reply_to="gone")
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED
    (lost,) = stage.rows(AnswerLost)
    assert lost.reply_to == "gone"
    assert stage.ready() == {}


async def test_the_answer_of_a_dead_letter_tells_every_attempt() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.FAILED, "it broke"))
    stage.publish("t1")
    await stage.pass_time(LONG_S)
    answer = stage.answer("t1")
    assert (answer["status"], answer["reason"]) == ("dead_letter", "attempts_exhausted")
    assert [attempt["message"] for attempt in answer["attempts"]] == ["it broke"] * 4
    letter = stage.letter()
    assert letter.task_id == "t1"
    assert len(letter.envelope.attempts) == 4
    assert letter.as_dict()["body"] == '{"capability":"text.echo","payload":{}}'


async def test_what_an_agent_says_of_its_dispatch_counts_where_it_is_other_than_what_was_sent() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    (work,) = agent.held
    told = {**work.delivery.headers, CRASHES: 1}
    await agent.end(work, Reply(OutcomeClass.RELEASED, started=False), headers=told)
    await stage.settle()
    (again,) = agent.held
    assert again.dispatch.envelope.crashes == 1


@pytest.mark.parametrize("header", [DISPATCH, ATTEMPTS])
async def test_an_outcome_whose_headers_were_spoilt_is_kept_and_its_dispatch_stays_out(header: str) -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    (work,) = agent.held
    spoilt = outcome_headers(work.delivery.headers, Outcome("d", "t1", "a", "1", OutcomeClass.SUCCEEDED))
    spoilt[header] = "[}" if header == ATTEMPTS else ["no", "text"]
    stage.broker.put_message(stage.names.outcomes("r1"), b"{}", spoilt)
    await stage.settle()
    assert stage.letter().is_outcome
    assert stage.r1.leases == 1
    await agent.end(work, Reply())
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED


async def test_an_outcome_that_cannot_be_read_is_kept_and_never_replayed_as_a_task() -> None:
    stage = Stage()
    await stage.router()
    stage.broker.put_message(stage.names.outcomes("r1"), b"what is this", {"x-reach-outcome": "succeeded"})
    await stage.settle()
    letter = stage.letter()
    assert letter.reason is DeadLetterReason.INVALID
    assert letter.is_outcome
    assert letter.body == b"what is this"
