"""One handler, run in process as the worker runs it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reach_worker import Agent, BadRequest, Cancelled, Context, Handoff, RateLimited, Rejected, Unavailable
from reach_worker.errors import BadInput, StartupFailed
from reach_worker.testing import Handled, run_handler, run_handler_sync
from tests.kit.agents import SHOUT, napper, shouter


def test_a_plain_test_gets_the_result() -> None:
    handled = run_handler_sync(shouter(), SHOUT, {"text": "x"})
    assert (handled.outcome, handled.result) == ("succeeded", {"text": "X"})
    assert handled.succeeded


async def test_an_async_test_gets_it_on_its_own_loop() -> None:
    here = asyncio.get_running_loop()
    agent = Agent("looker")

    @agent.capability("look")
    async def look(_payload: dict[str, Any]) -> bool:
        return asyncio.get_running_loop() is here

    assert (await run_handler(agent, "look")).result is True


def test_a_payload_that_no_router_would_send_on_is_refused_unrun() -> None:
    handled = run_handler_sync(shouter(), SHOUT, {"txt": "x"})
    assert handled == Handled(
        "payload_refused", error='solid: payload: "text" is a required property', seconds=0.0
    )


def test_a_result_that_breaks_the_output_schema_is_a_failure() -> None:
    agent = Agent("loose")
    agent.capability("say", output_schema={"type": "object", "required": ["text"]})(lambda _payload: {})
    handled = run_handler_sync(agent, "say")
    assert (handled.outcome, handled.result) == ("failed", None)
    assert '"text" is a required property' in handled.error


def test_it_runs_within_the_agents_lifespan() -> None:
    agent, past = Agent("living"), list[str]()

    @agent.lifespan
    async def life() -> AsyncIterator[dict[str, str]]:
        await asyncio.sleep(2)  # noqa: TID251 - what authors write; here it goes by virtual time
        yield {"opened": "yes"}
        past.append("closed")

    @agent.on_startup
    def hook() -> None:
        past.append("started")

    @agent.capability("look")
    async def look(_payload: dict[str, Any], context: Context) -> Any:
        past.append("ran")
        return context.resources

    assert run_handler_sync(agent, "look").result == {"opened": "yes"}
    assert past == ["started", "ran", "closed"]


def test_an_agent_that_does_not_start_says_why() -> None:
    agent = Agent("broken")

    @agent.on_startup
    def hook() -> None:
        raise OSError("no disk")

    agent.capability("look")(lambda _payload: None)
    with pytest.raises(StartupFailed, match="OSError: no disk"):
        run_handler_sync(agent, "look")


@pytest.mark.parametrize(
    ("raised", "outcome", "error"),
    [
        (RateLimited(7), "rate_limited", "rate limited"),
        (BadRequest("no"), "bad_request", "no"),
        (Rejected("not mine"), "rejected", "not mine"),
        (Unavailable("gone"), "unavailable", "gone"),
        (Cancelled("told to"), "cancelled", "told to"),
        (ValueError("odd"), "failed", "ValueError: odd"),
    ],
)
def test_what_is_raised_is_the_outcome(raised: Exception, outcome: str, error: str) -> None:
    agent = Agent("raiser")

    @agent.capability("raise")
    def fail(_payload: dict[str, Any]) -> None:
        raise raised

    handled = run_handler_sync(agent, "raise")
    assert (handled.outcome, handled.error, handled.result) == (outcome, error, None)
    assert handled.retry_after_s == (7.0 if outcome == "rate_limited" else None)


def test_the_context_is_that_of_the_task() -> None:
    agent = Agent("teller")

    @agent.capability("tell")
    async def tell(payload: dict[str, Any], context: Context) -> list[Any]:
        assert payload == {}
        return [
            context.task_id,
            context.flow_id,
            context.attempt,
            context.caller,
            dict(context.metadata),
            context.session_id,
            list(context.attachments),
            context.timeout_s,
            context.seconds_left(),
        ]

    handled = run_handler_sync(
        agent,
        "tell",
        attempt=3,
        timeout=9,
        caller="me",
        metadata={"k": "v"},
        session_id="s",
        attachments=[{"url": "u"}],
        task_id="t",
        flow_id="f",
    )
    assert handled.result == ["t", "f", 3, "me", {"k": "v"}, "s", [{"url": "u"}], 9.0, 9.0]


@pytest.mark.parametrize("plain", [False, True])
def test_what_is_streamed_and_what_it_cost(plain: bool) -> None:
    agent = Agent("talker")

    async def talk(_payload: dict[str, Any], context: Context) -> str:
        await context.stream("one")
        await context.progress(0.5, "half")
        await context.stream({"two": 2})
        context.charge(0.25, tokens_in=3, tokens_out=4)
        return "done"

    def talk_plainly(_payload: dict[str, Any], context: Context) -> str:
        context.stream("one")
        context.progress(0.5, "half")
        context.stream({"two": 2})
        context.charge(0.25, tokens_in=3, tokens_out=4)
        return "done"

    agent.capability("talk")(talk_plainly if plain else talk)
    handled = run_handler_sync(agent, "talk")
    assert (handled.chunks, handled.progress, handled.result) == (["one", {"two": 2}], [0.5], "done")
    assert (handled.cost, handled.tokens_in, handled.tokens_out) == (0.25, 3, 4)
    assert run_handler_sync(agent, "talk", stream=False).chunks == []


def test_a_generator_streams_what_it_yields() -> None:
    agent = Agent("counter")

    @agent.capability("count")
    async def count(payload: dict[str, Any]) -> AsyncIterator[int]:
        for number in range(payload["to"]):
            yield number

    assert run_handler_sync(agent, "count", {"to": 3}).chunks == [0, 1, 2]


def test_half_an_hour_takes_no_time() -> None:
    handled = run_handler_sync(napper(timeout_ms=3_600_000), "nap", {"seconds": 1800})
    assert (handled.outcome, handled.seconds) == ("succeeded", 1800.0)


def test_after_its_time_it_is_ended() -> None:
    handled = run_handler_sync(napper(), "nap", {"seconds": 30}, timeout=5)
    assert handled.outcome == "timeout"
    assert handled.error.startswith("not done after 5 s")


def test_it_is_taken_back_while_it_runs() -> None:
    handled = run_handler_sync(napper(), "nap", {"seconds": 30}, cancel_after=2)
    assert handled.outcome == "cancelled"
    assert 2.0 <= handled.seconds <= 4.0


def test_a_thread_sees_that_it_should_stop() -> None:
    handled = run_handler_sync(napper(), "nap.thread", timeout=5)
    assert handled.result == "woken"


def test_a_thread_is_waited_for_in_real_time() -> None:
    agent = Agent("worker")

    @agent.capability("work")
    def work(_payload: dict[str, Any]) -> int:
        return sum(range(50_000))

    assert run_handler_sync(agent, "work", timeout=0.001).result == sum(range(50_000))


async def test_a_handler_with_a_socket_gets_real_time_for_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    agent = Agent("client")

    @agent.capability("ask")
    async def ask(payload: dict[str, Any]) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", payload["port"])
        writer.write(b"hello\n")
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return answer.decode()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert (await run_handler(agent, "ask", {"port": port}, timeout=60)).result == "hello\n"


def test_a_handler_with_a_child_process_gets_real_time_for_it() -> None:
    agent = Agent("runner")

    @agent.capability("run")
    async def run(payload: dict[str, Any]) -> str:
        child = await asyncio.create_subprocess_exec(
            "sh", "-c", payload["script"], stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await child.communicate()
        return printed.decode()

    for _ in range(3):
        assert (
            run_handler_sync(agent, "run", {"script": "echo one; exec >&-; echo"}, timeout=60).result
            == "one\n"
        )


def counting() -> Agent:
    """An agent that asks another one: one handler awaits, one is plain, and one hands the whole task on."""
    agent = Agent("asker")

    @agent.capability("ask")
    async def ask(payload: dict[str, Any], context: Context) -> Any:
        return await context.call("text.count", payload)

    @agent.capability("ask.plainly")
    def ask_plainly(payload: dict[str, Any], context: Context) -> Any:
        return context.call("text.count", payload)

    @agent.capability("hand.on")
    def hand_on(payload: dict[str, Any]) -> Handoff:
        return Handoff(capability="text.count", reason="not mine", payload=payload)

    return agent


@pytest.mark.parametrize("capability", ["ask", "ask.plainly"])
def test_stand_ins_answer_what_it_calls(capability: str) -> None:
    handled = run_handler_sync(
        counting(), capability, {"text": "abc"}, others={"text.count": lambda payload: len(payload["text"])}
    )
    assert (handled.result, handled.asked) == (3, (("text.count", {"text": "abc"}),))


def test_a_stand_in_that_raises_is_a_dead_letter_and_one_that_is_not_there_is_told() -> None:
    def fail(_payload: object) -> None:
        raise ValueError("odd")

    failed = run_handler_sync(counting(), "ask", others={"text.count": fail})
    assert (failed.outcome, "ValueError: odd" in failed.error) == ("failed", True)
    missing = run_handler_sync(counting(), "ask")
    assert "the test has no stand-in for 'text.count', only none" in missing.error


def test_what_it_hands_on() -> None:
    handled = run_handler_sync(counting(), "hand.on", {"text": "abc"})
    assert handled.outcome == "handoff"
    assert (handled.result["capability"], handled.result["reason"]) == ("text.count", "not mine")
    assert handled.result["payload"] == {"text": "abc"}


def test_a_capability_that_it_has_not_is_named_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"no capability 'text.shot' \(did you mean 'text.shout'\?\)"):
        run_handler_sync(shouter(), "text.shot")


def test_the_loop_has_its_own_time_again_afterwards() -> None:
    async def both() -> bool:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await run_handler(napper(timeout_ms=3_600_000), "nap", {"seconds": 1800})
        return loop.time() - before < 60 and "time" not in vars(loop)

    assert asyncio.run(both())
