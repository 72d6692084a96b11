"""A run that lasts longer than the broker leaves a delivery alone: a lease stands in for it, and it runs once."""

from typing import Any

import pytest

from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.dispatch import DOUBTS, LEASE, dispatch_from
from reach_worker.core.long_run import LEASE_S
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import OutcomeClass
from reach_worker.testing import Fate, Moment
from tests.agent.bench import Bench
from tests.agent.test_worker import Gate, gated

CONSUMER_TIMEOUT_S = 40.0
HALF_S = CONSUMER_TIMEOUT_S / 2
POLICY = WorkerPolicy(grace_s=60.0, consumer_timeout_s=CONSUMER_TIMEOUT_S)


def at_work(slots: int = 1) -> tuple[Bench, Gate]:
    bench, gate = gated(slots)
    return Bench(bench.agent, POLICY), gate


def leases(bench: Bench) -> list[Delivery]:
    return bench.broker.messages(bench.names.retry(int(LEASE_S * 1000)))


async def running(bench: Bench, gate: Gate, *task_ids: str, **fields: Any) -> None:
    """These run, and none of them has done so for half the time."""
    for task_id in task_ids:
        bench.dispatch(task_id, timeout_ms=600_000, **fields)
    await bench.until(lambda: gate.running == 1)
    bench.clock.advance(1.5)
    await bench.turned()
    await bench.until(lambda: gate.running == len(task_ids))


async def test_half_the_time_is_over_and_a_copy_is_parked_before_the_original_is_acknowledged() -> None:
    bench, gate = at_work()
    async with bench.running():
        await running(bench, gate, "t1")
        bench.clock.advance(HALF_S - 3)
        await bench.turned()
        assert not leases(bench)
        assert bench.bus.unacked == 1
        bench.clock.advance(3)
        await bench.turned()
        (lease,) = leases(bench)
        assert bench.bus.unacked == 0
        gate.open.set()
        outcome, delivery = await bench.told()
    parked_then_acknowledged = [("publish", lease.routing_key), ("ack", bench.queue)]
    assert [
        step for step in bench.bus.journal if step in parked_then_acknowledged
    ] == parked_then_acknowledged
    assert (lease.headers[LEASE], lease.headers[DOUBTS]) == ("i1", 0)
    assert dispatch_from(lease.headers) == dispatch_from(delivery.headers)
    assert lease.body == b'{"capability":"text.echo","payload":{},"metadata":{"k":"v"}}'
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert not {LEASE, DOUBTS} & delivery.headers.keys()


async def test_one_copy_is_enough_however_long_it_runs() -> None:
    bench, gate = at_work()
    async with bench.running():
        await running(bench, gate, "t1")
        for _ in range(6):
            bench.clock.advance(HALF_S)
            await bench.turned()
        assert bench.bus.journal.count(("publish", bench.names.retry(int(LEASE_S * 1000)))) == 1
        gate.open.set()
        await bench.outcome()
    assert gate.ran == {"t1": 1}


async def test_all_that_run_are_parked_in_their_time() -> None:
    bench, gate = at_work(slots=3)
    async with bench.running():
        await running(bench, gate, "t1", "t2", "t3")
        bench.clock.advance(HALF_S)
        await bench.turned()
        assert len(leases(bench)) == 3
        assert bench.bus.unacked == 0
        gate.open.set()
        assert {(await bench.outcome()).task_id for _ in range(3)} == {"t1", "t2", "t3"}


async def test_a_lease_takes_a_slot_all_the_same() -> None:
    """Its delivery is acknowledged, but the broker is to send no more than there are slots for."""
    bench, gate = at_work(slots=2)
    async with bench.running():
        await running(bench, gate, "t1", "t2")
        bench.clock.advance(HALF_S)
        await bench.turned()
        assert bench.bus.unacked == 0
        bench.clock.advance(1.5)
        await bench.turned()
        for number in range(3, 6):
            bench.dispatch(f"t{number}")
        await bench.turned()
        assert gate.running == 2
        assert bench.bus.unacked <= 2
        gate.open.set()
        assert {(await bench.outcome()).task_id for _ in range(5)} == {f"t{number}" for number in range(1, 6)}
    assert set(gate.ran.values()) == {1}


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNROUTABLE, Fate.LOST, Fate.STORED])
async def test_what_could_not_be_parked_is_not_acknowledged_and_parked_later(fate: Fate) -> None:
    bench, gate = at_work()
    async with bench.running():
        await running(bench, gate, "t1")
        bench.bus.fail_next(fate, to="retry")
        bench.clock.advance(HALF_S)
        await bench.turned()
        assert bench.waiting + bench.bus.unacked == (0 if fate in (Fate.REFUSED, Fate.UNROUTABLE) else 1)
        bench.clock.advance(HALF_S - 6)  # what was parked all the same is on its rung still
        await bench.turned()
        bench.clock.advance(6)
        await bench.turned()
        assert bench.bus.unacked == 0
        gate.open.set()
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
        await bench.until(lambda: bench.waiting == 0 and bench.bus.unacked == 0)
    assert gate.ran == {"t1": 1}


async def test_a_session_that_ends_over_the_acknowledgement_costs_nothing() -> None:
    bench, gate = at_work()
    async with bench.running():
        await running(bench, gate, "t1")
        bench.bus.once(Moment.BEFORE_ACK, bench.bus.end_session)
        bench.clock.advance(HALF_S)
        await bench.until(lambda: bench.bus.sessions == 2)
        await bench.turned()
        await bench.until(lambda: bench.bus.unacked == 0 and bench.waiting == 0)
        gate.open.set()
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
    assert len(leases(bench)) == 1
    assert gate.ran == {"t1": 1}


async def test_what_waits_for_a_slot_goes_back_unrun_before_it_is_taken_away() -> None:
    bench, gate = at_work()
    async with bench.running():
        await running(bench, gate, "t1")
        await bench.bus.want("work", wanted=False)
        await bench.bus.set_prefetch("work", 5)
        await bench.bus.want("work", wanted=True)
        bench.dispatch("t2")
        await bench.until(lambda: bench.bus.unacked == 2)
        await bench.turned()
        bench.clock.advance(HALF_S)
        await bench.turned()
        outcome = await bench.outcome()
        assert (outcome.task_id, outcome.outcome, outcome.started) == ("t2", OutcomeClass.RELEASED, False)
        await bench.until(lambda: bench.bus.unacked == 0)
        gate.open.set()
        assert (await bench.outcome()).task_id == "t1"
    assert gate.ran == {"t1": 1}


async def test_what_waits_for_a_slot_is_not_begun_once_it_is_too_late() -> None:
    """Its router has given it up by then, and sent it elsewhere."""
    bench, gate = gated()
    async with bench.running():
        await running(bench, gate, "t1")
        await bench.bus.want("work", wanted=False)
        await bench.bus.set_prefetch("work", 5)
        await bench.bus.want("work", wanted=True)
        bench.dispatch("t2", start_by=bench.clock.utc_us() + 5_000_000)
        await bench.until(lambda: bench.bus.unacked == 2)
        bench.clock.advance(6)
        bench.bus.inbox.arrived.set()
        outcome = await bench.outcome()
        gate.open.set()
        await bench.outcome()
    assert (outcome.task_id, outcome.outcome) == ("t2", OutcomeClass.RELEASED)
    assert gate.ran == {"t1": 1}


async def test_it_is_listed_until_the_broker_has_its_outcome() -> None:
    """Who does not find it listed may conclude that its outcome is in its owner's queue."""
    bench, gate = at_work()
    async with bench.running():
        await running(bench, gate, "t1")
        bench.clock.advance(HALF_S)
        await bench.turned()
        bench.bus.fail_next(*[Fate.REFUSED] * 2, to="outcomes")
        gate.open.set()
        await bench.until(lambda: gate.running == 0)
        while (await bench.beat()).completed == 0:
            bench.clock.advance(0.1)
            bench.bus.inbox.arrived.set()
            await bench.say("who")
        await bench.say("who")
        assert (await bench.beat()).running == ("d-t1",)
        bench.clock.advance(1.0)
        await bench.outcome()
        await bench.say("who")
        while (await bench.beat()).running:
            await bench.say("who")


async def test_it_is_kept_while_the_worker_stops() -> None:
    """Its grace is longer than the broker's patience: it beats, it parks, it finishes, and leaves nothing behind."""
    bench, gate = at_work()
    async with bench.running():
        await running(bench, gate, "t1")
        bench.worker.stop_asked.set()
        await bench.turned()
        bench.clock.advance(HALF_S)
        await bench.turned()
        assert len(leases(bench)) == 1
        assert bench.bus.unacked == 0
        for _ in range(5):
            bench.clock.advance(3.0)
            await bench.turned()
        beats = await bench.beats()
        assert [beat.running for beat in beats[-5:]] == [("d-t1",)] * 5
        assert all(beat.stopping for beat in beats[-5:])
        said = bench.bus.journal.count(("publish", "presence.echo"))
        gate.open.set()
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
        await bench.until(lambda: bench.bus.journal.count(("publish", "presence.echo")) == said + 1)
        last = (await bench.beats())[-1]
    assert (last.stopping, last.running) == (True, ())
    assert gate.ran == {"t1": 1}
    assert bench.waiting == 0
