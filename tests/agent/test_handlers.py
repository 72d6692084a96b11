"""Handlers: how each way to end becomes an outcome, how time limits are kept, in which forms they can be written."""

import asyncio
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel

from reach_worker import (
    Agent,
    BadRequest,
    Cancelled,
    Context,
    RateLimited,
    Rejected,
    Unavailable,
    capability,
)
from reach_worker.core.outcome import Outcome, OutcomeClass
from reach_worker.errors import BadInput
from tests.agent.bench import CAPABILITY, LIMIT_S, Bench, echo

Payload = Mapping[str, Any]


class Shape(BaseModel):
    side: int


def raising(error: BaseException) -> Callable[[Payload], NoReturn]:
    def handler(_: Payload) -> NoReturn:
        raise error

    return handler


async def ended(agent: Agent, **dispatch: Any) -> tuple[Outcome, bytes]:
    """The outcome of one dispatch, and its body."""
    bench = Bench(agent)
    async with bench.running():
        bench.dispatch("t1", **dispatch)
        outcome, delivery = await bench.told()
    return outcome, delivery.body


def both_ways(handler: Callable[[Payload], Any], way: str) -> Agent:
    """An agent with the handler as a plain or as an async function."""
    agent = echo()
    if way == "plain":
        agent.capability(CAPABILITY)(handler)
    else:

        @agent.capability(CAPABILITY)
        async def wrapped(payload: Payload) -> Any:
            return handler(payload)

    return agent


ENDINGS = [
    (RateLimited(2.5), OutcomeClass.RATE_LIMITED, "rate limited", 2500),
    (RateLimited(-1, "slow down"), OutcomeClass.RATE_LIMITED, "slow down", 0),
    (BadRequest("no such file"), OutcomeClass.BAD_REQUEST, "no such file", None),
    (Rejected("not mine"), OutcomeClass.REJECTED, "not mine", None),
    (Unavailable("database gone"), OutcomeClass.UNAVAILABLE, "database gone", None),
    (Cancelled("told to"), OutcomeClass.CANCELLED, "told to", None),
    (ValueError("broken"), OutcomeClass.FAILED, "ValueError: broken", None),
    (KeyError(), OutcomeClass.FAILED, "KeyError: KeyError", None),
    (SystemExit(3), OutcomeClass.FAILED, "SystemExit", None),
    (TimeoutError("of its own"), OutcomeClass.FAILED, "TimeoutError: of its own", None),
]


@pytest.mark.parametrize("way", ["plain", "async"])
@pytest.mark.parametrize(("error", "kind", "words", "after_ms"), ENDINGS, ids=lambda value: str(value)[:20])
async def test_every_way_to_end(
    error: BaseException, kind: OutcomeClass, words: str, after_ms: int | None, way: str
) -> None:
    outcome, _ = await ended(both_ways(raising(error), way))
    assert (outcome.outcome, outcome.retry_after_ms) == (kind, after_ms)
    assert words in outcome.message
    assert outcome.started
    assert outcome.duration_ms is not None


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    outcome, _ = await ended(both_ways(raising(asyncio.CancelledError()), "async"))
    assert outcome.outcome is OutcomeClass.FAILED
    assert "cancelled itself" in outcome.message


async def test_a_worker_survives_whatever_its_handlers_raise() -> None:
    agent = echo()
    errors: list[BaseException] = [SystemExit(1), ValueError("x"), asyncio.CancelledError()]

    @agent.capability(CAPABILITY)
    async def trouble(_: Payload) -> str:
        if errors:
            raise errors.pop()
        return "well"

    bench = Bench(agent)
    async with bench.running():
        for number in range(4):
            bench.dispatch(f"t{number}")
        seen = [(await bench.outcome()).outcome for _ in range(4)]
    assert seen == [OutcomeClass.FAILED] * 3 + [OutcomeClass.SUCCEEDED]


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ({"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'.encode()),
        (None, b"null"),
        ("text", b'"text"'),
        (Shape(side=3), b'{"side":3}'),
        ([Shape(side=1)], b'[{"side":1}]'),
    ],
)
async def test_what_it_returns_is_the_result(value: object, body: bytes) -> None:
    outcome, result = await ended(both_ways(lambda _: value, "plain"))
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert result == body


@pytest.mark.parametrize("value", [object(), {1, 2}, {"a": b"bytes"}, {(1, 2): 3}, 2**70, float])
async def test_a_result_that_is_no_json_has_failed(value: object) -> None:
    outcome, body = await ended(both_ways(lambda _: value, "plain"))
    assert outcome.outcome is OutcomeClass.FAILED
    assert "no JSON" in outcome.message
    assert b"capability" in body


async def test_a_result_that_is_too_large_has_failed() -> None:
    outcome, _ = await ended(both_ways(lambda _: "x" * (9 * 1024 * 1024), "plain"))
    assert outcome.outcome is OutcomeClass.FAILED
    assert "the limit is" in outcome.message


async def test_a_long_message_is_cut() -> None:
    outcome, _ = await ended(both_ways(raising(ValueError("x" * 10_000)), "plain"))
    assert len(outcome.message) <= 600
    assert "cut" in outcome.message


# ---- Time


async def test_time_is_up_first_it_is_asked_then_it_is_ended() -> None:
    agent = echo()
    seen: list[str] = []

    @agent.capability(CAPABILITY)
    async def slow(_: Payload, context: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("asked" if context.cancelled.is_set() else "not asked")
            raise

    outcome, _ = await ended(agent, timeout_ms=30)
    assert outcome.outcome is OutcomeClass.TIMEOUT
    assert "0.03 s" in outcome.message
    assert seen == ["asked"]


async def test_one_that_ends_when_it_is_asked_has_its_result_counted() -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    def patient(_: Payload, context: Context) -> str:
        context.cancelled.wait(LIMIT_S)
        return "just in time"

    outcome, body = await ended(agent, timeout_ms=200)
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert body == b'"just in time"'


async def test_a_thread_that_cannot_be_ended_keeps_its_slot_until_it_ends() -> None:
    agent, go = echo(slots=2), threading.Event()

    @agent.capability(CAPABILITY)
    def deaf(payload: Payload) -> str:
        if payload.get("deaf"):
            go.wait(LIMIT_S)
        return "done"

    bench = Bench(agent)
    async with bench.running():
        first = await bench.beat()
        bench.dispatch("t1", payload={"deaf": True}, timeout_ms=30)
        assert (await bench.outcome()).outcome is OutcomeClass.TIMEOUT
        assert bench.worker.left_behind == 1
        bench.clock.advance(3.0)
        assert (first.capacity, (await bench.beat()).capacity) == (2, 1)
        for number in range(2, 5):
            bench.dispatch(f"t{number}")
        assert [(await bench.outcome()).outcome for _ in range(3)] == [OutcomeClass.SUCCEEDED] * 3
        go.set()
        await bench.until(lambda: bench.worker.left_behind == 0)


async def test_a_coroutine_that_does_not_end_keeps_its_slot_until_it_ends() -> None:
    agent, go = echo(), asyncio.Event()

    @agent.capability(CAPABILITY)
    async def deaf(_: Payload) -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    bench = Bench(agent)
    async with bench.running():
        bench.dispatch("t1", timeout_ms=30)
        assert (await bench.outcome()).outcome is OutcomeClass.TIMEOUT
        assert bench.worker.left_behind == 1
        go.set()
        await bench.until(lambda: bench.worker.left_behind == 0)


async def test_it_knows_how_much_time_it_has() -> None:
    agent = echo()

    @agent.capability(CAPABILITY)
    async def look(_: Payload, context: Context) -> dict[str, Any]:
        context.log.info("working")
        return {
            "left": context.seconds_left(),
            "of": context.timeout_s,
            "task": context.task_id,
            "flow": context.flow_id,
            "attempt": context.attempt,
            "caller": context.caller,
            "metadata": dict(context.metadata),
            "capability": context.capability,
            "session": context.session_id,
        }

    _, body = await ended(agent, timeout_ms=4_000)
    assert body == (
        b'{"left":4.0,"of":4.0,"task":"t1","flow":"flow-1","attempt":1,"caller":"caller-1",'
        b'"metadata":{"k":"v"},"capability":"text.echo","session":null}'
    )


async def test_plain_functions_run_at_once_too() -> None:
    agent = echo(slots=2)
    both = threading.Barrier(2)

    @agent.capability(CAPABILITY)
    def meet(_: Payload) -> str:
        both.wait(LIMIT_S)
        return "met"

    bench = Bench(agent)
    async with bench.running():
        bench.dispatch("t1")
        bench.dispatch("t2")
        await bench.until(lambda: both.n_waiting == 1)
        bench.clock.advance(1.5)
        assert [(await bench.outcome()).outcome for _ in range(2)] == [OutcomeClass.SUCCEEDED] * 2


async def test_a_handler_that_is_no_function() -> None:
    agent = echo()

    async def add(one: int, payload: Payload) -> int:
        return one + int(payload["n"])

    agent.capability(CAPABILITY)(functools.partial(add, 1))
    _, body = await ended(agent, payload={"n": 2})
    assert body == b"3"


@pytest.mark.parametrize("way", ["plain", "async"])
async def test_what_a_run_was_made_of_is_gone_with_it(way: str) -> None:
    """Without the garbage collector, which would have to look for what refers to itself after each task."""
    seen: list[weakref.ref[object]] = []
    agent = echo()

    def look(context: Context) -> None:
        seen.append(weakref.ref(context.log))

    def plain(_: Payload, context: Context) -> None:
        look(context)

    async def awaited(_: Payload, context: Context) -> None:
        look(context)

    agent.capability(CAPABILITY)(plain if way == "plain" else awaited)
    bench = Bench(agent)
    gc.disable()
    try:
        async with bench.running():
            bench.dispatch("t1")
            assert (await bench.outcome()).outcome is OutcomeClass.SUCCEEDED
            await bench.until(lambda: bench.bus.unacked == 0)
            assert [each() for each in seen] == [None]
    finally:
        gc.enable()


# ---- Declaring


class Twin(Agent):
    def __init__(self) -> None:
        super().__init__("twin", max_concurrency=2)
        self.count = 0

    @capability("text.up", description="In capitals")
    def up(self, payload: Payload) -> str:
        self.count += 1
        return str(payload["text"]).upper()

    @capability("text.down", cost=2)
    async def down(self, payload: Payload, context: Context) -> str:
        self.count += 1
        return f"{str(payload['text']).lower()} {context.attempt}"


async def test_an_agent_written_as_a_class() -> None:
    agent = Twin()
    bench = Bench(agent)
    async with bench.running():
        bench.dispatch("t1", "text.up", {"text": "a"})
        _, up = await bench.told()
        bench.dispatch("t2", "text.down", {"text": "B"})
        _, down = await bench.told()
    assert (up.body, down.body) == (b'"A"', b'"b 1"')
    assert agent.count == 2
    found = {item.id: (item.description, item.cost) for item in agent.manifest.capabilities}
    assert found == {"text.down": ("", 2.0), "text.up": ("In capitals", 3.0)}


def written(folder: Path, capabilities: str) -> Path:
    path = folder / "a.yaml"
    path.write_text(f"id: a\nmutually_exclusive_tags: []\ncapabilities: {capabilities}\n")
    return path


def test_a_manifest_file_declares_and_functions_do(tmp_path: Path) -> None:
    agent = Agent(manifest=written(tmp_path, "[{id: Text.One}]"))

    @agent.capability("text.ONE")
    def one(_: Payload) -> None: ...

    assert agent.manifest.id == "a"
    assert list(agent.handlers) == ["text.one"]


@pytest.mark.parametrize(
    ("handled", "hint"),
    [("text.ttwo", r"did you mean text\.ttwo\?"), ("image.up", r'@agent\.capability\("text\.two"\)')],
)
def test_a_capability_that_no_function_handles(tmp_path: Path, handled: str, hint: str) -> None:
    agent = Agent(manifest=written(tmp_path, "[{id: text.one}, {id: text.two}]"))
    agent.capability("text.one")(lambda _: None)
    agent.capability(handled)(lambda _: None)
    with pytest.raises(
        BadInput,
        match=rf"a\.yaml:3:33: /capabilities/1/id: .* declares text\.two, but no function handles it \({hint}\)",
    ):
        _ = agent.manifest


def test_two_handlers_for_one_capability() -> None:
    agent = echo()
    agent.capability("text.one")(lambda _: None)
    with pytest.raises(BadInput, match=r"two handlers for capability 'text\.one'"):
        agent.capability("TEXT.one")(lambda _: None)


def test_an_agent_without_a_name() -> None:
    with pytest.raises(BadInput, match="needs an id"):
        Agent()


def test_an_agent_without_capabilities() -> None:
    with pytest.raises(BadInput, match="capabilities"):
        _ = echo().manifest


def test_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        Agent(manifest=tmp_path / "none.yaml")


def test_a_declaration_that_is_wrong() -> None:
    agent = Agent("a", max_concurency=2)
    agent.capability("text.one")(lambda _: None)
    with pytest.raises(BadInput, match="did you mean max_concurrency"):
        _ = agent.manifest


def test_the_process_is_still_here() -> None:
    assert sys.exc_info() == (None, None, None)


async def test_one_that_was_given_less_time_than_it_declares_says_so() -> None:
    agent = echo()

    @agent.capability(CAPABILITY, timeout_ms=60_000)
    async def wait(_: Payload, context: Context) -> None:
        await context.wait_cancelled()
        await asyncio.Event().wait()

    outcome, _ = await ended(agent, timeout_ms=30)
    assert outcome.outcome is OutcomeClass.TIMEOUT
    assert outcome.message == (
        "not done after 0.03 s, its limit this time, by its usual time or a deadline; it declares 60 s"
    )
