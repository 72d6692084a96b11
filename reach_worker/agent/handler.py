"""A handler: a function that does one capability, with its payload read and its result checked on the way."""

import inspect
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import jsonschema_rs
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import BadRequest, BadResult, InsteadOfResult
from reach_worker.agent.schemas import adapter_of, fields_adapter, json_schema
from reach_worker.agent.signature import Function, Signature, innermost, name_of, read_signature
from reach_worker.core.document import faults
from reach_worker.core.json_schema import compile_schema, first_fault

MOST_TOLD: Final = 3
"""Faults of one payload that are named; the others are only counted."""


@dataclass(frozen=True)
class Handler:
    """A function that does one capability.

    ``is_async``: it is called in the event loop, otherwise in a thread. ``streams``: it is a generator, plain or async,
    and what it yields are chunks. ``reads``, ``writes``: what payload and result go through, ``None`` where they stay as
    they are. ``output_schema``: what the result has to fit.
    """

    capability_id: str
    function: Function
    is_async: bool
    streams: bool
    signature: Signature
    reads: TypeAdapter[Any] | None
    writes: TypeAdapter[Any] | None
    output_schema: Mapping[str, Any]

    def call(self, payload: Mapping[str, Any], context: Context) -> Any | Awaitable[Any]:
        """Call it. An async one returns its coroutine, a generator itself; their chunks are not looked at here.

        Raises :class:`BadRequest` for a payload that its types refuse, :class:`BadResult` for a result.
        """
        result = self._called(self._read(payload), context)
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            return result
        return self._awaited(result) if inspect.isawaitable(result) else self.checked(result)

    def checked(self, result: Any) -> Any:
        """A result as plain data, if it is what the capability declares. Raises :class:`BadResult`."""
        if isinstance(result, InsteadOfResult):
            return result
        if self.writes is not None:
            result = self._written(self.writes, result)
        if self.output_schema:
            fault = first_fault(self._validator, result)
            if fault is not None:
                raise BadResult(self._refusal([fault]))
        return result

    def declaration(self) -> dict[str, Any]:
        """What the function itself says of its capability: the manifest's fields, without those it says nothing of."""
        said: dict[str, Any] = {}
        description = _description(self.function)
        if description:
            said["description"] = description
        if self.reads is not None:
            said["input_schema"] = json_schema(self.reads, "validation", self._place("the payload"))
        if self.writes is not None:
            said["output_schema"] = json_schema(self.writes, "serialization", self._place("the result"))
        return said

    def with_output_schema(self, schema: Mapping[str, Any]) -> "Handler":
        """The same, with another word on what its result has to fit."""
        return replace(self, output_schema=schema)

    @cached_property
    def _validator(self) -> jsonschema_rs.Validator:
        return compile_schema(self.output_schema)

    def _place(self, what: str) -> str:
        return f"{what} of handler {self.signature.name!r}"

    def _read(self, payload: Mapping[str, Any]) -> Any:
        if self.reads is None:
            return payload
        try:
            return self.reads.validate_json(to_json(payload))
        except ValidationError as error:
            raise BadRequest(f"the payload does not fit: {_in_words(faults(error, payload))}") from None

    def _called(self, payload: Any, context: Context) -> Any:
        signature = self.signature
        given = {name: getattr(payload, name) for name in signature.fields}
        if signature.payload is not None:
            given[signature.payload] = payload
        if signature.context is not None:
            given[signature.context] = context
        by_position = [given.pop(name) for name in signature.order]
        return self.function(*by_position, **given)

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        return self.checked(await result)

    def _written(self, writes: TypeAdapter[Any], result: Any) -> Any:
        try:
            return writes.dump_python(
                writes.validate_python(result), mode="json", by_alias=True, warnings=False
            )
        except ValidationError as error:
            raise BadResult(self._refusal(faults(error, result))) from None
        except PydanticSerializationError as error:
            raise BadResult(f"the handler's result is no JSON: {error}") from None

    def _refusal(self, found: list[tuple[str, str]]) -> str:
        return f"the result is not what {self.capability_id} declares: {_in_words(found)}"


def handler_of(capability_id: str, function: Function) -> Handler:
    """The handler that a function is. Raises ``BadInput`` for one that cannot be called with a payload."""
    signature = read_signature(function)
    place = f"handler {name_of(function)!r}"
    reads: TypeAdapter[Any] | None
    if signature.payload is None:
        reads = fields_adapter(signature.name, signature.fields, place)
    else:
        reads = None if signature.hint is Any else adapter_of(signature.hint, f"the payload of {place}")
    writes = None if signature.result is Any else adapter_of(signature.result, f"the result of {place}")
    streams = _is(function, inspect.isgeneratorfunction) or _is(function, inspect.isasyncgenfunction)
    is_async = _is(function, inspect.iscoroutinefunction) or _is(function, inspect.isasyncgenfunction)
    handler = Handler(capability_id, function, is_async, streams, signature, reads, writes, {})
    return handler.with_output_schema(handler.declaration().get("output_schema", {}))


def _is(function: Function, kind: Any) -> bool:
    """Whether a function is of a kind, or the class that it is an instance of makes it so."""
    return bool(kind(function) or kind(getattr(type(innermost(function)), "__call__", None)))  # noqa: B004 - its own


def _description(function: Function) -> str:
    """The first paragraph of its docstring, in one line."""
    text = inspect.cleandoc(getattr(innermost(function), "__doc__", None) or "")
    return " ".join(text.split("\n\n")[0].split())


def _in_words(found: list[tuple[str, str]]) -> str:
    told = "; ".join(f"{pointer}: {words}" if pointer else words for pointer, words in found[:MOST_TOLD])
    more = len(found) - MOST_TOLD
    return f"{told}; and {more} more" if more > 0 else told
