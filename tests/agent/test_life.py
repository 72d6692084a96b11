"""What an agent opens before its first task and closes after its last."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reach_worker import Agent, Context
from reach_worker.agent.cancel_signal import CancelSignal
from reach_worker.agent.life import Life
from reach_worker.core.outcome import OutcomeClass
from reach_worker.errors import BadInput, StartupFailed
from tests.agent.bench import CAPABILITY, LIMIT_S, Bench, echo


def recording(agent: Agent, seen: list[str]) -> None:
    """A lifespan and two hooks on either side, async and plain."""

    @agent.lifespan
    async def pool(of: Agent) -> AsyncIterator[dict[str, str]]:
        seen.append(f"open for {of.id}")
        yield {"pool": "of connections"}
        seen.append("closed")

    @agent.on_startup
    async def first() -> None:
        seen.append("first")

    @agent.on_startup
    def second(of: Agent) -> None:
        seen.append(f"second {of is agent} {threading.current_thread() is threading.main_thread()}")

    @agent.on_shutdown
    def early() -> None:
        seen.append("registered early")

    @agent.on_shutdown
    async def late(_: Agent) -> None:
        seen.append("registered late")


BEFORE = ["open for echo", "first", "second True False"]
AFTER = ["registered late", "registered early", "closed"]


@pytest.mark.parametrize("plain", [True, False])
async def test_handlers_have_what_the_lifespan_yields_and_all_is_closed_after_the_drain(plain: bool) -> None:
    agent, seen = echo(), list[str]()
    recording(agent, seen)

    def handler(_: Any, context: Context) -> Any:
        seen.append("task")
        return context.resources

    async def async_handler(payload: Any, context: Context) -> Any:
        return handler(payload, context)

    agent.capability(CAPABILITY)(handler if plain else async_handler)
    bench = Bench(agent)
    async with bench.running():
        bench.dispatch("t1")
        outcome, delivery = await bench.told()
        assert seen == [*BEFORE, "task"]
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert delivery.body == b'{"pool":"of connections"}'
    assert seen == [*BEFORE, "task", *AFTER]


async def test_a_run_that_ends_badly_is_cleaned_up_after() -> None:
    agent, seen = echo(), list[str]()
    recording(agent, seen)
    with pytest.raises(RuntimeError, match="no more"):
        async with agent.life.lived(asyncio.Event()):
            raise RuntimeError("no more")
    assert seen == [*BEFORE, *AFTER]


@asynccontextmanager
async def from_outside() -> AsyncIterator[int]:
    yield 5


async def generator(_: Agent) -> AsyncIterator[int]:
    yield 6


@pytest.mark.parametrize(("lifespan", "resources"), [(from_outside, 5), (from_outside(), 5), (generator, 6)])
async def test_forms_of_a_lifespan(lifespan: Callable[..., Any], resources: int) -> None:
    async with Agent("a", lifespan=lifespan).life.lived(asyncio.Event()) as alive:
        assert alive is not None
        assert alive.resources == resources


async def test_an_agent_without_any_of_it() -> None:
    async with echo().life.lived(asyncio.Event()) as alive:
        assert alive is not None
        assert alive.resources is None


# ---- When it does not open


async def test_a_start_up_that_fails_ends_the_worker_before_it_says_that_it_is_there() -> None:
    agent, seen = echo(), list[str]()
    recording(agent, seen)
    agent.capability(CAPABILITY)(lambda payload: payload)

    @agent.on_startup
    def third() -> None:
        raise ConnectionError("no database")

    bench = Bench(agent)
    async with bench.router.running(), bench.bus.running():
        with pytest.raises(StartupFailed) as caught:
            await bench.worker.run()
        assert await bench.beats() == []
    place = f"{Path(__file__)}:{third.__code__.co_firstlineno + 2}"
    assert str(caught.value) == f"{place}: the start-up failed in third: ConnectionError: no database"
    assert seen == [*BEFORE, *AFTER]


def leaves() -> int:
    raise SystemExit(3)


async def fails_at_once() -> AsyncIterator[int]:
    yield leaves()


@pytest.mark.parametrize(
    ("lifespan", "error", "words"),
    [
        (fails_at_once, StartupFailed, "the start-up failed in fails_at_once: SystemExit: 3"),
        (lambda: 5, BadInput, "the lifespan <lambda> gives 'int' (an async generator that yields once, or"),
        (lambda: iter(()), BadInput, "the lifespan <lambda> gives 'tuple_iterator'"),
    ],
)
async def test_a_lifespan_that_does_not_open(lifespan: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        async with Agent("a", lifespan=lifespan).life.lived(asyncio.Event()):
            raise AssertionError("it must not get here")
    assert words in str(caught.value)


def test_a_second_lifespan_and_one_that_never_yields() -> None:
    async def never() -> None: ...

    with pytest.raises(BadInput, match="one lifespan"):
        Agent("a", lifespan=generator).lifespan(from_outside)
    with pytest.raises(BadInput, match=r"the lifespan never never yields \(write `yield resources`"):
        Agent("a", lifespan=never)


async def test_a_stop_while_it_opens_is_heeded_and_what_was_open_is_closed() -> None:
    agent, seen, stop = echo(), list[str](), asyncio.Event()
    recording(agent, seen)

    @agent.on_startup
    async def long() -> None:
        stop.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(LIMIT_S), agent.life.lived(stop) as alive:
        assert alive is None
    assert seen == [*BEFORE, *AFTER]


# ---- When it does not close


async def test_what_fails_or_hangs_when_closing_keeps_nothing_else_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    life, seen, never = Life(None), list[str](), threading.Event()

    async def last() -> None:
        seen.append("last")

    async def fails() -> None:
        raise ValueError("cannot close")

    async def hangs() -> None:
        await asyncio.Event().wait()

    def hangs_in_its_thread() -> None:
        never.wait(LIMIT_S)

    life.shutdowns += [last, fails, hangs, hangs_in_its_thread]
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(LIMIT_S), life.lived(asyncio.Event(), closing_s=0.2):
            pass
    never.set()
    assert seen == ["last"]
    assert [record.message.split(" is not done")[0] for record in caplog.records] == [
        "the shutdown of hangs_in_its_thread",
        "the shutdown of hangs",
        "the shutdown of fails failed: ValueError",
    ]


# ---- Stopping a handler


async def test_an_async_handler_can_wait_for_the_cancel() -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    async def patient(_: Any, context: Context) -> str:
        await context.wait_cancelled()
        await context.wait_cancelled()
        return "stopped by itself"

    bench = Bench(agent)
    async with bench.running():
        bench.dispatch("t1", timeout_ms=200)
        outcome, delivery = await bench.told()
    assert (outcome.outcome, delivery.body) == (OutcomeClass.SUCCEEDED, b'"stopped by itself"')


async def test_the_cancel_reaches_a_coroutine_from_another_thread() -> None:
    signal = CancelSignal()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        waiting = [group.create_task(signal.wait_async()) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.01)
        waiting[0].cancel()
        await asyncio.to_thread(signal.set)
    assert [each.cancelled() for each in waiting] == [True, False, False]
