"""The worker: what it says, what it takes, how much of it runs at once, what it makes of what comes again."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from reach_worker import Agent, Context
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.announcement import WHO, cancel_key
from reach_worker.core.message import Message
from reach_worker.core.outcome import OutcomeClass
from reach_worker.testing import Fate, Moment
from tests.agent.bench import CAPABILITY, LIMIT_S, Bench, echo, kinds

Payload = Mapping[str, Any]


class Gate:
    """A handler that waits until it is let through."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.ran: Counter[str] = Counter()
        self.running = 0
        self.most = 0
        self.entered = asyncio.Event()

    async def __call__(self, payload: Payload, context: Context) -> dict[str, Any]:
        self.ran[context.task_id] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.entered.set()
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return {"task": context.task_id, **payload}


def gated(slots: int = 1) -> tuple[Bench, Gate]:
    agent, gate = echo(slots), Gate()

    @agent.capability(CAPABILITY)
    async def wait(payload: Payload, context: Context) -> dict[str, Any]:
        return await gate(payload, context)

    return Bench(agent), gate


async def test_heartbeat_then_manifest_then_consume() -> None:
    bench, _ = gated()
    async with bench.running():
        await bench.until(lambda: ("consume", "work") in bench.bus.journal)
    said = [step for step in bench.bus.journal if step[1] in ("presence.echo", "manifest.echo", "work")]
    assert said[:3] == [
        ("publish", "presence.echo"),
        ("publish", "manifest.echo"),
        ("consume", "work"),
    ]


async def test_a_dispatch_is_run_and_its_outcome_comes_before_its_acknowledgement() -> None:
    bench, gate = gated()
    gate.open.set()
    async with bench.running():
        bench.dispatch("t1", payload={"text": "hi"})
        outcome, delivery = await bench.told()
        await bench.until(lambda: bench.bus.unacked == 0)
    assert (outcome.outcome, outcome.task_id, outcome.agent_id, outcome.instance_id) == (
        OutcomeClass.SUCCEEDED,
        "t1",
        "echo",
        "i1",
    )
    assert outcome.started
    assert delivery.body == b'{"task":"t1","text":"hi"}'
    assert delivery.correlation_id == "d-t1"
    sent_then_acknowledged = [("publish", bench.names.outcomes("r1")), ("ack", bench.queue)]
    assert [step for step in bench.bus.journal if step in sent_then_acknowledged] == sent_then_acknowledged


async def test_an_outcome_that_is_no_success_carries_the_whole_task() -> None:
    agent = echo()

    @agent.capability("text.fail")
    async def fail(_: Payload) -> None:
        raise ValueError("no")

    bench = Bench(agent)
    async with bench.running():
        sent = bench.dispatch("t1", "text.fail", {"text": "hi"})
        outcome, delivery = await bench.told()
    assert outcome.outcome is OutcomeClass.FAILED
    assert delivery.body == b'{"capability":"text.fail","payload":{"text":"hi"},"metadata":{"k":"v"}}'
    assert {**sent.headers(), **delivery.headers} == delivery.headers


async def test_it_beats_while_a_plain_function_runs_in_its_thread() -> None:
    agent, go, entered = echo(), threading.Event(), threading.Event()

    @agent.capability(CAPABILITY)
    def block(_: Payload) -> str:
        entered.set()
        go.wait(LIMIT_S)
        return threading.current_thread().name

    bench = Bench(agent)
    async with bench.running():
        await bench.beat()
        bench.dispatch("t1", timeout_ms=60_000)
        await bench.until(entered.is_set)
        for _ in range(3):
            bench.clock.advance(3.0)
            assert (await bench.beat()).running == ("d-t1",)
        go.set()
        outcome, delivery = await bench.told()
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert b"handler" in delivery.body


async def test_never_more_at_once_than_it_declares() -> None:
    bench, gate = gated(slots=3)
    async with bench.running():
        for number in range(10):
            bench.dispatch(f"t{number}")
        await bench.until(lambda: gate.running == 1)
        bench.clock.advance(1.5)
        await bench.until(lambda: gate.running == 3)
        assert bench.bus.unacked <= 4
        gate.open.set()
        outcomes = [await bench.outcome() for _ in range(10)]
    assert gate.most == 3
    assert {outcome.task_id for outcome in outcomes} == {f"t{number}" for number in range(10)}
    assert set(gate.ran.values()) == {1}


async def test_one_long_task_does_not_keep_the_other_slots_of_a_new_session_idle() -> None:
    bench, gate = gated(slots=2)
    async with bench.running():
        bench.dispatch("t1")
        bench.dispatch("t2")
        await bench.until(lambda: gate.running == 1)
        bench.clock.advance(1.5)
        await bench.until(lambda: gate.running == 2)
        gate.open.set()
        assert kinds(await bench.outcome(), await bench.outcome()) == [OutcomeClass.SUCCEEDED] * 2


async def test_who_is_there_is_answered_with_heartbeat_and_manifest() -> None:
    bench, _ = gated()
    async with bench.running():
        await bench.beat()
        before = bench.bus.journal.count(("publish", "manifest.echo"))
        await bench.say(WHO)
        assert (await bench.beat()).agent_id == "echo"
        await bench.until(lambda: bench.bus.journal.count(("publish", "manifest.echo")) == before + 1)


async def test_a_probe_is_answered_with_a_heartbeat() -> None:
    bench, _ = gated()
    async with bench.running():
        mailbox = (await bench.beat()).mailbox
        await bench.router.publish([Message(mailbox, b"")])
        assert (await bench.beat()).mailbox == mailbox


async def test_an_unknown_capability_is_rejected() -> None:
    bench, gate = gated()
    async with bench.running():
        bench.dispatch("t1", "text.other")
        outcome = await bench.outcome()
    assert outcome.outcome is OutcomeClass.REJECTED
    assert "only for text.echo" in outcome.message
    assert not outcome.started
    assert not gate.ran


async def test_one_that_came_too_late_is_released() -> None:
    bench, gate = gated()
    async with bench.running():
        bench.dispatch("t1", start_by=bench.clock.utc_us() - 1)
        outcome = await bench.outcome()
    assert (outcome.outcome, outcome.started) == (OutcomeClass.RELEASED, False)
    assert not gate.ran


async def test_a_body_that_is_no_task_is_a_bad_request() -> None:
    bench, gate = gated()
    gate.open.set()
    async with bench.running():
        dispatch = bench.dispatch("t1", start_by=0)
        await bench.outcome()
        headers = {**dispatch.headers(), "x-reach-dispatch": "other"}
        bench.broker.put_message(bench.queue, b"{", headers)
        outcome, delivery = await bench.told()
    assert outcome.outcome is OutcomeClass.BAD_REQUEST
    assert delivery.body == b"{"


@pytest.mark.parametrize("headers", [{}, {"x-reach-task": "t"}, {"x-reach-task": 5, "x-reach-attempts": "{"}])
async def test_junk_in_its_queue_goes_to_the_routers(headers: dict[str, Any]) -> None:
    bench, gate = gated()
    gate.open.set()
    async with bench.running():
        bench.broker.put_message(bench.queue, b"junk", headers)
        bench.dispatch("t1")
        assert (await bench.outcome()).task_id == "t1"
        await bench.until(lambda: bench.bus.unacked == 0)
    (junk,) = bench.broker.messages(bench.names.returns)
    assert junk.body == b"junk"


# ---- What comes again


async def test_the_same_dispatch_twice_is_run_once() -> None:
    bench, gate = gated(slots=2)
    async with bench.running():
        bench.dispatch("t1")
        await bench.until(lambda: gate.running == 1)
        bench.dispatch("t1")
        bench.clock.advance(1.5)
        await bench.until(lambda: bench.waiting == 0)
        gate.open.set()
        await bench.outcome()
        bench.dispatch("t1")
        await bench.until(lambda: bench.waiting == 0 and bench.bus.unacked <= 1)
    assert gate.ran["t1"] == 1
    assert not bench.router.inbox.take("outcomes")


async def test_a_session_that_ends_while_it_runs_costs_nothing() -> None:
    bench, gate = gated(slots=2)
    async with bench.running():
        bench.dispatch("t1")
        await bench.until(lambda: gate.running == 1)
        bench.bus.end_session()
        await bench.until(lambda: bench.bus.unacked == 1)
        gate.open.set()
        outcome = await bench.outcome()
        await bench.until(lambda: bench.bus.unacked == 0)
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert gate.ran["t1"] == 1
    assert bench.waiting == 0
    assert not bench.router.inbox.take("outcomes")


async def test_what_waited_for_a_slot_when_the_session_ended_runs_once() -> None:
    bench, gate = gated(slots=2)
    async with bench.running():
        bench.dispatch("t0")
        await bench.until(lambda: gate.running == 1)
        bench.clock.advance(1.5)
        for number in range(1, 5):
            bench.dispatch(f"t{number}")
        await bench.until(lambda: gate.running == 2)
        await bench.bus.set_prefetch("work", 10)
        await bench.bus.want("work", wanted=False)
        await bench.bus.want("work", wanted=True)
        await bench.until(lambda: bench.waiting == 0)
        for _ in range(3):
            bench.bus.end_session()
            await bench.until(lambda: bench.bus.unacked >= 1)
        gate.open.set()
        outcomes = [await bench.outcome() for _ in range(5)]
        await bench.until(lambda: bench.bus.unacked == 0 and bench.waiting == 0)
    assert {outcome.task_id for outcome in outcomes} == {f"t{number}" for number in range(5)}
    assert gate.ran["t0"] == 1
    assert set(gate.ran.values()) == {1}
    assert not bench.router.inbox.take("outcomes")


async def test_the_outcome_goes_out_in_the_new_session_if_the_old_one_ended_over_it() -> None:
    bench, gate = gated()
    async with bench.running():
        bench.dispatch("t1")
        await bench.until(lambda: gate.running == 1)
        bench.bus.once(Moment.BEFORE_PUBLISH, bench.bus.end_session)
        gate.open.set()
        await bench.until(lambda: bench.bus.sessions == 2)
        bench.clock.advance(0.5)
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
        await bench.until(lambda: bench.bus.unacked == 0)
    assert gate.ran["t1"] == 1


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.LOST, Fate.STORED])
async def test_an_outcome_that_may_not_have_arrived_is_sent_again(fate: Fate) -> None:
    bench, gate = gated()
    gate.open.set()
    async with bench.running():
        bench.bus.fail_next(fate, to="outcomes")
        bench.dispatch("t1")
        await bench.until(lambda: bench.bus.journal.count(("publish", bench.names.outcomes("r1"))) == 1)
        bench.clock.advance(0.5)
        await bench.until(lambda: bench.bus.journal.count(("publish", bench.names.outcomes("r1"))) == 2)
        bench.clock.advance(0.5)
        outcome = await bench.outcome()
        await bench.until(lambda: bench.bus.unacked == 0 and bench.waiting == 0)
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert gate.ran["t1"] == 1


async def test_an_outcome_without_its_owners_queue_goes_to_returns() -> None:
    bench, gate = gated()
    gate.open.set()
    bench.broker.delete_queue(bench.names.outcomes("r1"))
    async with bench.running():
        bench.router.disconnect()
        bench.broker.delete_queue(bench.names.outcomes("r1"))
        bench.dispatch("t1")
        await bench.until(lambda: bench.bus.journal.count(("publish", bench.names.outcomes("r1"))) == 1)
        bench.clock.advance(0.5)
        await bench.until(lambda: bool(bench.broker.messages(bench.names.returns)))
        await bench.until(lambda: bench.bus.unacked == 0)
        bench.router.connect()
    (delivery,) = bench.broker.messages(bench.names.returns)
    assert bench.read(delivery).outcome is OutcomeClass.SUCCEEDED


def delivered_before(bench: Bench, times: int = 1) -> None:
    """The oldest dispatch in the queue was delivered so often, and not acknowledged."""
    for _ in range(times):
        taken = bench.broker.queues[bench.queue].take()
        assert taken is not None
        bench.broker.put_back(bench.queue, taken)


async def test_one_that_was_delivered_before_runs_alone_and_nothing_is_taken_beside_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, gate = gated(slots=4)
    for number in range(4):
        bench.dispatch(f"t{number}")
    delivered_before(bench)
    async with bench.running():
        assert (await bench.beat()).capacity == 4
        assert await bench.note() == "d-t0"
        await bench.until(lambda: gate.running == 1)
        bench.clock.advance(3.0)
        assert (await bench.beat()).capacity == 1
        await bench.turned()
        assert (gate.running, bench.bus.unacked, bench.waiting) == (1, 1, 3)
        gate.open.set()
        outcomes = [await bench.outcome() for _ in range(4)]
    assert outcomes[0].task_id == "t0"
    assert "task t0 was in a process that died: it runs alone" in caplog.text
    assert kinds(*outcomes) == [OutcomeClass.SUCCEEDED] * 4


async def test_the_second_redelivery_is_not_run_again() -> None:
    bench, gate = gated()
    bench.dispatch("t1")
    delivered_before(bench, 2)
    async with bench.running():
        outcome, delivery = await bench.told()
    assert (outcome.outcome, outcome.crashed, outcome.started) == (OutcomeClass.UNAVAILABLE, True, False)
    assert not gate.ran
    assert delivery.headers["x-reach-crashes"] == 1


async def test_one_that_runs_alone_from_the_start_gets_no_second_chance_to_kill() -> None:
    bench, gate = gated()
    bench.dispatch("t1", crashes=1)
    delivered_before(bench)
    async with bench.running():
        outcome = await bench.outcome()
    assert (outcome.outcome, outcome.crashed) == (OutcomeClass.UNAVAILABLE, True)
    assert not gate.ran


async def test_what_goes_back_unrun_after_a_redelivery_stays_under_suspicion() -> None:
    bench, _ = gated()
    bench.dispatch("t1", start_by=bench.clock.utc_us() - 1)
    delivered_before(bench)
    async with bench.running():
        outcome, delivery = await bench.told()
    assert outcome.outcome is OutcomeClass.RELEASED
    assert delivery.headers["x-reach-crashes"] == 1


# ---- Side effects


async def test_it_says_that_it_begins_before_it_begins() -> None:
    bench, gate = gated()
    async with bench.running():
        bench.dispatch("t1", side_effects=True)
        assert await bench.note() == "d-t1"
        await bench.until(lambda: gate.running == 1)
        gate.open.set()
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNROUTABLE, Fate.LOST])
async def test_where_it_cannot_say_so_it_does_not_begin(fate: Fate) -> None:
    bench, gate = gated()
    async with bench.running():
        bench.bus.fail_next(fate, to="outcomes")
        bench.dispatch("t1", side_effects=True)
        await bench.until(lambda: ("publish", bench.names.outcomes("r1")) in bench.bus.journal)
        bench.clock.advance(0.5)
        outcome = await bench.outcome()
    assert (outcome.outcome, outcome.started) == (OutcomeClass.RELEASED, False)
    assert not gate.ran


async def test_one_that_is_taken_back_before_the_broker_has_its_start_does_not_begin() -> None:
    bench, gate = gated()
    bench.broker.faults.slow_confirm("outcomes", 2.0)
    async with bench.running():
        bench.dispatch("t1", side_effects=True)
        assert await bench.note() == "d-t1"
        await bench.say(cancel_key("echo"), b"d-t1")
        await bench.turned()
        bench.clock.advance(2.0)
        outcome = await bench.outcome()
    assert (outcome.outcome, outcome.started) == (OutcomeClass.CANCELLED, False)
    assert not gate.ran


async def test_what_is_handed_back_before_the_broker_has_its_start_does_not_begin_after_that() -> None:
    bench, gate = gated()
    bench.broker.faults.slow_confirm("outcomes", 9.0)
    async with bench.running():
        bench.dispatch("t1", side_effects=True)
        assert await bench.note() == "d-t1"
    outcome = await_now(bench)
    assert (outcome.outcome, outcome.started) == (OutcomeClass.RELEASED, False)
    assert not gate.ran


async def test_one_with_side_effects_is_never_run_on_a_redelivery() -> None:
    bench, gate = gated()
    bench.dispatch("t1", side_effects=True)
    delivered_before(bench)
    async with bench.running():
        outcome = await bench.outcome()
    assert (outcome.outcome, outcome.crashed) == (OutcomeClass.UNAVAILABLE, True)
    assert not gate.ran


# ---- Cancels, stopping


async def test_a_cancel_takes_back_what_runs() -> None:
    bench, gate = gated()
    async with bench.running():
        bench.dispatch("t1")
        await bench.until(lambda: gate.running == 1)
        await bench.say(cancel_key("echo"), b"another")
        await bench.say(cancel_key("echo"), b"d-t1")
        outcome = await bench.outcome()
        await bench.until(lambda: gate.running == 0)
    assert outcome.outcome is OutcomeClass.CANCELLED


async def test_a_cancel_takes_back_what_waits_too() -> None:
    bench, gate = gated()
    async with bench.running():
        bench.dispatch("t1")
        await bench.until(lambda: gate.running == 1)
        await bench.bus.want("work", wanted=False)
        await bench.bus.set_prefetch("work", 5)
        await bench.bus.want("work", wanted=True)
        bench.dispatch("t2")
        await bench.until(lambda: bench.bus.unacked == 2)
        await bench.say(cancel_key("echo"), b"d-t2")
        outcome = await bench.outcome()
        gate.open.set()
        await bench.outcome()
    assert (outcome.task_id, outcome.outcome, outcome.started) == ("t2", OutcomeClass.CANCELLED, False)
    assert gate.ran == {"t1": 1}


async def test_stopping_finishes_what_runs_and_hands_back_the_rest() -> None:
    bench, gate = gated()
    async with bench.running():
        bench.dispatch("t1")
        await bench.until(lambda: gate.running == 1)
        await bench.bus.want("work", wanted=False)
        await bench.bus.set_prefetch("work", 5)
        await bench.bus.want("work", wanted=True)
        bench.dispatch("t2")
        await bench.until(lambda: bench.bus.unacked == 2)
        bench.worker.stop_asked.set()
        bench.bus.inbox.arrived.set()
        released = await bench.outcome()
        gate.open.set()
        done = await bench.outcome()
    assert (released.task_id, released.outcome, released.started) == ("t2", OutcomeClass.RELEASED, False)
    assert (done.task_id, done.outcome) == ("t1", OutcomeClass.SUCCEEDED)
    assert bench.waiting == 0
    assert ("stop", "work") in bench.bus.journal


async def test_what_runs_longer_than_the_grace_period_is_handed_back() -> None:
    bench, gate = gated()
    async with bench.running():
        bench.dispatch("t1")
        await bench.until(lambda: gate.running == 1)
    outcome = await_now(bench)
    assert (outcome.outcome, outcome.started) == (OutcomeClass.RELEASED, True)
    assert outcome.duration_ms is not None
    assert gate.running == 0
    assert bench.waiting == 0


def await_now(bench: Bench) -> Any:
    """The one outcome that is in the owner's queue."""
    (delivery,) = bench.broker.messages(bench.names.outcomes("r1"))
    return bench.read(delivery)


async def test_it_says_goodbye() -> None:
    bench, _ = gated()
    beats = []
    async with bench.running():
        beats.append(await bench.beat())
        bench.worker.stop_asked.set()
        bench.bus.inbox.arrived.set()
        beats.append(await bench.beat())
    assert [beat.stopping for beat in beats] == [False, True]


async def test_a_broker_that_is_away_does_not_keep_it_from_stopping() -> None:
    bench, gate = gated()
    gate.open.set()
    async with bench.running():
        bench.bus.disconnect()
    assert bench.worker.stop_asked.is_set()


async def test_a_new_session_is_introduced_with_the_next_heartbeat() -> None:
    bench, _ = gated()
    async with bench.running():
        first = await bench.beat()
        bench.bus.end_session()
        bench.clock.advance(3.0)
        second = await bench.beat()
        await bench.until(lambda: bench.bus.journal.count(("publish", "manifest.echo")) == 2)
    assert first.mailbox != second.mailbox


async def test_its_slots_are_in_its_heartbeat() -> None:
    bench = Bench(gated(slots=7)[0].agent, WorkerPolicy(heartbeat_s=1.0))
    async with bench.running():
        beat = await bench.beat()
        assert (beat.capacity, beat.running, beat.manifest_hash) == (7, (), bench.worker.manifest.hash)
        assert Agent("x", capabilities=[]).handlers == {}


# ---- A mistake of ours


class Mistaken(logging.Filter):
    """Stands for a mistake anywhere between a handler's end and its outcome."""

    def filter(self, _: logging.LogRecord) -> bool:
        raise RuntimeError("a mistake of ours")


async def test_a_mistake_of_ours_ends_the_worker_and_the_task_stays_in_the_queue() -> None:
    agent, mistaken = echo(), Mistaken()

    @agent.capability(CAPABILITY)
    async def fail(_: Payload) -> None:
        raise ValueError("no")

    bench, seen = Bench(agent), []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: seen.append(about["exception"]))
    logger = logging.getLogger("reach_worker.agent.run")
    logger.addFilter(mistaken)
    try:
        async with bench.bus.running(), asyncio.timeout(LIMIT_S):
            bench.dispatch("t1")
            with pytest.raises(ExceptionGroup) as raised:
                await bench.worker.run()
    finally:
        logger.removeFilter(mistaken)
    assert [str(error) for error in (*raised.value.exceptions, *seen)] == ["a mistake of ours"] * 2
    assert bench.waiting == 1
