"""Tasks that are ended with their connection."""

import asyncio
from contextlib import suppress

from reach_worker.bus.calls import cancelled_for_good

LIMIT_S = 10.0


async def test_a_task_that_forgets_its_cancellation_is_cancelled_again() -> None:
    cancelled, begun = 0, asyncio.Event()

    async def forgetful() -> None:
        nonlocal cancelled
        begun.set()
        while cancelled < 2:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            cancelled += 1
        await asyncio.Event().wait()

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(forgetful())
        await begun.wait()
        await cancelled_for_good(task)
    assert task.cancelled()
    assert cancelled == 2


async def test_one_that_is_over_is_left_as_it_is() -> None:
    async def done() -> str:
        return "done"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(done())
        await asyncio.wait({task})
        await cancelled_for_good(task)
    assert task.result() == "done"
