"""A handler calls other agents: what goes out, what comes back, and where it ends."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest

from reach_worker import CallLimit, Context
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.call_limits import CallPolicy
from reach_worker.core.cancel import CANCEL_TASK, cancel_from
from reach_worker.core.envelope import Envelope, envelope_from
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.task import OURS
from reach_worker.core.task_errors import CallTimeout, DeadLettered, TaskCancelled, Unmatched
from reach_worker.testing import Fate
from tests.agent.bench import CAPABILITY, LIMIT_S, Bench, echo

Handler = Callable[[Context], Awaitable[Any]]
DONE = {"status": "succeeded", "final": True, "result": {"said": "done"}}


@dataclass(repr=False)
class Desk:
    """The bench, and what the worker's calls look like to a router."""

    bench: Bench
    calls: list[tuple[Envelope, Mapping[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench.router.subscribe("returns", self.bench.names.returns, 100, at_once=True)
        self.bench.router.subscribe_mailbox(
            "events", [(self.bench.names.events, "presence.#"), (self.bench.names.events, CANCEL_TASK)]
        )

    async def called(self) -> tuple[Envelope, Mapping[str, Any]]:
        """The next call that went out."""
        delivery = await self._next("returns", lambda _: True)
        envelope = envelope_from(delivery.headers)
        assert isinstance(envelope, Envelope), envelope
        assert delivery.headers["x-reach-call"] == 1
        return envelope, orjson.loads(delivery.body)

    async def cancelled(self) -> str | None:
        """The next task that was taken back."""
        return cancel_from((await self._next("events", lambda d: d.routing_key == CANCEL_TASK)).body)

    def answer(self, envelope: Envelope, answer: Mapping[str, Any] = DONE) -> None:
        told = orjson.dumps({"task_id": envelope.task_id, "flow_id": envelope.flow_id, **answer})
        assert envelope.reply_to is not None
        self.bench.broker.publish(Message(envelope.reply_to, told, correlation_id=envelope.correlation_id))

    async def no_more(self) -> None:
        """Nothing else went out."""
        await self.bench.turned()
        assert not self.bench.router.inbox.take("returns")

    async def _next(self, name: str, wanted: Callable[[Delivery], bool]) -> Delivery:
        inbox = self.bench.router.inbox
        async with asyncio.timeout(LIMIT_S):
            while True:
                for delivery in inbox.take(name, 1):
                    await self.bench.router.ack([delivery])
                    if wanted(delivery):
                        return delivery
                    break
                else:
                    inbox.arrived.clear()
                    await inbox.arrived.wait()


def caller(handler: Handler, *, slots: int = 1, **limits: Any) -> Desk:
    """An agent with one async handler."""
    agent = echo(slots)

    @agent.capability(CAPABILITY)
    async def run(_: Mapping[str, Any], context: Context) -> Any:
        return await handler(context)

    return Desk(Bench(agent, WorkerPolicy(grace_s=5.0, calls=CallPolicy(**limits))))


async def test_a_call_is_a_task_of_the_same_flow_and_its_result_comes_back() -> None:
    desk = caller(lambda context: context.call("Text.Two", {"n": 2}))
    bench = desk.bench
    async with bench.running():
        dispatch = bench.dispatch("t1", payload={"n": 1})
        envelope, body = await desk.called()
        desk.answer(envelope)
        outcome, delivery = await bench.told()

    assert (envelope.flow_id, envelope.caller, envelope.from_agent, envelope.hops) == (
        "flow-1",
        "echo",
        "echo",
        1,
    )
    assert envelope.chain() == ("echo",)
    assert OURS in envelope.task_id, "a stranger could be there first with an id that he can work out"
    assert (envelope.capability, envelope.correlation_id) == ("text.two", envelope.task_id)
    assert (body["capability"], body["payload"], body["metadata"]) == ("text.two", {"n": 2}, {"k": "v"})
    assert 0 < body["deadline_ms"] <= dispatch.timeout_ms
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert orjson.loads(delivery.body) == {"said": "done"}


async def test_a_plain_handler_calls_too() -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    def run(_: Mapping[str, Any], context: Context) -> Any:
        return [context.call("text.two", {}), context.calls[0].capability]

    desk = Desk(Bench(agent))
    async with desk.bench.running():
        desk.bench.dispatch("t1")
        envelope, _ = await desk.called()
        desk.answer(envelope)
        _, delivery = await desk.bench.told()

    assert orjson.loads(delivery.body) == [{"said": "done"}, "text.two"]


async def test_the_hops_grow_with_each_call_and_everybody_before_is_named() -> None:
    desk = caller(lambda context: context.call("text.two", {}))
    bench = desk.bench
    async with bench.running():
        bench.dispatch("t0")
        first, _ = await desk.called()
        desk.answer(first)
        await bench.outcome()
        nested = replace(first, task_id="t1", capability=CAPABILITY)
        bench.dispatch("t1", envelope=nested)
        second, _ = await desk.called()
        desk.answer(second)
        await bench.outcome()

    assert (second.hops, second.chain()) == (2, ("echo", "echo"))


ENDS: dict[str, tuple[Mapping[str, Any], type[Exception], str]] = {
    "dead letter": (
        {"status": "dead_letter", "reason": "bad_request", "error": "no such file"},
        DeadLettered,
        "no such file",
    ),
    "unmatched": (
        {"status": "unmatched", "final": False, "error": "nobody has it"},
        Unmatched,
        "nobody has it",
    ),
    "cancelled": ({"status": "cancelled"}, TaskCancelled, "was cancelled"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_every_other_end_is_an_exception_and_uncaught_the_agents_failure(end: str) -> None:
    answer, kind, words = ENDS[end]
    raised: list[Exception] = []

    async def handler(context: Context) -> Any:
        try:
            return await context.call("text.two", {})
        except kind as error:
            raised.append(error)
            raise

    desk = caller(handler)
    async with desk.bench.running():
        desk.bench.dispatch("t1")
        envelope, _ = await desk.called()
        desk.answer(envelope, answer)
        outcome = await desk.bench.outcome()

    assert outcome.outcome is OutcomeClass.FAILED
    assert outcome.message.startswith(kind.__name__)
    assert words in outcome.message
    assert len(raised) == 1


async def test_the_same_call_again_is_answered_from_the_first_and_says_so() -> None:
    async def handler(context: Context) -> Any:
        together = await asyncio.gather(
            context.call("text.two", {"a": 1, "b": 2}), context.call("text.two", {"b": 2, "a": 1})
        )
        again = await context.call("TEXT.two", {"a": 1, "b": 2})
        other = await context.call("text.two", {"a": 2})
        return [*together, again, other, [made.repeated for made in context.calls]]

    desk = caller(handler, max=2)
    async with desk.bench.running():
        desk.bench.dispatch("t1")
        first, _ = await desk.called()
        desk.answer(first)
        second, body = await desk.called()
        desk.answer(second, {**DONE, "result": 2})
        _, delivery = await desk.bench.told()
        await desk.no_more()

    assert body["payload"] == {"a": 2}
    assert first.task_id != second.task_id
    said = {"said": "done"}
    assert orjson.loads(delivery.body) == [said, said, said, 2, [False, True, True, False]]


async def test_more_calls_than_one_task_may_make_are_refused_unsent() -> None:
    async def handler(context: Context) -> Any:
        await context.call("text.two", {"n": 0})
        try:
            await context.call("text.two", {"n": 1})
        except CallLimit as error:
            return str(error)

    desk = caller(handler, max=1)
    async with desk.bench.running():
        desk.bench.dispatch("t1")
        envelope, _ = await desk.called()
        desk.answer(envelope)
        _, delivery = await desk.bench.told()
        await desk.no_more()

    assert "calls.max" in orjson.loads(delivery.body)


async def test_the_seconds_of_all_calls_together_are_limited() -> None:
    async def handler(context: Context) -> Any:
        await context.call("text.two", {"n": 0})
        return await context.call("text.two", {"n": 1})

    desk = caller(handler, seconds=2.0)
    async with desk.bench.running():
        desk.bench.dispatch("t1")
        envelope, _ = await desk.called()
        desk.bench.clock.advance(2.5)
        desk.answer(envelope)
        outcome = await desk.bench.outcome()

    assert outcome.outcome is OutcomeClass.FAILED
    assert outcome.message.startswith("CallLimit: 2 s in calls")


@pytest.mark.parametrize("limits", [{"seconds": 0.05}, {}])
async def test_a_call_that_takes_too_long_ends_and_is_taken_back(limits: dict[str, Any]) -> None:
    error = CallLimit if limits else CallTimeout

    async def handler(context: Context) -> Any:
        try:
            return await context.call("text.two", {}, timeout=None if limits else 0.05)
        except error as late:
            return str(late)

    desk = caller(handler, **limits)
    async with desk.bench.running():
        desk.bench.dispatch("t1")
        envelope, body = await desk.called()
        assert await desk.cancelled() == envelope.task_id
        _, delivery = await desk.bench.told()
        desk.answer(envelope)  # too late: nobody waits, and nothing comes of it
        await desk.bench.turned()

    assert body["deadline_ms"] <= 50
    assert "0.05 s" in orjson.loads(delivery.body)


@pytest.mark.parametrize("plain", [False, True])
async def test_what_is_open_is_taken_back_with_the_attempt(plain: bool) -> None:
    agent = echo()
    if plain:

        @agent.capability(CAPABILITY)
        def run(_: Mapping[str, Any], context: Context) -> Any:
            return context.call("text.two", {})

    else:

        @agent.capability(CAPABILITY)
        async def run_async(_: Mapping[str, Any], context: Context) -> Any:
            return await context.call("text.two", {})

    unseen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: unseen.append(str(about["message"])))
    desk = Desk(Bench(agent))
    bench = desk.bench
    async with bench.running():
        bench.dispatch("t1")
        envelope, _ = await desk.called()
        await bench.say("cancel.echo", b"d-t1")
        assert await desk.cancelled() == envelope.task_id
        outcome = await bench.outcome()
    gc.collect()

    assert outcome.outcome is OutcomeClass.CANCELLED
    assert unseen == [], "what it raises when it is stopped is nothing for the log"
    assert not bench.worker.left_behind


async def test_a_call_that_nobody_waits_for_is_taken_back() -> None:
    async def handler(context: Context) -> Any:
        try:
            async with asyncio.timeout(0.05):
                await context.call("text.two", {})
        except TimeoutError:
            return "gave up"

    desk = caller(handler)
    async with desk.bench.running():
        desk.bench.dispatch("t1")
        envelope, _ = await desk.called()
        assert await desk.cancelled() == envelope.task_id
        outcome, delivery = await desk.bench.told()

    assert (outcome.outcome, orjson.loads(delivery.body)) == (OutcomeClass.SUCCEEDED, "gave up")


async def test_a_session_that_ends_costs_no_call() -> None:
    """It is sent again by the same id, so that it is done once, and its answer comes to the new mailbox."""
    desk = caller(lambda context: context.call("text.two", {}))
    bench = desk.bench
    async with bench.running():
        bench.dispatch("t1")
        first, _ = await desk.called()
        bench.bus.end_session()
        again, body = await desk.called()
        assert (again.task_id, again.reply_to) == (first.task_id, bench.bus.mailbox)
        assert again.reply_to != first.reply_to
        desk.answer(again)
        outcome = await bench.outcome()
        await desk.no_more()

    assert body["payload"] == {}
    assert outcome.outcome is OutcomeClass.SUCCEEDED


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNROUTABLE, Fate.LOST])
async def test_a_call_that_did_not_go_out_is_sent_again(fate: Fate) -> None:
    desk = caller(lambda context: context.call("text.two", {}))
    bench = desk.bench
    async with bench.running():
        bench.bus.fail_next(fate, to="returns")
        bench.dispatch("t1")
        await bench.until(lambda: ("publish", bench.names.returns) in bench.bus.journal)
        bench.clock.advance(0.5)
        envelope, _ = await desk.called()
        desk.answer(envelope)
        assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED


async def test_a_handler_that_runs_again_after_a_crash_makes_the_same_call() -> None:
    ids = []
    for _ in range(2):
        desk = caller(lambda context: context.call("text.two", {"n": 1}))
        async with desk.bench.running():
            desk.bench.dispatch("t1")
            envelope, _ = await desk.called()
            desk.answer(envelope)
            await desk.bench.outcome()
        ids.append(envelope.task_id)

    assert ids[0] == ids[1]


async def test_what_is_stopped_leaves_its_call_to_who_begins_it_anew() -> None:
    desk = caller(lambda context: context.call("text.two", {}))
    bench = desk.bench
    async with bench.running():
        bench.dispatch("t1")
        await desk.called()

    (delivery,) = bench.broker.messages(bench.names.outcomes("r1"))
    assert bench.read(delivery).outcome is OutcomeClass.RELEASED
    assert ("publish", CANCEL_TASK) not in bench.bus.journal


async def test_answers_come_while_the_worker_drains() -> None:
    desk = caller(lambda context: context.call("text.two", {}))
    bench = desk.bench
    async with bench.running():
        bench.dispatch("t1")
        envelope, _ = await desk.called()
        bench.worker.stop_asked.set()
        bench.bus.inbox.arrived.set()
        await bench.until(lambda: not bench.bus.consumes("work"))
        desk.answer(envelope)
        outcome = await bench.outcome()

    assert outcome.outcome is OutcomeClass.SUCCEEDED


@pytest.mark.parametrize("payload", [["a"], {"n": object()}, 7])
async def test_what_is_no_payload_is_the_handlers_own_error(payload: Any) -> None:
    desk = caller(lambda context: context.call("text.two", payload))
    async with desk.bench.running():
        desk.bench.dispatch("t1")
        outcome = await desk.bench.outcome()
        await desk.no_more()

    assert outcome.message.startswith("ValueError: the payload of a call")
