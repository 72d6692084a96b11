"""Calling agents from Python, with real processes on a real broker: async, plain, streamed, fetched later, cut off."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from yarl import URL

from reach_worker import CallTimeout, DeadLettered, ReachClient, TaskCancelled, UnknownTask, Unmatched
from reach_worker.calling.plain import PlainClient
from reach_worker.core.names import Names
from reach_worker.core.stream_reading import Chunk, Event, Rerouted, Result, Started
from reach_worker.testing.tcp_proxy import TcpProxy
from tests.bus.private_node import Node
from tests.system.conftest import fresh_prefix, fresh_processes
from tests.system.crew import runs
from tests.system.processes import Done, Processes, environment

pytestmark = [pytest.mark.broker, pytest.mark.system]

ECHO, HOLD, SPELL = "text.echo", "text.hold", "text.spell"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Place(NamedTuple):
    """Where a fleet is."""

    url: str
    prefix: str


@pytest.fixture(scope="module")
def place(fleet: Processes) -> Place:
    """A fleet that can also spell."""
    fleet.agent("tests.system.small_agents:speller")
    return Place(fleet.environment["REACH_AMQP_URL"], fleet.environment["REACH_BROKER__PREFIX"])


@pytest.fixture
async def reach(place: Place) -> AsyncIterator[ReachClient]:
    async with ReachClient(place.url, prefix=place.prefix, timeout=30) as reach:
        yield reach


@pytest.fixture
def plain(place: Place) -> Iterator[PlainClient]:
    with ReachClient.sync(place.url, prefix=place.prefix, timeout=30) as reach:
        yield reach


async def test_calls_of_every_kind(reach: ReachClient) -> None:
    assert await reach.call(ECHO, {"text": "hello"}) == {"text": "hello"}
    with pytest.raises(DeadLettered) as caught:
        await reach.call(ECHO, {"text": "refuse"})
    assert caught.value.reason == "bad_request"
    assert caught.value.attempts[-1].message == "that is no text I know"
    with pytest.raises(Unmatched, match=r"text\.ecco"):
        await reach.call("text.ecco", {})
    with pytest.raises(CallTimeout):
        await reach.call(HOLD, {"seconds": 15}, task_id="too-long", timeout=1, deadline=30)
    with pytest.raises(TaskCancelled):
        await reach.fetch("too-long")


async def test_many_calls_at_once(reach: ReachClient) -> None:
    texts = [str(number) for number in range(200)]
    results = await asyncio.gather(*(reach.call(ECHO, {"text": text}) for text in texts))
    assert [result["text"] for result in results] == texts
    mapped = reach.map(ECHO, ({"text": text} for text in texts))
    assert [result["text"] async for result in mapped] == texts


async def test_a_task_is_fetched_by_another_process(reach: ReachClient, fleet: Processes) -> None:
    handle = await reach.submit(ECHO, {"text": "for later"}, task_id="later-1")
    fetched = await asyncio.to_thread(fleet.reach, "fetch", "later-1")
    assert (fetched.status, orjson.loads(fetched.out)) == (0, {"text": "for later"})
    assert await handle.result() == {"text": "for later"}
    answer = await asyncio.to_thread(fleet.reach, "fetch", "later-1", "--now", "--json")
    assert answer.json()["status"] == "succeeded"
    with pytest.raises(UnknownTask):
        await reach.fetch("nobody's", timeout=0)
    nobody = await asyncio.to_thread(fleet.reach, "fetch", "nobody's", "--now")
    assert nobody.status == 1
    assert "no router knows it" in nobody.out


async def test_a_task_is_cancelled_from_elsewhere(reach: ReachClient, fleet: Processes) -> None:
    handle = await reach.submit(HOLD, {"seconds": 15}, task_id="cancel-1")
    running = await asyncio.to_thread(fleet.reach, "cancel", "cancel-1")
    assert running.status == 0, running.out
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=5)
    again = await asyncio.to_thread(fleet.reach, "cancel", "cancel-1", "--json")
    assert again.json() == {"task_id": "cancel-1", "cancelled": True, "state": "cancelled"}
    await (await reach.submit(ECHO, {"text": "x"}, task_id="done-1")).result()
    late = await asyncio.to_thread(fleet.reach, "cancel", "done-1")
    assert (late.status, late.out) == (1, "task done-1: not cancelled: it has ended, succeeded\n")


async def test_a_stream_marks_where_it_was_routed_again(reach: ReachClient) -> None:
    events: list[Event] = [event async for event in reach.stream(SPELL, {"text": "abc", "breaks": 1})]
    assert events[:-1] == [
        Started("speller", 1),
        Chunk("a", 0, "speller", 1),
        Chunk("b", 1, "speller", 1),
        Rerouted("speller", 2),
        Chunk("a", 0, "speller", 2),
        Chunk("b", 1, "speller", 2),
        Chunk("c", 2, "speller", 2),
    ]
    assert isinstance(events[-1], Result)
    assert (events[-1].value, events[-1].attempt) == ("abc", 2)


async def test_a_stream_that_is_left_is_cancelled_and_the_session_goes_on(reach: ReachClient) -> None:
    async with reach.stream(SPELL, {"text": "abc", "forever": True}, task_id="left-1") as events:
        async for event in events:
            if isinstance(event, Chunk) and event.seq == 5:
                break
    with pytest.raises(TaskCancelled):
        await reach.fetch("left-1", timeout=10)
    assert await reach.call(ECHO, {"text": "still here"}) == {"text": "still here"}


@pytest.mark.usefixtures("place")
def test_a_stream_at_the_command_line(fleet: Processes) -> None:
    def stream(capability: str, payload: dict[str, object], *more: str) -> Done:
        return fleet.reach("publish", capability, orjson.dumps(payload).decode(), "--stream", *more)

    spelt = stream(SPELL, {"text": "abc", "breaks": 1}, "--task-id", "shell-1")
    assert (spelt.status, spelt.out) == (0, "ab\nabc\n")
    assert spelt.err.splitlines() == [
        "agent speller, attempt 1",
        "begun anew: agent speller, attempt 2; what came before is worth nothing",
        "task shell-1 succeeded: agent speller, attempt 2",
    ]
    told = stream(SPELL, {"text": "ab"}, "--json").json_lines()
    assert [one["status"] for one in told] == ["started", "streaming", "streaming", "succeeded"]
    assert [one.get("chunk") for one in told] == [None, "a", "b", None]
    assert told[-1]["result"] == "ab"
    refused = stream(ECHO, {"text": "refuse"}, "--task-id", "shell-2")
    assert refused.status == 1
    assert refused.out == "task shell-2 dead_letter, bad_request: that is no text I know\n"
    broken = stream(SPELL, {"text": "abc", "breaks": 9}, "--task-id", "shell-5")
    assert broken.status == 1
    assert broken.out.startswith("ab\n" * 4 + "task shell-5 dead_letter, attempts_exhausted: ")
    late = stream(HOLD, {"seconds": 15}, "--timeout", "500ms", "--task-id", "shell-3", "--deadline", "30s")
    assert (late.status, late.out) == (1, "task shell-3: no answer within 0.5 s; it is cancelled\n")


async def test_ctrl_c_ends_a_stream_at_the_command_line_and_its_task(
    reach: ReachClient, fleet: Processes
) -> None:
    payload = '{"text": "abc", "forever": true}'
    running = fleet.start("publish", SPELL, payload, "--stream", "--lines", "--task-id", "shell-4")
    await asyncio.to_thread(running.wait_for, "agent speller, attempt 1")
    running.signal(signal.SIGINT)
    assert await asyncio.to_thread(running.wait_end) == 130
    with pytest.raises(TaskCancelled):
        await reach.fetch("shell-4", timeout=10)


async def test_a_trace_goes_along_through_every_retry(
    reach: ReachClient, fleet: Processes, channel: BlockingChannel
) -> None:
    with pytest.raises(DeadLettered) as caught:
        await reach.call(ECHO, {"text": "raise"}, task_id="traced-1", traceparent=TRACE)
    assert len(caught.value.attempts) == 4
    dlq = Names(fleet.environment["REACH_BROKER__PREFIX"]).dlq
    headers: dict[str, object] = {}
    while headers.get("x-reach-task") != "traced-1":
        frame, properties, _ = channel.basic_get(dlq)
        assert frame is not None, "the dead letter is not there"
        headers = properties.headers
    assert headers["traceparent"] == TRACE


# ---- Without an event loop


def test_the_plain_client_does_the_same(plain: PlainClient) -> None:
    assert plain.call(ECHO, {"text": "hello"}) == {"text": "hello"}
    with pytest.raises(DeadLettered, match="no text I know"):
        plain.call(ECHO, {"text": "refuse"})
    handle = plain.submit(ECHO, {"text": "soon"})
    assert handle.result() == plain.fetch(handle.task_id) == {"text": "soon"}
    assert plain.answer(handle.task_id)["agent"] == "quick"
    held = plain.submit(HOLD, {"seconds": 15})
    assert held.cancel()
    with pytest.raises(TaskCancelled):
        held.result()
    found = plain.find(held.task_id)
    assert found is not None
    assert found.state == "cancelled"
    chunks = [event.value for event in plain.stream(SPELL, {"text": "abc"}) if isinstance(event, Chunk)]
    assert chunks == ["a", "b", "c"]
    texts = ["1", "refuse", "3"]
    results = list(plain.map(ECHO, ({"text": text} for text in texts), return_exceptions=True))
    assert results[0::2] == [{"text": "1"}, {"text": "3"}]
    assert isinstance(results[1], DeadLettered)


def test_leaving_a_plain_stream_early_cancels_it(plain: PlainClient) -> None:
    for event in plain.stream(SPELL, {"text": "abc", "forever": True}, task_id="left-2"):
        if isinstance(event, Chunk):
            break
    with pytest.raises(TaskCancelled):
        plain.fetch("left-2", timeout=10)


def test_a_plain_stream_that_is_left_open_ends_with_its_client(plain: PlainClient, place: Place) -> None:
    with ReachClient.sync(place.url, prefix=place.prefix) as reach:
        events = reach.stream(SPELL, {"text": "abc", "forever": True}, task_id="left-3")
        assert next(events) == Started("speller", 1)
    with pytest.raises(TaskCancelled):
        plain.fetch("left-3", timeout=10)
    del events  # nothing is said of it any more


async def test_it_works_inside_a_loop_that_is_running_as_in_a_notebook(place: Place) -> None:
    with ReachClient.sync(place.url, prefix=place.prefix) as reach:
        assert reach.call(ECHO, {"text": "from a cell"}) == {"text": "from a cell"}


def test_it_may_be_used_by_many_threads_and_closing_it_joins_its_own(place: Place) -> None:
    results: list[str] = []
    with ReachClient.sync(place.url, prefix=place.prefix) as reach:
        threads = [
            threading.Thread(target=lambda n=n: results.append(reach.call(ECHO, {"text": str(n)})["text"]))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results, key=int) == [str(number) for number in range(20)]
    assert "reach client" not in {thread.name for thread in threading.enumerate()}


def test_ctrl_c_in_the_middle_of_a_call_cancels_its_task(
    plain: PlainClient, place: Place, tmp_path: Path
) -> None:
    script = tmp_path / "calls.py"
    script.write_text(
        "import sys\n"
        "from reach_worker import ReachClient\n"
        "with ReachClient.sync(sys.argv[1], prefix=sys.argv[2]) as reach:\n"
        "    reach.call('text.hold', {'seconds': 15}, task_id='interrupted-1')\n"
    )
    program = [sys.executable, str(script), place.url, place.prefix]
    with subprocess.Popen(program, env=environment(), stderr=subprocess.PIPE) as process:
        while (found := plain.find("interrupted-1")) is None or not found.known:
            assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith(b"KeyboardInterrupt")
    with pytest.raises(TaskCancelled):
        plain.fetch("interrupted-1", timeout=10)


# ---- The connection


async def test_a_hundred_calls_outlive_a_connection_that_is_cut_again_and_again(
    place: Place,
) -> None:
    target = URL(place.url)
    async with TcpProxy(target.host or "", target.port or 5672) as proxy:
        url = str(target.with_port(proxy.url_port).with_host("127.0.0.1"))
        async with ReachClient(url, prefix=place.prefix, timeout=60) as reach:
            calling = asyncio.gather(*(reach.call(HOLD, {"seconds": 0.05, "n": n}) for n in range(100)))
            for _ in range(3):
                before = proxy.accepted
                await proxy.until(lambda proxy: proxy.open >= 2)
                await proxy.cut()
                await proxy.until(lambda proxy, before=before: proxy.accepted >= before + 2)  # type: ignore[misc]
            assert await calling == [{"held": True}] * 100


@pytest.mark.timeout(240)
async def test_a_hundred_calls_outlive_a_restart_of_the_broker(node: Node, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with fresh_prefix(node.url) as prefix, fresh_processes(node.url, prefix, tmp_path) as processes:
        for name in ("one", "two"):
            processes.agent(f"tests.system.crew:{name}", CREW_NOTES=str(notes))
        processes.router()
        async with ReachClient(node.url, prefix=prefix, timeout=120) as reach:
            ids = [f"t{number}" for number in range(100)]
            calling = asyncio.gather(
                *(
                    reach.call("crew.once", {"echo": each, "hold": 0.1}, task_id=each, side_effects=True)
                    if int(each[1:]) % 2
                    else reach.call("crew.work", {"echo": each, "hold": 0.1}, task_id=each)
                    for each in ids
                ),
                return_exceptions=True,
            )
            first = reach.fetch("t0")
            await first
            await asyncio.to_thread(node.stop)
            await asyncio.to_thread(node.start)
            results = await calling
    missing = [each for each in results if isinstance(each, BaseException)]
    assert not [each for each in missing if not isinstance(each, DeadLettered)], missing
    assert {each.reason for each in missing if isinstance(each, DeadLettered)} <= {"outcome_unknown"}
    assert {count for task_id, count in runs(notes).items() if int(task_id[1:]) % 2} == {1}
