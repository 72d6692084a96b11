"""Trying again: how long it takes, where the task waits meanwhile, and who gets it."""

from collections import Counter

import pytest

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from tests.services.scripted import Reply, Work, always, succeed
from tests.services.stage import Stage, rules

NO_BREAKER = BreakerPolicy(streak=1000, rate_floor=None)
FAILED = Reply(OutcomeClass.FAILED)


async def test_a_retry_waits_on_the_rung_above_its_delay() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(base_s=60.0)))
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t1")
    await stage.settle()
    ((queue, count),) = stage.ready().items()
    assert count == 1
    (waiting,) = stage.broker.messages(f"{stage.names.prefix}.{queue}")
    delay_s = (waiting.headers["x-reach-not-before"] - stage.clock.utc_us()) / 1e6
    rung_s = int(queue.removeprefix("retry.")) / 1000
    assert 0 < delay_s <= rung_s
    await stage.pass_time(rung_s - 0.5)
    assert len(stage.dispatches("t1")) == 1
    await stage.pass_time(1.0)
    assert len(stage.dispatches("t1")) == 2


async def test_exactly_the_configured_attempts_then_a_dead_letter() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=2)))
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.FAILED, "no"))
    stage.publish("t1")
    await stage.pass_time(60)
    assert agent.ran == {"t1": 3}
    end = stage.end("t1")
    assert (end.state, end.reason) == (TaskState.DEAD_LETTER, DeadLetterReason.ATTEMPTS_EXHAUSTED)
    assert [row.attempt for row in stage.dispatches("t1")] == [1, 2, 3]
    assert stage.ready() == {"dlq": 1, "caller": 1}


async def test_a_retry_goes_to_another_agent_while_there_is_one() -> None:
    stage = Stage()
    await stage.router()
    bad = await stage.agent("a", script=always(OutcomeClass.FAILED), capability_cost=1)
    good = await stage.agent("b", script=succeed, capability_cost=5)
    for number in range(3):
        stage.publish(f"t{number}")
        await stage.pass_time(5)
    assert set(bad.ran.values()) | set(good.ran.values()) == {1}
    assert all(stage.answer(f"t{number}")["agent"] == "b" for number in range(3))


async def test_the_only_agent_gets_its_failed_task_again() -> None:
    stage = Stage()
    await stage.router()
    replies = [Reply(OutcomeClass.FAILED)]
    await stage.agent("a", script=lambda _: replies.pop() if replies else Reply())
    stage.publish("t1")
    await stage.pass_time(5)
    assert stage.answer("t1")["attempt"] == 2


async def test_one_that_rejected_it_never_gets_it_again() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.REJECTED, "not mine"))
    stage.publish("t1")
    await stage.pass_time(60)
    assert agent.ran["t1"] == 1
    assert [d.headers["x-reach-task"] for d in stage.broker.messages(stage.names.unmatched)] == ["t1"]
    answer = stage.answer("t1")
    assert (answer["status"], answer["final"]) == ("unmatched", False)


async def test_a_short_delay_is_not_held_up_by_a_long_one() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(base_s=60.0)))
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.FAILED), slots=20)
    for number in range(12):
        stage.publish(f"t{number}")
    await stage.settle()
    due = {name: count for name, count in stage.ready().items() if name.startswith("retry.")}
    assert len(due) > 1
    shortest = min(int(name.removeprefix("retry.")) for name in due) / 1000
    await stage.pass_time(shortest + 0.5)
    assert len(stage.dispatches("t0")) + sum(len(stage.dispatches(f"t{n}")) for n in range(1, 12)) > 12


async def test_a_wait_beyond_the_longest_rung_hops() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(base_s=1800.0, cap_s=1800.0)))
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t1")
    await stage.settle()
    (waiting,) = [queue for queue in stage.ready() if queue.startswith("retry.")]
    message = stage.broker.queues[f"{stage.names.prefix}.{waiting}"].take()
    assert message is not None
    later = {**message.content.headers, "x-reach-not-before": stage.clock.utc_us() + 3_000_000_000}
    stage.broker.put_message(f"{stage.names.prefix}.retry.1800000", message.content.body, later)
    stage.clock.advance(1800)
    await stage.settle()
    assert agent.ran["t1"] == 1
    assert stage.ready() == {"retry.1800000": 1}
    stage.clock.advance(1800)
    await stage.settle(rounds=10)
    assert agent.ran["t1"] == 2


async def test_no_attempt_that_could_not_end_before_the_deadline() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(base_s=60.0)))
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.FAILED, "no"))
    stage.publish("t1", deadline_ms=1_000)
    await stage.settle()
    letter = stage.letter()
    assert letter.reason is DeadLetterReason.EXPIRED
    assert "no time left" in letter.error


async def test_five_retries_all_arrive_and_no_rung_keeps_anything() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=5, base_s=2.0)), breaker=NO_BREAKER)
    await stage.router()
    fails: Counter[str] = Counter()

    def five_times(work: Work) -> Reply:
        fails[work.task_id] += 1
        return Reply(OutcomeClass.FAILED) if fails[work.task_id] <= 5 else Reply()

    await stage.agent("a", script=five_times, slots=5)
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.pass_time(200)
    assert [stage.answer(f"t{number}")["attempt"] for number in range(5)] == [6] * 5
    assert stage.ready() == {"caller": 5}


async def test_retries_and_new_work_both_flow() -> None:
    stage = Stage(breaker=NO_BREAKER, policies=rules(retry=RetryPolicy(budget_share=10)))
    await stage.router()
    await stage.agent(
        "a", slots=2, script=lambda work: always(OutcomeClass.FAILED)(work) if work.task_id < "n" else Reply()
    )
    for number in range(20):
        stage.publish(f"bad{number}")
    for number in range(10):
        stage.publish(f"new{number}")
        await stage.pass_time(2)
    await stage.pass_time(60)
    assert [stage.answer(f"new{number}")["status"] for number in range(10)] == ["succeeded"] * 10
    assert len(stage.letters()) == 20


async def test_a_retry_that_comes_back_late_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Rungs round up, so a little late is as it should be; a broker that forwards minutes later is not."""
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a", script=lambda work: Reply() if work.dispatch.envelope.attempts else FAILED)
    stage.publish("t1")
    await stage.settle()
    stage.kill(r1)
    await stage.pass_time(60)
    await stage.router()
    assert stage.answer("t1")["status"] == "succeeded"
    assert "task t1 comes back from its retry queue 6" in caplog.text


async def test_a_task_that_takes_longer_than_most_has_all_its_time_when_it_is_tried_again() -> None:
    stage = Stage()
    await stage.router()
    limits: list[int] = []

    def script(work: Work) -> Reply:
        if work.task_id != "long":
            return Reply(duration_ms=100.0)
        limits.append(work.dispatch.timeout_ms)
        return Reply(OutcomeClass.TIMEOUT if work.dispatch.timeout_ms < 5_000 else OutcomeClass.SUCCEEDED)

    await stage.agent("a", slots=10, script=script, capability_timeout_ms=60_000)
    for number in range(50):
        stage.publish(f"t{number}")
    await stage.pass_time(5)
    assert len(stage.answers()) == 50
    stage.publish("long")
    await stage.pass_time(10)
    assert limits == [2_000, 60_000]
    assert stage.answer("long")["status"] == "succeeded"
