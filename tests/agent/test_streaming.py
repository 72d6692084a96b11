"""What an attempt says while it runs: in order, to who asked for it, bounded, and before its outcome."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import orjson
import pytest

from reach_worker import Agent, Cancelled, Context
from reach_worker.agent.voice import Speech, Voice
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.announcement import cancel_key, go_key
from reach_worker.core.dispatch import OUTCOME, SPOKE_NOTE, Dispatch
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.streaming import StreamPolicy
from reach_worker.core.task import Task
from reach_worker.ports import Sent
from reach_worker.testing import Fate
from tests.agent.bench import CAPABILITY, LIMIT_S, Bench, echo

CALLER = "my-answers"
ASKED: dict[str, Any] = {"reply_to": CALLER, "task": {"stream": True}}

Payload = Mapping[str, Any]


def bench_of(agent: Agent, **streaming: Any) -> Bench:
    bench = Bench(agent, WorkerPolicy(grace_s=5.0, streaming=StreamPolicy(**streaming)))
    bench.broker.declare_private(CALLER)
    return bench


def heard(bench: Bench) -> list[dict[str, Any]]:
    """What has come to the caller, each with the essential fields."""
    said = [orjson.loads(delivery.body) for delivery in bench.broker.messages(CALLER)]
    return [{k: v for k, v in one.items() if k not in ("task_id", "flow_id", "run", "final")} for one in said]


def chunks(bench: Bench) -> list[Any]:
    return [one["chunk"] for one in heard(bench) if one["status"] == "streaming"]


def later(bench: Bench, seconds: float) -> bool:
    """Let some time pass."""
    bench.clock.advance(seconds)
    return True


def saying(*words: str) -> Agent:
    agent = echo()

    @agent.capability(CAPABILITY)
    async def say(_: Payload, context: Context) -> str:
        for word in words:
            await context.stream(word)
        return "done"

    return agent


async def test_chunks_come_in_order_with_who_says_them_before_the_outcome() -> None:
    bench = bench_of(saying("a", "b"))
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
        who = {"agent": "echo", "attempt": 1}
        assert heard(bench) == [
            {"status": "started", **who},
            {"status": "streaming", "seq": 0, "chunk": "a", **who},
            {"status": "streaming", "seq": 1, "chunk": "b", **who},
        ]
        (first, *_) = bench.broker.messages(CALLER)
        assert first.correlation_id == "mark"
        assert orjson.loads(first.body)["final"] is False


@pytest.mark.parametrize(
    "asked", [{"reply_to": CALLER}, {"task": {"stream": True}}], ids=["no wish", "no queue"]
)
async def test_who_did_not_ask_hears_nothing(asked: dict[str, Any]) -> None:
    bench = bench_of(saying("a"))
    async with bench.running():
        bench.dispatch("t1", **asked)
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
        assert heard(bench) == []


async def test_a_plain_function_streams_from_its_thread() -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    def say(_: Payload, context: Context) -> str:
        for word in ("a", "b", "c"):
            context.stream(word)
        context.progress(0.5, "half")
        return "done"

    bench = bench_of(agent)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
        assert chunks(bench) == ["a", "b", "c"]
        assert heard(bench)[-1] | {"progress": 0.5, "note": "half"} == heard(bench)[-1]


@pytest.mark.parametrize("way", ["plain", "async"])
@pytest.mark.parametrize(("words", "result"), [(["a", "b"], "ab"), (["a", {"n": 1}], ["a", {"n": 1}])])
async def test_a_generator_streams_what_it_yields(way: str, words: list[Any], result: Any) -> None:
    agent = echo()

    def plain(_: Payload) -> Iterator[Any]:
        yield from words

    async def asynchronous(_: Payload) -> AsyncIterator[Any]:
        for word in words:
            yield word

    agent.capability(CAPABILITY)(plain if way == "plain" else asynchronous)
    bench = bench_of(agent)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        outcome, delivery = await bench.told()
        assert outcome.outcome is OutcomeClass.SUCCEEDED
        assert orjson.loads(delivery.body) == result
        assert chunks(bench) == words


async def test_what_a_plain_generator_returns_is_its_result() -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    def say(_: Payload) -> Iterator[str]:
        yield "working"
        return {"answer": 42}  # type: ignore[return-value]

    bench = bench_of(agent)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        _, delivery = await bench.told()
        assert orjson.loads(delivery.body) == {"answer": 42}


@pytest.mark.parametrize(
    ("chunk", "words"),
    [(object(), "a chunk must be JSON"), ("x" * 2000, "a chunk has 2002 bytes, the limit is 1024")],
)
async def test_a_chunk_that_cannot_be_sent_says_why(chunk: object, words: str) -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    async def say(_: Payload, context: Context) -> None:
        await context.stream(chunk)

    bench = bench_of(agent, chunk_bytes=1024)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        outcome = await bench.outcome()
        assert outcome.outcome is OutcomeClass.FAILED
        assert words in outcome.message


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"max_chunks": 3}, "streaming.max_chunks"), ({"max_bytes": 1024, "chunk_bytes": 1024}, "max_bytes")],
)
async def test_an_endless_speaker_is_stopped(limits: dict[str, int], words: str) -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    async def say(_: Payload, context: Context) -> None:
        while True:
            await context.stream("x" * 100)

    bench = bench_of(agent, **limits)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        outcome = await bench.outcome()
        assert outcome.outcome is OutcomeClass.FAILED
        assert words in outcome.message


async def test_what_the_broker_did_not_take_is_sent_again_in_order() -> None:
    bench = bench_of(saying("a", "b", "c", "d"))
    bench.bus.fail_next(Fate.CONFIRMED, Fate.CONFIRMED, Fate.REFUSED, Fate.CONFIRMED, to=CALLER)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        await bench.until(lambda: later(bench, 0.1) and len(heard(bench)) >= 5)
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
        in_order = [one["seq"] for one in heard(bench) if "seq" in one]
        taken = [seq for at, seq in enumerate(in_order) if seq not in in_order[:at]]
        following = 0
        for seq in in_order:  # a reader takes those that are next, and leaves the others
            following += seq == following
        assert following == 4, in_order
        assert sorted(taken) == [0, 1, 2, 3]


async def test_the_outcome_tells_how_many_there_were_also_where_some_were_given_up() -> None:
    bench = bench_of(saying("a", "b"), flush_s=0.01)
    bench.bus.fail_next(Fate.CONFIRMED, Fate.CONFIRMED, *[Fate.REFUSED] * 100, to=CALLER)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        outcome = await bench.outcome()
        assert chunks(bench) == ["a"]
        assert (outcome.outcome, outcome.chunks) == (OutcomeClass.SUCCEEDED, 2)
        bench.dispatch("t2")
        assert (await bench.outcome()).chunks == 0


async def test_a_caller_who_has_gone_stops_nothing() -> None:
    bench = bench_of(saying("a", "b", "c"))
    bench.broker.delete_queue(CALLER)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED


async def test_a_handler_waits_while_too_much_is_unsent() -> None:
    agent, said = echo(), []

    @agent.capability(CAPABILITY)
    async def say(_: Payload, context: Context) -> None:
        for number in range(1000):
            await context.stream(number)
            said.append(number)

    bench = bench_of(agent, ahead=10)
    bench.bus.fail_next(*[Fate.REFUSED] * 2000, to=CALLER)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        await bench.until(lambda: len(said) >= 9)
        await bench.turned()
        assert len(said) < 12
        await bench.say(cancel_key("echo"), b"d-t1")
        assert (await bench.outcome()).outcome is OutcomeClass.CANCELLED


async def test_a_cancelled_attempt_says_no_more() -> None:
    agent, met = echo(), []

    @agent.capability(CAPABILITY)
    def say(_: Payload, context: Context) -> None:
        context.stream("first")
        context.cancelled.wait(LIMIT_S)
        try:
            context.stream("second")
        except Cancelled:
            met.append("cancelled")
            raise

    bench = bench_of(agent)
    async with bench.running():
        bench.dispatch("t1", **ASKED)
        await bench.until(lambda: chunks(bench) == ["first"])
        await bench.say(cancel_key("echo"), b"d-t1")
        assert (await bench.outcome()).outcome is OutcomeClass.CANCELLED
        assert met == ["cancelled"]
        assert chunks(bench) == ["first"]


async def test_what_an_attempt_has_cost_travels_with_its_outcome() -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    async def spend(_: Payload, context: Context) -> None:
        context.charge(0.25, tokens_in=10)
        context.charge(0.5, tokens_out=7)
        raise RuntimeError("and failed")

    bench = bench_of(agent)
    async with bench.running():
        bench.dispatch("t1")
        outcome = await bench.outcome()
        assert outcome.outcome is OutcomeClass.FAILED
        assert (outcome.cost, outcome.tokens_in, outcome.tokens_out) == (0.75, 10, 7)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
async def test_a_cost_that_is_none_fails_the_attempt(wrong: float) -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    async def spend(_: Payload, context: Context) -> None:
        context.charge(wrong)

    bench = bench_of(agent)
    async with bench.running():
        bench.dispatch("t1")
        outcome = await bench.outcome()
        assert (outcome.outcome, outcome.cost) == (OutcomeClass.FAILED, 0.0)


# -- races


async def spoke(bench: Bench) -> str:
    """The dispatch that says it has its first chunk."""
    delivery = await bench._next("outcomes")  # noqa: SLF001 - the bench's own way
    assert delivery.headers[OUTCOME] == SPOKE_NOTE
    return str(delivery.headers["x-reach-dispatch"])


async def test_in_a_race_nothing_reaches_the_caller_before_it_is_won() -> None:
    bench = bench_of(saying("a", "b"))
    async with bench.running():
        bench.dispatch("t1", race=True, **ASKED)
        assert await spoke(bench) == "d-t1"
        assert heard(bench) == []
        await bench.say(go_key("echo"), b"d-t1")
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
        assert chunks(bench) == ["a", "b"]


async def test_in_a_race_it_is_the_leader_who_is_told_not_the_router_that_has_sent_the_leg() -> None:
    bench = bench_of(saying("a"))
    bench.broker.declare(bench.names.outcomes("leader"))
    async with bench.running():
        bench.dispatch("t1", race=True, leader="leader")
        outcome = await bench.outcome()
        assert outcome.outcome is OutcomeClass.SUCCEEDED
    told = bench.broker.messages(bench.names.outcomes("leader"))
    assert [message.headers[OUTCOME] for message in told] == [SPOKE_NOTE]


async def test_in_a_race_the_first_chunk_counts_although_nobody_reads_it() -> None:
    bench = bench_of(saying("a"))
    async with bench.running():
        bench.dispatch("t1", race=True)
        assert await spoke(bench) == "d-t1"
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED


async def test_who_lost_a_race_is_told_and_has_said_nothing() -> None:
    agent, saw = echo(), []

    @agent.capability(CAPABILITY)
    def say(_: Payload, context: Context) -> None:
        context.charge(2.0)
        context.stream("late")
        if context.cancelled.wait(LIMIT_S):
            saw.append("cancelled")

    bench = bench_of(agent)
    async with bench.running():
        bench.dispatch("t1", race=True, **ASKED)
        await spoke(bench)
        await bench.say(cancel_key("echo"), b"d-t1")
        outcome = await bench.outcome()
        assert (outcome.outcome, outcome.cost) == (OutcomeClass.CANCELLED, 2.0)
        assert saw == ["cancelled"]
        assert heard(bench) == []


async def test_a_word_that_was_lost_is_said_again() -> None:
    bench = bench_of(saying("a"))
    bench.bus.fail_next(Fate.REFUSED, to="outcomes")
    async with bench.running():
        bench.dispatch("t1", race=True, **ASKED)
        async with asyncio.timeout(LIMIT_S):
            await bench.until(lambda: later(bench, 0.2) and bool(bench.router.inbox.waiting.get("outcomes")))
        assert await spoke(bench) == "d-t1"
        await bench.say(go_key("echo"), b"d-t1")
        await bench.until(lambda: chunks(bench) == ["a"])


async def test_a_race_that_is_won_before_its_word_is_confirmed_loses_no_chunk() -> None:
    """The router may have read the word, and answered, before the broker's confirm of it is read here."""
    bench = bench_of(saying("a"))
    envelope = Envelope("t1", "f", CAPABILITY, "me", 1, reply_to=CALLER, race=True)
    dispatch = Dispatch(envelope, "d1", "x", "echo", "r1", 1, 0, 5000)
    task = Task(capability=CAPABILITY, stream=True)
    voice = Voice(dispatch, task, bench.names, Speech(bench.bus, bench.clock), StreamPolicy())
    await voice.stream("a")
    (word,) = voice.next_messages(0.0)

    voice.go()
    voice.took([word], [Sent.CONFIRMED], 0.0)

    said = [orjson.loads(message.body)["status"] for message in voice.next_messages(0.0)]
    assert said == ["started", "streaming"]


async def test_of_what_was_given_up_meanwhile_nothing_is_done_with_twice() -> None:
    bench = bench_of(saying("a"))
    dispatch = Dispatch(
        Envelope("t1", "f", CAPABILITY, "me", 1, reply_to=CALLER), "d1", "x", "echo", "r1", 1, 0, 5000
    )
    task = Task(capability=CAPABILITY, stream=True)
    voice = Voice(dispatch, task, bench.names, Speech(bench.bus, bench.clock), StreamPolicy(flush_s=0.01))
    await voice.stream("a")
    sent = voice.next_messages(0.0)
    await voice.flush()
    await voice.stream("b")

    voice.took(sent, [Sent.CONFIRMED] * len(sent), 0.0)

    (left,) = voice.next_messages(0.0)
    assert orjson.loads(left.body)["chunk"] == "b"
