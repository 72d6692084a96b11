"""An OpenAI-compatible endpoint as an agent, against a real server: what is asked, streamed and booked, and trouble."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from reach_worker.adapters import chat_agent
from reach_worker.adapters.agents import AdapterAgent
from reach_worker.core.manifest import payload_problem
from reach_worker.core.outcome import OutcomeClass
from tests.adapters.attempts import MANIFEST, attempt, ending_of, result_of
from tests.adapters.web import Answer, Request, Web, a_moment, reply, send_chunk, send_head, web

PROMPT = {"prompt": "Say it"}
PRICES = {"input_per_1k": 1.0, "output_per_1k": 10.0}
SSE = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
DONE = "data: [DONE]\n\n"


def agent(site: Web, environ: Mapping[str, str] | None = None, **section: Any) -> AdapterAgent:
    given = {"base_url": f"{site.url}/v1", "model": "small", "prices": PRICES, **section}
    return chat_agent(MANIFEST, environ=environ or {}, **given)


def event(delta: Mapping[str, Any] | None = None, finish: str | None = None, **fields: Any) -> str:
    """One chunk as such servers write it."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return f"data: {orjson.dumps({'model': 'small-1', 'choices': [choice], **fields}).decode()}\n\n"


def said(*texts: str) -> list[str]:
    return [event({"content": text}) for text in texts]


def counted(tokens_in: int, tokens_out: int) -> str:
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
    return event(choices=[], usage=usage)


def stream(events: Sequence[str], *, cut: bool = False) -> Answer:
    """A streamed answer; ``cut``: the connection breaks after it."""

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        await send_head(writer, 200, SSE)
        for each in events:
            await send_chunk(writer, each.encode())
        if cut:
            writer.transport.abort()
        else:
            await send_chunk(writer, b"")

    return answer


async def talked(
    *events: str, payload: Mapping[str, Any] = PROMPT, **section: Any
) -> tuple[Any, Any, Request]:
    """The result, the attempt, and what the server was asked."""
    context = attempt()
    async with web(stream(events)) as site:
        result = await result_of(agent(site, **section), payload, context)
    return result, context, site.requests[0]


async def test_what_the_model_says_is_streamed_and_counted() -> None:
    result, context, asked = await talked(*said("Hel", "lo"), event(finish="stop"), counted(100, 20), DONE)
    assert context.heard == ["Hel", "lo"]
    assert result == {
        "text": "Hello",
        "finish_reason": "stop",
        "model": "small-1",
        "usage": {"tokens_in": 100, "tokens_out": 20, "cost": pytest.approx(0.3), "estimated": False},
    }
    assert (context.spent.tokens_in, context.spent.tokens_out) == (100, 20)
    assert context.spent.cost == pytest.approx(0.3)
    assert asked.target == "/v1/chat/completions"
    assert asked.json() == {
        "model": "small",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Say it"}],
    }


async def test_chunks_are_passed_on_as_they_come() -> None:
    go_on = asyncio.Event()

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        await send_head(writer, 200, SSE)
        for each in said("one", "two"):
            await send_chunk(writer, each.encode())
            await go_on.wait()
        await send_chunk(writer, (event(finish="stop") + DONE).encode())
        await send_chunk(writer, b"")

    async def heard() -> None:
        go_on.set()

    context = attempt(on_chunk=heard)
    async with web(answer) as site:
        await result_of(agent(site), PROMPT, context)
    assert context.heard == ["one", "two"]


async def test_who_asks_and_what_for() -> None:
    environ = {"KEY": "sk-secret"}
    payload = {
        "messages": [{"role": "user", "content": "a"}],
        "prompt": "b",
        "temperature": 0.9,
        "logprobs": True,
    }
    section = {
        "api_key": "${KEY}",
        "system": "Be terse, {@capability}.",
        "parameters": {"temperature": 0, "top_p": 1},
    }
    async with web(stream([event(finish="stop"), DONE])) as site:
        await result_of(agent(site, environ, **section), payload)
    asked = site.requests[0]
    assert asked.headers["authorization"] == "Bearer sk-secret"
    question = asked.json()
    assert question["messages"] == [
        {"role": "system", "content": "Be terse, some.work."},
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]
    assert (question["temperature"], question["top_p"]) == (0.9, 1)
    assert "logprobs" not in question


async def test_a_prompt_with_places() -> None:
    _, _, asked = await talked(
        event(finish="stop"), DONE, payload={"text": "long"}, prompt="Sum up: {text}", passed_on=()
    )
    assert asked.json()["messages"] == [{"role": "user", "content": "Sum up: long"}]


async def test_a_capability_that_declares_nothing_takes_a_prompt_or_messages() -> None:
    async with web(reply()) as site:
        (capability,) = agent(site).manifest.capabilities
        (other,) = agent(site, prompt="Sum up: {text}").manifest.capabilities
    assert payload_problem(capability, {"prompt": "x"}) is None
    assert payload_problem(capability, {"messages": [{"role": "user"}]}) is None
    assert payload_problem(capability, {"text": "x"}) is not None
    assert payload_problem(other, {"text": "x"}) is None


async def test_neither_prompt_nor_messages() -> None:
    async with web(reply()) as site:
        kind, _ = await ending_of(agent(site), {})
    assert (kind, site.requests) == (OutcomeClass.BAD_REQUEST, [])


async def test_a_server_that_counts_nothing_is_estimated_and_says_so() -> None:
    result, context, _ = await talked(*said("x" * 40), event(finish="stop"), DONE)
    assert result["usage"]["estimated"] is True
    assert result["usage"]["tokens_out"] == context.spent.tokens_out == 10
    assert context.spent.tokens_in > 0


async def test_an_answer_that_is_not_streamed() -> None:
    message = {"role": "assistant", "content": "Hello"}
    whole = {
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    context = attempt()
    async with web(reply(whole)) as site:
        result = await result_of(agent(site, stream=False), PROMPT, context)
    assert "stream" not in site.requests[0].json()
    assert (result["text"], result["finish_reason"]) == ("Hello", "length")
    assert (context.heard, context.spent.tokens_out) == (["Hello"], 4)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_why_it_stopped_is_in_the_result(reason: str) -> None:
    result, _, _ = await talked(*said("half"), event(finish=reason), DONE)
    assert (result["text"], result["finish_reason"]) == ("half", reason)


async def test_a_refusal_is_in_the_result() -> None:
    result, _, _ = await talked(event({"refusal": "I will not"}), event(finish="stop"), DONE)
    assert (result["text"], result["refusal"]) == ("", "I will not")


# ---- Tools


def call(index: int | None, arguments: str, **fields: Any) -> str:
    """A piece of a tool call."""
    function = {"arguments": arguments, **({"name": fields.pop("name")} if "name" in fields else {})}
    piece = {**({} if index is None else {"index": index}), **fields, "function": function}
    return event({"tool_calls": [piece]})


CALLS = [
    call(0, "", id="c0", name="look"),
    call(0, '{"path"'),
    call(1, '{"a":', id="c1", name="add"),
    call(0, ': "/x"}'),
    call(1, "[1]}"),
]


async def test_tool_calls_are_put_together_by_their_index() -> None:
    result, context, _ = await talked(*CALLS, event(finish="tool_calls"), DONE)
    assert result["tool_calls"] == [
        {"id": "c0", "name": "look", "arguments": {"path": "/x"}},
        {"id": "c1", "name": "add", "arguments": {"a": [1]}},
    ]
    assert (result["text"], result["finish_reason"], context.heard) == ("", "tool_calls", [])


async def test_tool_calls_without_an_index() -> None:
    pieces = [call(None, '{"a"', id="c0", name="f"), call(None, ":1}"), call(None, "", id="c1", name="g")]
    result, _, _ = await talked(*pieces, event(finish="tool_calls"), DONE)
    assert [(each["name"], each["arguments"]) for each in result["tool_calls"]] == [
        ("f", {"a": 1}),
        ("g", {}),
    ]


async def test_arguments_that_were_cut_off_are_repaired_and_marked() -> None:
    pieces = [call(0, '{"path": "/x", "lines": [1, 2', id="c", name="edit")]
    result, _, _ = await talked(*pieces, event(finish="length"), DONE)
    assert result["tool_calls"] == [
        {"id": "c", "name": "edit", "arguments": {"path": "/x", "lines": [1, 2]}, "repaired": True}
    ]


async def test_arguments_that_were_cut_off_are_refused_where_the_file_says_so() -> None:
    pieces = [call(0, '{"path": "/x', id="c", name="edit"), event(finish="length"), counted(10, 20), DONE]
    context = attempt()
    async with web(stream(pieces)) as site:
        kind, words = await ending_of(agent(site, broken_tool_calls="refuse"), PROMPT, context)
    assert kind is OutcomeClass.FAILED
    assert "the tool call edit are no JSON" in words
    assert (context.spent.tokens_in, context.spent.tokens_out) == (10, 20)


@pytest.mark.parametrize("arguments", ["[1, 2]", "}", "42", "x" * 300_000])
async def test_arguments_that_nobody_can_repair(arguments: str) -> None:
    async with web(stream([call(0, arguments, id="c", name="f"), event(finish="stop"), DONE])) as site:
        kind, _ = await ending_of(agent(site), PROMPT)
    assert kind is OutcomeClass.FAILED


# ---- Odd streams


@pytest.mark.parametrize(
    "events",
    [
        [": a comment\n\n", *said("He"), ":\n", *said("llo"), event(finish="stop"), DONE],
        ["event: message\nid: 1\nretry: 10\n", *said("Hello"), event(finish="stop"), DONE],
        ['data: {"choices": [{"index": 0,\ndata: "delta": {"content": "Hello"}}]}\n\n', event(finish="stop"), DONE],
        [*(each.replace("\n", "\r\n") for each in said("Hello")), event(finish="stop"), DONE],
        [*said("Hello"), event(finish="stop")],
        [*said("Hello"), event(finish="stop"), "data: [DONE]\n"],
        [*said("Hello"), event(finish="stop"), DONE, *said(" and more")],
        ['data: {"choices": [{"index": 1, "delta": {"content": "other"}}]}\n\n', *said("Hello"), event(finish="stop")],
        ['data: {"choices": null}\n\n', 'data: {"choices": [{"delta": null}]}\n\n', *said("Hello"), event(finish="stop")],
        [event({"content": None, "role": "assistant", "tool_calls": None}), *said("Hello"), event(finish="stop")],
        [*"".join([*said("Hello"), event(finish="stop"), DONE])],
    ],
    ids=[
        "comments", "fields", "several lines", "crlf", "no done", "done without its end", "after done", "another choice",
        "nulls", "null delta", "character by character",
    ],
)  # fmt: skip
async def test_every_form_of_stream(events: list[str]) -> None:
    result, context, _ = await talked(*events)
    assert result["text"] == "Hello"
    assert "".join(context.heard) == "Hello"


async def test_a_character_that_comes_in_two_pieces() -> None:
    whole = "".join([*said("Grüße ✓"), event(finish="stop"), DONE]).encode()

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        await send_head(writer, 200, SSE)
        for at in range(len(whole)):
            await send_chunk(writer, whole[at : at + 1])
        await send_chunk(writer, b"")

    async with web(answer) as site:
        result = await result_of(agent(site), PROMPT)
    assert result["text"] == "Grüße ✓"


@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_that_ends_in_the_middle(cut: bool) -> None:
    context = attempt()
    async with web(stream(said("Hel", "lo"), cut=cut)) as site:
        kind, words = await ending_of(agent(site), PROMPT, context)
    assert kind is OutcomeClass.UNAVAILABLE
    assert ("broke" if cut else "in the middle") in words
    assert context.spent.tokens_out > 0


async def test_a_connection_that_breaks_after_the_answer_is_whole() -> None:
    async with web(stream([*said("Hello"), event(finish="stop")], cut=True)) as site:
        result = await result_of(agent(site), PROMPT)
    assert result["text"] == "Hello"


async def test_a_server_that_does_not_end_a_stream_whose_answer_is_whole() -> None:
    async def hanging(_: Request, writer: asyncio.StreamWriter) -> None:
        await send_head(writer, 200, SSE)
        await send_chunk(writer, "".join([*said("Hello"), event(finish="stop")]).encode())
        await asyncio.Event().wait()

    async with web(hanging) as site:
        result = await result_of(agent(site), PROMPT)
        await asyncio.wait_for(site.gone.wait(), 10)
    assert (result["text"], result["usage"]["estimated"]) == ("Hello", True)


@pytest.mark.parametrize("garbage", ["data: {oops\n\n", "data: <html>\n\n", "data: [1]\n\n", 'data: "x"\n\n'])
async def test_garbage_in_the_stream(garbage: str) -> None:
    async with web(stream([*said("Hel"), garbage])) as site:
        kind, _ = await ending_of(agent(site), PROMPT)
    assert kind is OutcomeClass.FAILED


async def test_a_line_without_an_end_is_bounded() -> None:
    async def endless(_: Request, writer: asyncio.StreamWriter) -> None:
        await send_head(writer, 200, SSE)
        await send_chunk(writer, b"data: ")
        while True:
            await send_chunk(writer, b"x" * 65_536)

    async with web(endless) as site:
        kind, words = await ending_of(agent(site, max_answer_bytes=2_000_000), PROMPT)
    assert kind is OutcomeClass.FAILED
    assert "longer than 2000000 bytes" in words


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "the model broke", "type": "server_error"}, OutcomeClass.FAILED),
        ({"message": "slow down", "type": "rate_limit_error"}, OutcomeClass.RATE_LIMITED),
        ({"message": "slow down", "code": 429}, OutcomeClass.RATE_LIMITED),
        ("just text", OutcomeClass.FAILED),
    ],
)
async def test_an_error_in_place_of_a_chunk(error: Any, kind: OutcomeClass) -> None:
    async with web(stream([*said("Hel"), f"data: {orjson.dumps({'error': error}).decode()}\n\n"])) as site:
        found, words = await ending_of(agent(site), PROMPT)
    assert found is kind
    assert "an error in the stream" in words


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": "maximum context length is 8192", "code": "context_length_exceeded"}, OutcomeClass.BAD_REQUEST),
        (401, {"message": "Incorrect API key: sk-secret"}, OutcomeClass.UNAVAILABLE),
        (404, {"message": "The model does not exist"}, OutcomeClass.UNAVAILABLE),
        (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}, OutcomeClass.RATE_LIMITED),
        (429, {"message": "You exceeded your quota", "code": "insufficient_quota"}, OutcomeClass.UNAVAILABLE),
        (500, {"message": "oops"}, OutcomeClass.FAILED),
        (503, {"message": "loading"}, OutcomeClass.UNAVAILABLE),
    ],
)  # fmt: skip
async def test_what_a_status_means(status: int, error: dict[str, str], kind: OutcomeClass) -> None:
    context = attempt()
    async with web(reply({"error": error}, status)) as site:
        one = agent(site, {"KEY": "sk-secret"}, api_key="${KEY}")
        found, words = await ending_of(one, PROMPT, context)
    assert found is kind
    assert error["message"].replace("sk-secret", "***") in words
    assert context.spent.cost == 0


async def test_a_page_in_place_of_an_answer() -> None:
    async with web(reply(raw=b"<html>Sign in</html>", headers={"content-type": "text/html"})) as site:
        kind, words = await ending_of(agent(site), PROMPT)
    assert kind is OutcomeClass.FAILED
    assert "<html>Sign in" in words


async def drip(_: Request, writer: asyncio.StreamWriter) -> None:
    await send_head(writer, 200, SSE)
    while True:
        await send_chunk(writer, said("x")[0].encode())
        await a_moment()


async def test_time_is_up_in_the_middle() -> None:
    context = attempt(2.0)
    async with web(drip) as site:
        kind, _ = await ending_of(agent(site), PROMPT, context)
        await asyncio.wait_for(site.gone.wait(), 10)
    assert kind is OutcomeClass.TIMEOUT
    assert context.heard
    assert context.spent.tokens_out > 0


async def test_a_cancelled_task_hangs_up_and_has_its_cost_booked() -> None:
    spoke = asyncio.Event()

    async def heard() -> None:
        spoke.set()

    context = attempt(on_chunk=heard)
    async with web(drip) as site, asyncio.TaskGroup() as group:
        running = group.create_task(result_of(agent(site), PROMPT, context))
        await spoke.wait()
        running.cancel()
        await asyncio.wait_for(site.gone.wait(), 10)
    assert context.spent.tokens_out > 0
