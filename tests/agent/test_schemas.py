"""Schemas from type hints: what a handler is given, what it may give back, what the manifest says of both."""

import datetime as dt
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from reach_worker import Agent, BadRequest, Context, capability
from reach_worker.agent.cancel_signal import CancelSignal
from reach_worker.agent.context import FlowLogger
from reach_worker.agent.handler import Handler, handler_of
from reach_worker.agent.outcomes import AgentOutcome, BadResult, InsteadOfResult
from reach_worker.core.manifest import Capability, manifest_from, payload_problem
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.tags import TagTable
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput
from tests.agent.bench import CAPABILITY, Bench, echo


class ShoutIn(BaseModel):
    text: str = Field(min_length=1, description="what to say")
    times: int = Field(1, ge=1, le=5)


class ShoutOut(BaseModel):
    model_config = ConfigDict(validate_assignment=False)

    text: str
    length: int = Field(ge=0, alias="size", default=0)


@dataclass
class Point:
    x: int
    y: int = 2


class Options(TypedDict, total=False):
    colour: Literal["red", "green"]


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Node(BaseModel):
    name: str
    below: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    size: Size


class Pet(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number


class PassedOn(InsteadOfResult):
    """What a handler may return in place of a result."""


def context() -> Context:
    log = FlowLogger(logging.getLogger("test"), {"flow_id": "f", "task_id": "t"})
    return Context("t", "f", 1, "c", "anonymous", {}, None, 8.0, log)


async def called(handler: Handler, payload: Mapping[str, Any]) -> Any:
    result = handler.call(payload, context())
    return await result if inspect.isawaitable(result) else result


def declared(function: Callable[..., Any], **declaration: Any) -> Capability:
    """What a router reads of a function's capability, in the manifest that its agent sends."""
    agent = echo()
    agent.capability(CAPABILITY, **declaration)(function)
    (found,) = manifest_from(parse(agent.manifest.declaration), tags=TagTable({})).capabilities
    return found


# ---- What a handler is given


def whole(payload: ShoutIn) -> ShoutOut:
    """Says it louder.

    And more of it.
    """
    assert isinstance(payload, ShoutIn)
    return ShoutOut(text=payload.text.upper() * payload.times, size=3)


async def whole_with_context(payload: ShoutIn, task: Context) -> dict[str, Any]:
    return {"text": payload.text, "attempt": task.attempt}


def context_first(ctx: Context, payload: ShoutIn) -> list[Any]:
    return [payload.text, ctx.attempt]


def second_without_hint(_: ShoutIn, anything) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001 - on purpose
    return int(anything.attempt)


async def by_fields(sql: str, limit: int = 10, *, ctx: Context, tags: list[str] = []) -> list[Any]:  # noqa: B006 - as written
    return [sql, limit, tags, ctx.attempt]


def one_field(text: str) -> str:
    return text.upper()


def constrained(text: Annotated[str, Field(max_length=3)], times: int = Field(1, ge=1)) -> str:
    return text * times


def nothing() -> str:
    return "nothing"


def only_context(ctx: Context | None) -> str:
    return "nothing" if ctx is None else ctx.task_id


def point(payload: Point) -> int:
    return payload.x + payload.y


def options(payload: Options) -> str:
    return payload.get("colour", "none")


def either(payload: Cat | Dog) -> str:
    return type(payload).__name__


def raw(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


def helped(payload: ShoutIn, *, helper: object = None) -> str:
    return payload.text if helper is None else "helped"


class Shouter:
    async def __call__(self, payload: ShoutIn) -> str:
        return payload.text.upper()


TEXT = {"text": "ab"}
CALLS = [
    (whole, TEXT | {"times": 2}, {"text": "ABAB", "size": 3}),
    (whole_with_context, TEXT, {"text": "ab", "attempt": 1}),
    (context_first, TEXT, ["ab", 1]),
    (second_without_hint, TEXT, 1),
    (by_fields, {"sql": "select 1"}, ["select 1", 10, [], 1]),
    (by_fields, {"sql": "s", "limit": 2, "tags": ["x"]}, ["s", 2, ["x"], 1]),
    (one_field, TEXT, "AB"),
    (constrained, TEXT, "ab"),
    (constrained, TEXT | {"times": 2}, "abab"),
    (nothing, {}, "nothing"),
    (only_context, {}, "t"),
    (point, {"x": 1}, 3),
    (options, {"colour": "red"}, "red"),
    (either, {"kind": "dog", "size": "small"}, "Dog"),
    (raw, {"a": [1]}, {"a": [1]}),
    (helped, TEXT, "ab"),
    (functools.partial(helped, helper=1), TEXT, "helped"),
    (Shouter(), TEXT, "AB"),
    (lambda payload, ctx: [payload, ctx.attempt], {"a": 1}, [{"a": 1}, 1]),
]


@pytest.mark.parametrize(("function", "payload", "result"), CALLS)
async def test_it_is_given_what_its_hints_say(function: Any, payload: dict[str, Any], result: Any) -> None:
    assert payload_problem(declared(function), payload) is None
    assert await called(handler_of(CAPABILITY, function), payload) == result


@pytest.mark.parametrize(
    ("function", "payload", "words"),
    [
        (whole, {}, "/text: is required"),
        (whole, {"text": 5, "times": 9}, "/text: must be text, not 5; /times: must be at most 5, not 9"),
        (by_fields, {"sql": "s", "limt": 2}, "/limt: unknown field"),
        (by_fields, {"sql": "s", "tags": [1]}, "/tags/0: must be text, not 1"),
        (point, {"x": "one"}, "/x: must be a valid integer, unable to parse string as an integer"),
        (either, {"kind": "cat", "lives": "many"}, "/lives: must be a valid integer"),
        (options, {"colour": "blue"}, "/colour: must be 'red' or 'green', not 'blue'"),
        (constrained, {"text": "abcd"}, "/text: is too long, 3 characters at most"),
    ],
)
async def test_a_payload_that_does_not_fit_is_a_bad_request(function: Any, payload: Any, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        await called(handler_of(CAPABILITY, function), payload)
    assert f"the payload does not fit: {words}" in str(caught.value)
    assert "pydantic" not in str(caught.value)


async def test_many_faults_are_counted() -> None:
    def many(a: int, b: int, c: int, d: int, e: int) -> int:
        return a + b + c + d + e

    with pytest.raises(BadRequest, match=r"/c: is required; and 2 more$"):
        await called(handler_of(CAPABILITY, many), {})


@pytest.mark.parametrize("value", ["2026-11-30", "00000000-0000-0000-0000-000000000001"])
async def test_a_payload_is_read_as_json(value: str) -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        value: dt.date | UUID
        pair: tuple[int, Decimal] = (1, Decimal("0.5"))

    def kind(payload: Strict) -> str:
        return type(payload.value).__name__

    assert await called(handler_of(CAPABILITY, kind), {"value": value, "pair": [1, "1.5"]}) in (
        "date",
        "UUID",
    )


class Typed(Agent):
    @capability("text.up")
    def up(self, payload: ShoutIn) -> ShoutOut:
        """In capitals."""
        return ShoutOut(text=f"{self.id}: {payload.text.upper()}")

    @capability("text.add")
    async def add(self, left: str, right: str = "!", *, ctx: Context) -> str:
        return f"{left}{right}{ctx.attempt}"


async def test_methods_are_read_as_functions_are() -> None:
    agent = Typed("typed")

    assert await called(agent.handlers["text.up"], TEXT) == {"text": "typed: AB", "size": 0}
    assert await called(agent.handlers["text.add"], {"left": "a"}) == "a!1"
    found = {each.id: each for each in agent.manifest.capabilities}
    assert found["text.up"].description == "In capitals."
    assert found["text.add"].input_schema["required"] == ["left"]


# ---- What it may give back


def wrong_dict(payload: ShoutIn) -> ShoutOut:
    return {"text": payload.text, "size": -1}  # type: ignore[return-value]  # on purpose


def right_dict(payload: ShoutIn) -> ShoutOut:
    return {"text": payload.text, "size": 4}  # type: ignore[return-value]  # a mapping is as good


async def changed_behind_its_back(_: ShoutIn) -> ShoutOut:
    out = ShoutOut(text="a")
    out.text = 5  # type: ignore[assignment]  # on purpose
    return out


def in_lists(_: ShoutIn) -> list[Point]:
    return [Point(1), Point("two")]  # type: ignore[arg-type]  # on purpose


def no_json(_: ShoutIn) -> dict[str, int | Any]:
    return {"a": object()}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (wrong_dict, "the result is not what text.echo declares: /size: must be at least 0, not -1"),
        (changed_behind_its_back, "the result is not what text.echo declares: /text: 5 is not of type"),
        (in_lists, "the result is not what text.echo declares: /1/x: "),
        (no_json, "the handler's result is no JSON: Unable to serialize unknown type"),
    ],
)
async def test_a_result_that_does_not_fit_has_failed(function: Any, words: str) -> None:
    with pytest.raises(BadResult) as caught:
        await called(handler_of(CAPABILITY, function), TEXT)
    assert words in str(caught.value)
    assert isinstance(caught.value, AgentOutcome)
    assert caught.value.kind is OutcomeClass.FAILED


async def test_a_result_is_written_as_its_hint_says() -> None:
    assert await called(handler_of(CAPABILITY, right_dict), TEXT) == {"text": "ab", "size": 4}


async def test_what_stands_in_place_of_a_result_is_not_looked_at() -> None:
    def on(payload: ShoutIn) -> ShoutOut | PassedOn:
        return PassedOn() if payload.times > 1 else ShoutOut(text=payload.text)

    handler = handler_of(CAPABILITY, on)

    assert isinstance(await called(handler, TEXT | {"times": 2}), PassedOn)
    assert await called(handler, TEXT) == {"text": "ab", "size": 0}
    assert declared(on).output_schema["title"] == "ShoutOut"


async def test_an_explicit_schema_goes_over_the_hints() -> None:
    schema = {"type": "object", "required": ["extra"]}
    agent = echo()
    agent.capability(CAPABILITY, output_schema=schema, input_schema={}, description="mine")(right_dict)

    (found,) = agent.manifest.capabilities
    assert (found.output_schema, found.input_schema, found.description) == (schema, {}, "mine")
    with pytest.raises(BadResult, match='"extra" is a required property'):
        await called(agent.handlers[CAPABILITY], TEXT)


# ---- What the manifest says


def test_the_schema_is_the_models_and_the_description_the_docstrings() -> None:
    found = declared(whole)
    assert found.description == "Says it louder."
    assert found.input_schema == {
        "properties": {
            "text": {"description": "what to say", "minLength": 1, "type": "string"},
            "times": {"default": 1, "maximum": 5, "minimum": 1, "type": "integer"},
        },
        "required": ["text"],
        "title": "ShoutIn",
        "type": "object",
    }
    assert found.output_schema["properties"]["size"] == {"default": 0, "minimum": 0, "type": "integer"}


def test_fields_are_the_schemas_properties_and_no_others_are_allowed() -> None:
    schema = declared(by_fields).input_schema
    assert (schema["required"], schema["additionalProperties"]) == (["sql"], False)
    assert schema["properties"]["limit"] == {"default": 10, "type": "integer"}
    assert set(schema["properties"]) == {"sql", "limit", "tags"}


def test_no_hints_no_schema() -> None:
    found = declared(lambda payload: payload)
    assert (found.input_schema, found.output_schema, found.description) == ({}, {}, "")
    assert declared(raw).output_schema == {}


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (
            Node,
            {"name": "a", "below": [{"name": "b", "below": [{"name": "c"}]}]},
            {"name": "a", "below": [{}]},
        ),
        (Pet, {"pet": {"kind": "cat", "lives": 9}}, {"pet": {"kind": "cat", "size": "small"}}),
        (Pet, {"pet": {"kind": "dog", "size": "small"}}, {"pet": {"kind": "dog", "size": "huge"}}),
        (dict[str, int], {"a": 1}, {"a": "one"}),
        (Point, {"x": 1}, {"y": 1}),
    ],
)
async def test_definitions_and_references_hold_at_the_router_too(hint: Any, good: Any, bad: Any) -> None:
    def take(payload: Any) -> str:
        return type(payload).__name__

    take.__annotations__["payload"] = hint
    found = declared(take)

    assert payload_problem(found, good) is None
    assert payload_problem(found, bad) is not None
    assert await called(handler_of(CAPABILITY, take), good)
    with pytest.raises(BadRequest):
        await called(handler_of(CAPABILITY, take), bad)


def many_chunks(payload: ShoutIn) -> Iterator[str]:
    yield payload.text


async def many_async_chunks(payload: ShoutIn, ctx: Context) -> AsyncIterator[Point]:
    yield Point(payload.times, ctx.attempt)


@pytest.mark.parametrize(("function", "is_async"), [(many_chunks, False), (many_async_chunks, True)])
def test_generators_stream_and_what_they_yield_is_no_result(function: Any, is_async: bool) -> None:
    handler = handler_of(CAPABILITY, function)

    assert (handler.streams, handler.is_async, handler.output_schema) == (True, is_async, {})
    assert inspect.isasyncgen(handler.call(TEXT, context())) is is_async
    with pytest.raises(BadRequest):
        handler.call({}, context())


def chunks_and_a_result(payload: ShoutIn) -> Generator[str, None, ShoutOut]:
    yield "one"
    return ShoutOut.model_construct(text=payload.text, length=-1 if payload.times > 1 else 1)


async def chunks_that_are_the_result(payload: ShoutIn) -> AsyncIterator[str]:
    yield payload.text
    yield "!" * payload.times


@pytest.mark.parametrize(
    ("function", "schema", "body", "words"),
    [
        (chunks_and_a_result, {}, b'{"text":"ab","size":1}', "/size: -1 is less than the minimum of 0"),
        (
            chunks_that_are_the_result,
            {"output_schema": {"maxLength": 3}},
            b'"ab!"',
            "is longer than 3 characters",
        ),
    ],
)
async def test_the_result_of_a_generator_is_checked_too(
    function: Any, schema: Any, body: bytes, words: str
) -> None:
    agent = echo()
    agent.capability(CAPABILITY, **schema)(function)
    bench = Bench(agent)
    async with bench.running():
        bench.dispatch("t1", payload=TEXT)
        outcome, delivery = await bench.told()
        bench.dispatch("t2", payload=TEXT | {"times": 2})
        failed = await bench.outcome()
    assert (outcome.outcome, delivery.body) == (OutcomeClass.SUCCEEDED, body)
    assert failed.outcome is OutcomeClass.FAILED
    assert words in failed.message


@pytest.mark.parametrize("function", [whole, by_fields, Shouter(), functools.partial(by_fields, limit=2)])
def test_other_handlers_do_not(function: Any) -> None:
    assert not handler_of(CAPABILITY, function).streams


def promised(payload: ShoutIn) -> Awaitable[ShoutOut]:
    return _later(payload)


async def _later(payload: ShoutIn) -> ShoutOut:
    return ShoutOut(text=payload.text)


async def test_what_is_promised_is_the_result() -> None:
    assert declared(promised).output_schema["title"] == "ShoutOut"
    assert await called(handler_of(CAPABILITY, promised), TEXT) == {"text": "ab", "size": 0}


# ---- What is wrong with a function


def no_hints(first, second, third) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - on purpose
    del first, second, third


def half_hinted(sql: str, limit) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - on purpose
    del sql, limit


def two_contexts(one: Context, other: Context) -> None:
    del one, other


def unknown_type(payload: CancelSignal) -> None:
    del payload


def no_such_result(payload: ShoutIn) -> CancelSignal:
    raise NotImplementedError(payload)


def later_imported(payload: "NotThere") -> None:  # type: ignore[name-defined]  # noqa: F821 - on purpose
    del payload


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_hints, "'no_hints': first, second, third without a type hint; a handler takes the payload, or"),
        (half_hinted, "'half_hinted': limit without a type hint"),
        (two_contexts, "'two_contexts': one and other both take the context"),
        (unknown_type, "parameter 'payload' of 'unknown_type' has a type that has no JSON: "),
        (no_such_result, "the result of handler 'no_such_result' has a type that has no JSON: "),
        (later_imported, "'later_imported': its type hint 'NotThere' means nothing when it runs (import it"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(function: Any, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        echo().capability("text.one")(function)
    assert words in str(caught.value)
    assert "errors.pydantic.dev" not in str(caught.value)


# ---- At work


async def test_a_worker_gives_models_and_tells_what_does_not_fit() -> None:
    agent = Agent("echo", max_concurrency=1)

    @agent.capability(CAPABILITY)
    def shout(payload: Even) -> ShoutOut:
        text: Any = "x" * payload.number if payload.number < 4 else 4
        return ShoutOut.model_construct(text=text)

    bench = Bench(agent)
    async with bench.running():
        seen = []
        for number in (2, 3, 4):
            bench.dispatch(f"t{number}", payload={"number": number})
            outcome, delivery = await bench.told()
            seen.append((outcome.outcome, outcome.message, delivery.body))
    assert seen[0] == (OutcomeClass.SUCCEEDED, "", b'{"text":"xx","size":0}')
    assert seen[1][:2] == (OutcomeClass.BAD_REQUEST, "the payload does not fit: /number: must be even")
    assert seen[2][0] is OutcomeClass.FAILED
    assert "the result is not what text.echo declares: /text: 4 is not of type" in seen[2][1]
