"""An OpenAI-compatible chat endpoint as an agent: what the model says is streamed, tokens and money are booked."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, ClassVar, Final, Literal

import httpx
import orjson
from httpx_sse import EventSource
from pydantic import Field

from reach_worker.adapters.completion import Completion, estimated_tokens
from reach_worker.adapters.json_answer import read_json
from reach_worker.adapters.network import Network
from reach_worker.adapters.secrets import secrets_in
from reach_worker.adapters.section import FixedAddress, NetworkSection, Prices, Shape, Text, checked_address
from reach_worker.adapters.telling import Telling
from reach_worker.adapters.templates import Template, Values, filled_json, template, values_of
from reach_worker.adapters.tool_calls import finished_calls
from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import BadRequest, Unavailable
from reach_worker.ports import Clock

DONE: Final = "[DONE]"
REST_OF_IT_S: Final = 2.0
"""After the model has said that it is done, its tokens are to come within so long."""
PASSED_ON: Final = ("tools", "tool_choice", "response_format", "temperature", "max_tokens", "stop")
INPUT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "anyOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
    "properties": {
        "prompt": {"type": "string", "description": "what the user says"},
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "required": ["role"], "properties": {"role": {"type": "string"}}},
            "description": "the talk so far, as the endpoint wants it",
        },
    },
}
"""What a capability takes that declares nothing."""


class ChatSection(NetworkSection):
    """``kind: chat``."""

    input_schema: ClassVar[Mapping[str, Any]] = INPUT_SCHEMA

    kind: Literal["chat"] = "chat"
    base_url: FixedAddress = Field(
        description="what /chat/completions is appended to: http://localhost:8000/v1"
    )
    model: Text = Field(description="the model's name at the endpoint")
    api_key: Text | None = Field(None, description="sent as a bearer token: ${OPENAI_API_KEY}")
    system: Text | None = Field(None, description="the system message, with {fields} of the payload")
    prompt: Text | None = Field(
        None,
        description="the user's message, with {fields} of the payload; without it the payload's `prompt`",
    )
    parameters: dict[str, Shape] = Field(
        default_factory=dict, description="sent as they are: temperature, max_tokens, tools, …"
    )
    passed_on: tuple[str, ...] = Field(
        PASSED_ON,
        description="fields of the payload that are sent on, in place of the parameters of that name",
    )
    stream: bool = Field(default=True, description="whether the endpoint is asked to stream")
    prices: Prices = Field(default_factory=Prices, description="money per 1,000 tokens")
    broken_tool_calls: Literal["repair", "refuse"] = Field(
        "repair", description="arguments of tool calls that were cut off: repaired, and marked, or `failed`"
    )


class ChatAdapter:
    """Talks to the endpoint."""

    def __init__(self, section: ChatSection, environ: Mapping[str, str], clock: Clock) -> None:
        key = None if section.api_key is None else f"Bearer {section.api_key}"
        section = section.model_copy(
            update={"headers": {**({"authorization": key} if key else {}), **section.headers}}
        )
        self._section = section
        self._environ = environ
        self._secrets = secrets_in(section.model_dump(), environ)
        self._url = checked_address(section.base_url, environ, "base_url").filled(Values({}, {})) or ""
        self._network = Network(section, environ, self._secrets, clock, varies=False)
        self._model = template(section.model).within(environ)
        self._system = None if section.system is None else template(section.system).within(environ)
        self._prompt = None if section.prompt is None else template(section.prompt).within(environ)
        self._where = f"chat with {section.model} at {self._secrets.hidden(section.base_url)}"

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Open its connections."""
        return self._network.opened()

    def warnings(self) -> list[str]:
        """What is probably not meant."""
        return []

    async def run(self, payload: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """One task: one completion."""
        values = values_of(payload, context)
        question = self._question(payload, values)
        request = self._network.request(
            "POST",
            f"{self._url.rstrip('/')}/chat/completions",
            headers={"accept": "text/event-stream, application/json", **self._network.headers(values)},
            body=orjson.dumps(question),
        )
        async with self._network.answer(request, self._where, context) as response:
            completion = Completion()
            async with self._booked(completion, question, context) as usage:
                await self._read(response, completion, context)
            return self._result(completion, usage)

    async def _read(self, response: httpx.Response, completion: Completion, context: Context) -> None:
        rest_s = self._section.rest_s
        if "text/event-stream" not in response.headers.get("content-type", ""):
            text = completion.take_chunk(read_json(await response.aread(), "the answer"), rest_s=rest_s)
            if text:
                await Telling(context).say(text)
            completion.finish_reason = completion.finish_reason or "stop"
            return
        rest_of_it = asyncio.timeout(None)
        try:
            async with rest_of_it:
                await self._read_events(response, completion, Telling(context), rest_of_it)
        except (httpx.TransportError, TimeoutError):
            if completion.finish_reason is None:
                raise
        if completion.finish_reason is None:
            raise Unavailable("the stream ended in the middle of the answer")

    async def _read_events(
        self, response: httpx.Response, completion: Completion, telling: Telling, rest_of_it: asyncio.Timeout
    ) -> None:
        """To the end of the stream; of one whose answer is whole the rest is waited for only so long."""
        async with aclosing(EventSource(response).aiter_sse()) as events:
            async for event in events:
                if event.data == DONE:
                    return
                text = completion.take(event.data, rest_s=self._section.rest_s) if event.data else ""
                if text:
                    await telling.say(text)
                if completion.finish_reason is not None and rest_of_it.when() is None:
                    rest_of_it.reschedule(asyncio.get_running_loop().time() + REST_OF_IT_S)

    @asynccontextmanager
    async def _booked(
        self, completion: Completion, question: Mapping[str, Any], context: Context
    ) -> AsyncIterator[dict[str, Any]]:
        """Book what the block has cost, however it ends; what is yielded is filled in then."""
        usage: dict[str, Any] = {}
        try:
            yield usage
        finally:
            tokens_in, tokens_out = completion.usage or (
                estimated_tokens(orjson.dumps(question["messages"]).decode()),
                estimated_tokens(completion.said),
            )
            cost = self._section.prices.cost(tokens_in, tokens_out)
            context.charge(cost, tokens_in=tokens_in, tokens_out=tokens_out)
            usage.update(
                tokens_in=tokens_in, tokens_out=tokens_out, cost=cost, estimated=completion.usage is None
            )

    def _result(self, completion: Completion, usage: Mapping[str, Any]) -> dict[str, Any]:
        calls = finished_calls(completion.tool_calls, repair=self._section.broken_tool_calls == "repair")
        return {
            "text": "".join(completion.text),
            "finish_reason": completion.finish_reason,
            "model": completion.model or self._section.model,
            **({"tool_calls": calls} if calls else {}),
            **({"refusal": "".join(completion.refusal)} if completion.refusal else {}),
            "usage": usage,
        }

    # -- asking

    def _question(self, payload: Mapping[str, Any], values: Values) -> dict[str, Any]:
        stream = {"stream": True, "stream_options": {"include_usage": True}} if self._section.stream else {}
        parameters = filled_json(self._section.parameters, values, self._environ)
        return {
            "model": _text(self._model, values),
            **stream,
            **(parameters if isinstance(parameters, dict) else {}),
            **{name: payload[name] for name in self._section.passed_on if name in payload},
            "messages": self._messages(payload, values),
        }

    def _messages(self, payload: Mapping[str, Any], values: Values) -> list[Any]:
        messages: list[Any] = []
        if self._system is not None:
            messages.append({"role": "system", "content": _text(self._system, values)})
        if self._prompt is not None:
            return [*messages, {"role": "user", "content": _text(self._prompt, values)}]
        talk, prompt = payload.get("messages"), payload.get("prompt")
        if isinstance(talk, list):
            messages += talk
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        if talk is None and prompt is None:
            raise BadRequest("the payload has neither `prompt` nor `messages`")
        return messages


def _text(text: Template, values: Values) -> str:
    """The text for one task, empty where an optional field is missing."""
    return text.filled(values) or ""
