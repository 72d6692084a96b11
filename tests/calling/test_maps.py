"""The same call for many payloads: a few at once, in order, and the input is not run away with."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any

import orjson
import pytest

from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.task_errors import DeadLettered
from reach_worker.errors import BadInput
from tests.bus.until import until
from tests.calling.scene import CAPABILITY, scene
from tests.services.scripted import Reply, Work


def number(work: Work) -> int:
    """What the payload says."""
    value: int = orjson.loads(work.delivery.body)["payload"]["n"]
    return value


def echo(work: Work) -> Reply:
    return Reply(result=b"%d" % number(work))


def but_three(work: Work) -> Reply:
    return Reply(OutcomeClass.BAD_REQUEST, "not three") if number(work) == 3 else echo(work)


def payloads(count: int) -> Iterator[dict[str, Any]]:
    return ({"n": each} for each in range(count))


async def extend(results: list[Any], more: AsyncIterable[Any]) -> None:
    """Keep what comes before an error, too."""
    async for each in more:
        results.append(each)  # noqa: PERF401 - a comprehension that ends with an error gives nothing


async def test_results_are_in_order_whatever_order_they_come_in() -> None:
    async with scene() as at, asyncio.TaskGroup() as group:

        async def collect() -> list[Any]:
            return [each async for each in at.reach.map(CAPABILITY, payloads(6), concurrency=6)]

        collecting = group.create_task(collect())
        for work in sorted(await at.held(6), key=number, reverse=True):
            await at.agent.end(work, echo(work))
        assert await collecting == list(range(6))


async def test_no_more_run_at_once_and_no_more_is_taken_from_the_input_than_is_wanted() -> None:
    async with scene() as at:
        taken = 0

        def source() -> Iterator[dict[str, Any]]:
            nonlocal taken
            for each in payloads(100):
                taken += 1
                yield each

        async with at.reach.map(CAPABILITY, source(), concurrency=4) as results, asyncio.TaskGroup() as group:
            first = group.create_task(anext(results))
            works = sorted(await at.held(4), key=number)
            for work in works[1:]:
                await at.agent.end(work, echo(work))
            await at.stage.settle()
            assert (taken, len(at.agent.held)) == (4, 1)
            await at.agent.end(works[0], echo(works[0]))
            assert await first == 0
            assert taken <= 5


async def test_the_input_may_come_slowly_and_what_is_done_is_given_meanwhile() -> None:
    async with scene(echo) as at:
        more = asyncio.Event()

        async def source() -> AsyncIterator[dict[str, Any]]:
            yield {"n": 1}
            await more.wait()
            yield {"n": 2}

        results = at.reach.map(CAPABILITY, source())
        assert await anext(results) == 1
        more.set()
        assert [each async for each in results] == [2]


async def test_the_first_error_is_raised_in_its_place_and_the_rest_is_cancelled() -> None:
    async with scene(lambda work: None if number(work) >= 3 else echo(work)) as at:
        results: list[Any] = []
        collecting = asyncio.gather(
            extend(results, at.reach.map(CAPABILITY, payloads(10), concurrency=10)), return_exceptions=True
        )
        three, *others = sorted(await at.held(7), key=number)
        await at.agent.end(three, but_three(three))
        (error,) = await collecting
        assert isinstance(error, DeadLettered)
        assert results == [0, 1, 2]
        await until(lambda: set(at.stage.r1.desk.hands.cancel_requests) == {work.task_id for work in others})


async def test_or_it_stands_among_the_results() -> None:
    async with scene(but_three) as at:
        results = [each async for each in at.reach.map(CAPABILITY, payloads(5), return_exceptions=True)]
        assert isinstance(results[3], DeadLettered)
        assert results[:3] + results[4:] == [0, 1, 2, 4]


async def test_an_input_that_breaks_is_raised_as_it_is() -> None:
    async with scene(echo) as at:

        def source() -> Iterator[dict[str, Any]]:
            yield {"n": 1}
            raise RuntimeError("the file is damaged")

        results: list[Any] = []
        with pytest.raises(RuntimeError, match="the file is damaged"):
            await extend(results, at.reach.map(CAPABILITY, source(), return_exceptions=True, concurrency=1))
        assert results == [1]
        assert await at.reach.call(CAPABILITY, {"n": 7}) == 7


async def test_leaving_early_cancels_what_is_under_way() -> None:
    async with scene() as at:
        async with at.reach.map(CAPABILITY, payloads(100), concurrency=5) as results:
            async with asyncio.TaskGroup() as group:
                first = group.create_task(anext(results))
                zero, *others = sorted(await at.held(5), key=number)
                await at.agent.end(zero, echo(zero))
            assert first.result() == 0
        await until(lambda: set(at.stage.r1.desk.hands.cancel_requests) >= {work.task_id for work in others})
        assert len(others) == 4


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"task_id": "t1"}])
async def test_what_makes_no_sense_is_said(wrong: dict[str, Any]) -> None:
    async with scene() as at:
        with pytest.raises(BadInput):
            [each async for each in at.reach.map(CAPABILITY, payloads(1), **wrong)]


async def test_nothing_comes_of_nothing() -> None:
    async with scene() as at:
        assert [each async for each in at.reach.map(CAPABILITY, [])] == []
