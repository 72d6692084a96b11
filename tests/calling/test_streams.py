"""Hearing an agent while it works: in order, marked where somebody else goes on, and never more than is read."""

import asyncio

import pytest

from reach_worker.calling.streaming import PREFETCH
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.stream_reading import Chunk, ChunksLost, Event, Progress, Rerouted, Result, Started
from reach_worker.core.task_errors import CallTimeout, ConnectionLost, DeadLettered
from tests.bus.until import until
from tests.calling.scene import CAPABILITY, Scene, chunks, scene, speaker
from tests.services.scripted import Reply, succeed


def mailboxes(at: Scene) -> list[str]:
    """The queues of streams."""
    return [name for name in at.stage.broker.queues if ".stream-" in name]


async def test_events_come_in_order_and_the_result_last() -> None:
    async with scene() as at:
        events: list[Event] = []

        async def listen() -> None:
            events.extend([event async for event in at.reach.stream(CAPABILITY, {})])

        async with asyncio.TaskGroup() as group:
            group.create_task(listen())
            (work,) = await at.held()
            for body in [*chunks(work, "a", {"b": 1}), speaker(work).progress(0.5, "half")]:
                assert at.say(work, body)
            await at.agent.end(work, Reply(result=b'"a b"'))
        assert events[:-1] == [
            Started("ann", 1),
            Chunk("a", 0, "ann", 1),
            Chunk({"b": 1}, 1, "ann", 1),
            Progress(0.5, "half", "ann", 1),
        ]
        match events[-1]:
            case Result("a b", "ann", 1, answer):
                assert answer["status"] == "succeeded"
            case other:
                raise AssertionError(other)
        await until(lambda: not mailboxes(at))
        assert not at.stage.r1.desk.hands.cancel_requests


async def test_an_agent_that_says_nothing_has_a_stream_that_is_only_its_result() -> None:
    async with scene(succeed) as at:
        events = [event async for event in at.reach.stream(CAPABILITY, {})]
        assert [type(event) for event in events] == [Result]


async def test_a_second_attempt_is_marked_and_the_first_is_heard_no_more() -> None:
    async with scene() as at:
        stream = at.reach.stream(CAPABILITY, {}, task_id="t1")
        async with asyncio.TaskGroup() as group:
            first_two = group.create_task(_take(stream, 2))
            (first,) = await at.held()
            for body in chunks(first, "old"):
                at.say(first, body)
            assert await first_two == [Started("ann", 1), Chunk("old", 0, "ann", 1)]
            await at.agent.end(first, Reply(OutcomeClass.FAILED, "it broke"))
            rest = group.create_task(_take(stream, 3))
            (second,) = await at.held()
            at.say(second, chunks(second, "new")[0])
            at.say(first, speaker(first, attempt=1).chunk(1, b'"of a ghost"'))
            at.say(second, chunks(second, "new")[1])
            await at.agent.end(second)
        assert rest.result()[:2] == [Rerouted("ann", 2), Chunk("new", 0, "ann", 2)]
        assert isinstance(rest.result()[2], Result)


async def _take(stream: object, count: int) -> list[Event]:
    return [await anext(stream) for _ in range(count)]  # type: ignore[call-overload]


async def test_a_slow_reader_holds_a_few_messages_and_holds_up_nobody() -> None:
    async with scene() as at:
        stream = at.reach.stream(CAPABILITY, {})
        async with asyncio.TaskGroup() as group:
            first = group.create_task(anext(stream))
            (work,) = await at.held()
            for body in chunks(work, *range(1000)):
                at.say(work, body)
            assert await first == Started("ann", 1)
            await at.agent.end(work)
            answers = [group.create_task(at.reach.call(CAPABILITY, {})) for _ in range(20)]
            for each in await at.held(20):
                await at.agent.end(each)
        assert [each.result() for each in answers] == [{"said": "done"}] * 20
        assert at.bus.unacked <= PREFETCH
        (mailbox,) = mailboxes(at)
        assert len(at.stage.broker.messages(mailbox)) >= 1000 - PREFETCH
        rest = [event async for event in stream]
        assert [event.value for event in rest if isinstance(event, Chunk)] == list(range(1000))
        assert isinstance(rest[-1], Result)


async def test_whoever_reads_too_late_is_told_what_the_broker_dropped() -> None:
    async with scene() as at:
        stream = at.reach.stream(CAPABILITY, {})
        async with asyncio.TaskGroup() as group:
            first = group.create_task(anext(stream))
            (work,) = await at.held()
            for body in chunks(work, *range(12_000)):
                at.say(work, body)
            await first
        await at.agent.end(work)
        rest = [event async for event in stream]
        lost = [event.missing or 0 for event in rest if isinstance(event, ChunksLost)]
        seqs = [event.seq for event in rest if isinstance(event, Chunk)]
        assert sum(lost) + len(seqs) == 12_000
        assert len(lost) == 1
        assert seqs[-1] == 11_999


@pytest.mark.parametrize("how", ["break", "with"])
async def test_leaving_early_cancels_the_task_and_leaves_no_queue(how: str) -> None:
    async with scene() as at, asyncio.TaskGroup() as group:

        async def first_chunk() -> object:
            if how == "with":
                async with at.reach.stream(CAPABILITY, {}, task_id="t1") as events:
                    async for event in events:
                        return event
            async for event in at.reach.stream(CAPABILITY, {}, task_id="t1"):
                return event
            return None

        reading = group.create_task(first_chunk())
        (work,) = await at.held()
        at.say(work, chunks(work, "a")[0])
        assert await reading == Started("ann", 1)
        await until(lambda: "t1" in at.stage.r1.desk.hands.cancel_requests)
        await until(lambda: not mailboxes(at))


async def test_a_stream_that_is_left_open_is_cancelled_with_its_client() -> None:
    async with scene() as at:
        assert at.reach._line is not None  # noqa: SLF001 - closed here while a stream is open
        async with asyncio.TaskGroup() as group:
            stream = at.reach.stream(CAPABILITY, {}, task_id="t1")
            first = group.create_task(anext(stream))
            (work,) = await at.held()
            at.say(work, chunks(work, "a")[0])
            await first
        await at.reach._line.close()  # noqa: SLF001 - as above
        await until(lambda: "t1" in at.stage.r1.desk.hands.cancel_requests)
        with pytest.raises(ConnectionLost):
            await anext(stream)


async def test_a_failure_is_raised_after_what_was_said() -> None:
    async with scene() as at, asyncio.TaskGroup() as group:
        events: list[Event] = []

        async def listen() -> None:
            async for event in at.reach.stream(CAPABILITY, {}):
                events.append(event)  # noqa: PERF401 - what came before the error

        listening = group.create_task(_raised(listen()))
        (work,) = await at.held()
        for body in chunks(work, "a"):
            at.say(work, body)
        await at.agent.end(work, Reply(OutcomeClass.BAD_REQUEST, "no"))
        assert isinstance(await listening, DeadLettered)
        assert events == [Started("ann", 1), Chunk("a", 0, "ann", 1)]


async def _raised(work: object) -> object:
    (outcome,) = await asyncio.gather(work, return_exceptions=True)  # type: ignore[call-overload]
    return outcome


async def test_a_stream_that_takes_too_long_is_cancelled() -> None:
    async with scene() as at:
        with pytest.raises(CallTimeout):
            [event async for event in at.reach.stream(CAPABILITY, {}, task_id="t1", timeout=0.3)]
        await until(lambda: "t1" in at.stage.r1.desk.hands.cancel_requests)


async def test_a_lost_connection_is_told_and_the_result_comes_all_the_same() -> None:
    async with scene() as at:
        stream = at.reach.stream(CAPABILITY, {})
        async with asyncio.TaskGroup() as group:
            begun = group.create_task(_take(stream, 2))
            (work,) = await at.held()
            for body in chunks(work, "a"):
                at.say(work, body)
            await begun
            at.bus.end_session()
            rest = group.create_task(_take(stream, 2))
            await until(lambda: not at.say(work, b"{}"))
            await at.agent.end(work)
        assert rest.result()[0] == ChunksLost(None)
        assert isinstance(rest.result()[1], Result)
        assert at.runs() == 1
