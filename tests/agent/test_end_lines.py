"""What the agent's own log says of an attempt that did not succeed."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import pytest

from reach_worker import Agent, BadRequest, Context, Rejected, Unavailable
from reach_worker.core.announcement import cancel_key
from reach_worker.core.outcome import OutcomeClass
from tests.agent.bench import CAPABILITY, Bench, echo

Payload = Mapping[str, Any]


def deep(error: Exception) -> NoReturn:
    raise error


def raising(error: Exception, way: str) -> Agent:
    agent = echo()
    if way == "plain":

        @agent.capability(CAPABILITY)
        def plain(_: Payload) -> None:
            deep(error)

    else:

        @agent.capability(CAPABILITY)
        async def awaited(_: Payload) -> None:
            deep(error)

    return agent


async def logged(agent: Agent, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The lines of one attempt."""
    bench = Bench(agent)
    with caplog.at_level(logging.DEBUG, logger="reach_worker.agent.run"):
        async with bench.running():
            bench.dispatch("t1")
            await bench.outcome()
    return [record for record in caplog.records if record.name == "reach_worker.agent.run"]


@pytest.mark.parametrize("way", ["plain", "async"])
async def test_a_mistake_is_told_with_its_task_and_the_handlers_own_frames(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    (line,) = await logged(raising(ValueError("no such row"), way), caplog)
    assert line.levelno == logging.WARNING
    assert (
        line.message == f"failed in {CAPABILITY} (attempt 1 of task t1, flow flow-1): ValueError: no such row"
    )
    text = logging.Formatter().format(line)
    frames = [each.strip() for each in text.splitlines() if each.strip().startswith("File ")]
    assert len(frames) == 2
    assert all("test_end_lines.py" in frame for frame in frames)


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (Unavailable("the model is gone"), logging.WARNING),
        (Rejected("not mine"), logging.INFO),
        (BadRequest("no such city"), logging.INFO),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_handler_means_to_say_is_one_line(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    (line,) = await logged(raising(error, "async"), caplog)
    assert line.levelno == level
    assert line.message.endswith(f"(attempt 1 of task t1, flow flow-1): {error}")
    assert line.exc_info is None


async def test_a_success_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    agent = echo()
    agent.capability(CAPABILITY)(lambda _: "well")
    assert await logged(agent, caplog) == []


def endless(steps: list[int]) -> Callable[[Payload, Context], AsyncIterator[str]]:
    """A generator that looks at nothing but what its next word raises."""

    async def speak(_: Payload, context: Context) -> AsyncIterator[str]:
        while True:
            steps.append(1)
            yield "word"
            with suppress(TimeoutError):
                await asyncio.wait_for(context.wait_cancelled(), 0.01)

    return speak


async def test_a_generator_that_is_taken_back_leaves_no_error_behind() -> None:
    steps: list[int] = []
    agent = echo()
    agent.capability(CAPABILITY)(endless(steps))
    bench, unseen = Bench(agent), []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: unseen.append(what["message"]))
    async with bench.running():
        bench.dispatch("t1")
        await bench.until(lambda: len(steps) > 2)
        await bench.say(cancel_key("echo"), b"d-t1")
        assert (await bench.outcome()).outcome is OutcomeClass.CANCELLED
    gc.collect()
    assert unseen == []
