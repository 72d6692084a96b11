"""Time that only moves when nobody has anything to do."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import uvloop

from reach_worker.errors import BadInput
from reach_worker.testing import SteppedClock, VirtualTime, World
from tests.kit.agents import SHOUT, shouter

napping = asyncio.sleep  # noqa: TID251 - what is tested is that it goes by virtual time


@pytest.fixture
async def time() -> AsyncIterator[VirtualTime]:
    virtual = VirtualTime(SteppedClock())
    with virtual.installed():
        yield virtual


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World([shouter()]) as made:
        yield made


async def test_a_world_can_be_a_fixture(world: World) -> None:
    assert (await world.call(SHOUT, {"text": "x"})).succeeded


async def test_timers_fire_in_order_each_at_its_own_time(time: VirtualTime) -> None:
    seen: list[tuple[str, float]] = []
    began = time.clock.monotonic()

    def note(name: str) -> None:
        seen.append((name, round(time.clock.monotonic() - began, 6)))

    async def steps() -> None:
        for _ in range(3):
            await napping(2)
            note("loop")

    async with asyncio.TaskGroup() as group:
        group.create_task(steps())
        time.clock.call_at(began + 3, lambda: note("clock"))
        await time.advance(5)
        assert seen == [("loop", 2.0), ("clock", 3.0), ("loop", 4.0)]
        await time.advance(1)
        assert seen[-1] == ("loop", 6.0)


async def test_nothing_passes_while_somebody_has_something_to_do(time: VirtualTime) -> None:
    began = time.clock.monotonic()
    events = [asyncio.Event() for _ in range(200)]

    async def pass_on(number: int) -> None:
        await events[number].wait()
        events[number + 1].set()

    async with asyncio.TaskGroup() as group:
        for number in range(199):
            group.create_task(pass_on(number))
        events[0].set()
        await time.settle()
        assert events[-1].is_set()
        assert time.clock.monotonic() == began


async def test_until_goes_from_timer_to_timer_and_stops_where_it_holds(time: VirtualTime) -> None:
    began = time.clock.monotonic()
    async with asyncio.TaskGroup() as group:
        nap = group.create_task(napping(7))
        assert await time.until(nap.done, limit_s=100)
        assert time.clock.monotonic() - began == pytest.approx(7)
        assert not await time.until(lambda: False, limit_s=100)
        assert time.clock.monotonic() - began == pytest.approx(107)


async def test_a_time_limit_goes_by_it(time: VirtualTime) -> None:
    async def impatient() -> str:
        try:
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    async with asyncio.TaskGroup() as group:
        work = group.create_task(impatient())
        await time.advance(9.9)
        assert not work.done()
        await time.advance(0.2)
        assert work.result() == "timed out"


async def test_a_thread_gets_done_before_time_moves(time: VirtualTime) -> None:
    began = time.clock.monotonic()
    started = threading.Event()

    def work() -> float:
        started.set()
        return sum(range(100_000))

    async with asyncio.TaskGroup() as group:
        done = group.create_task(asyncio.to_thread(work))
        await time.settle()
        assert started.is_set()
        assert done.done()
        assert time.clock.monotonic() == began


async def test_a_thread_that_waits_for_time_does_not_stop_it(time: VirtualTime) -> None:
    let_go = threading.Event()
    async with asyncio.TaskGroup() as group:
        done = group.create_task(asyncio.to_thread(let_go.wait))
        asyncio.get_running_loop().call_later(50, let_go.set)
        assert await time.until(done.done, limit_s=100)


async def test_who_never_waits_does_not_stop_it(time: VirtualTime) -> None:
    async with asyncio.TaskGroup() as group:
        ends_at = time.clock.monotonic() + 20

        async def spin() -> None:
            while time.clock.monotonic() < ends_at:
                await napping(0)

        spinning = group.create_task(spin())
        waiting = [group.create_task(napping(seconds)) for seconds in (5, 10, 25)]
        assert await time.until(waiting[-1].done, limit_s=100)
        assert spinning.done()


async def test_many_may_move_it_at_once(time: VirtualTime) -> None:
    began = time.clock.monotonic()
    async with asyncio.TaskGroup() as group:
        naps = [group.create_task(napping(seconds)) for seconds in (5, 3, 8)]
        found = await asyncio.gather(*(time.until(nap.done, limit_s=20) for nap in naps))
    assert found == [True] * 3
    assert time.clock.monotonic() - began == pytest.approx(8)


def test_on_another_event_loop_it_says_so() -> None:
    async def within() -> None:
        async with World():
            raise AssertionError("unreachable")

    with pytest.raises(BadInput, match="virtual time does not work on uvloop"):
        uvloop.run(within())
