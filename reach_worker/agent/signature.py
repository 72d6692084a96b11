"""What a function's parameters and type hints say: if it takes the payload whole or by its fields, and what it gives.

One parameter takes the context: the one with the hint ``Context``, or a second one without a hint. If one is left and an
object fits its hint (a model, a dataclass, a mapping, no hint), it is the payload. Otherwise each one is a field of it.
"""

import functools
import inspect
import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from typing import Annotated, Any, Final, Never, NoReturn, Union, get_args, get_origin, get_type_hints

from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import InsteadOfResult
from reach_worker.agent.schemas import MAPPINGS, takes_object
from reach_worker.errors import BadInput, Problem

Function = Callable[..., Any]

_GENERATORS: Final = (Generator, AsyncGenerator)
_STREAMS: Final = (*_GENERATORS, Iterator, AsyncIterator, AsyncIterable)
_PROMISES: Final = (Awaitable, Coroutine)
_ANYTHING: Final = (Any, object, inspect.Parameter.empty, Never, NoReturn)
_NAMES_OF_CONTEXT: Final = ("context", "ctx")
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_HOW: Final = (
    "takes the payload, or the payload and a context, or the payload's fields, each with a type hint"
)


@dataclass(frozen=True, slots=True)
class Signature:
    """How a handler is called.

    ``payload``, ``context``: the parameters for the whole payload and for the context, if it has them. ``fields``: the
    parameters that are fields of the payload, where none takes it whole; their hints and defaults. ``order``: the
    parameters that are given by position. ``hint``: the payload's type, ``Any`` for an object as it came. ``result``:
    the type of what it returns, ``Any`` where that is not said, or where it gives a stream of chunks.
    """

    name: str
    payload: str | None
    context: str | None
    fields: Mapping[str, inspect.Parameter]
    order: tuple[str, ...]
    hint: Any
    result: Any


def read_signature(function: Function) -> Signature:
    """The signature of a handler. Raises ``BadInput`` for one that cannot be called with a payload."""
    hints = _hints(function)
    parameters = {
        name: parameter.replace(annotation=hints.get(name, inspect.Parameter.empty))
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    }
    context = _context(function, parameters)
    rest = {name: each for name, each in parameters.items() if name != context}
    payload = _whole_payload(function, rest)
    return Signature(
        name=name_of(function),
        payload=payload,
        context=context,
        fields={} if payload is not None else _fields(function, rest),
        order=tuple(
            name
            for name, each in parameters.items()
            if each.kind in _POSITIONAL and (payload is None or name in (payload, context))
        ),
        hint=Any if payload is None else _type(rest[payload].annotation),
        result=result_type(hints.get("return", Any)),
    )


def name_of(function: Function) -> str:
    """What people call it."""
    inner = innermost(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def innermost(function: Function) -> Function:
    """The function itself, without what ``functools.partial`` gave it in advance."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def result_type(hint: Any) -> Any:
    """The type of a result: what is awaited for; without what may come instead; what a generator returns at its end."""
    hint, origin = _type(hint), get_origin(hint) or hint
    if origin in _PROMISES:
        return result_type(next(reversed(get_args(hint)), Any))
    if origin in _GENERATORS and len(get_args(hint)) == 3:  # noqa: PLR2004 - yields, is sent, returns
        last = get_args(hint)[-1]
        return Any if last in (None, type(None)) else result_type(last)
    if origin in _STREAMS:
        return Any
    if origin not in (Union, types.UnionType):
        return Any if _instead(hint) else hint
    kept = tuple(each for each in get_args(hint) if not _instead(each))
    return Union[kept] if kept else Any  # noqa: UP007 - of as many as there are


def _type(hint: Any) -> Any:
    """The hint, ``Any`` where it says no more than that there is an object."""
    bare = hint in MAPPINGS or (get_origin(hint) in MAPPINGS and _type(get_args(hint)[1]) is Any)
    return Any if bare or any(hint is each for each in _ANYTHING) else hint


def _instead(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, InsteadOfResult)


def _hints(function: Function) -> dict[str, Any]:
    inner = innermost(function)
    source = inner if inspect.isroutine(inner) or not callable(inner) else type(inner).__call__
    # Linters like to move the import of a mere hint under TYPE_CHECKING; this one is known anyway.
    known = {Context.__name__: Context, **getattr(inspect.unwrap(source), "__globals__", {})}
    try:
        return get_type_hints(source, globalns=known, include_extras=True)
    except NameError as error:
        hint = "import it where Python runs, not only under TYPE_CHECKING, and define it outside of functions"
        message = f"handler {name_of(function)!r}: its type hint {error.name!r} means nothing when it runs"
        raise BadInput(Problem(message, hint=hint)) from None
    except TypeError:  # a built-in has none
        return {}


def _context(function: Function, parameters: Mapping[str, inspect.Parameter]) -> str | None:
    marked = [name for name, each in parameters.items() if _is_context(each.annotation)]
    if len(marked) > 1:
        raise BadInput(f"handler {name_of(function)!r}: {' and '.join(marked)} both take the context")
    if marked:
        return marked[0]
    match [each for each in parameters.values() if each.kind in _POSITIONAL]:
        case [first, second] if _may_be_payload(function, first):
            unmarked = second.annotation is second.empty or second.name in _NAMES_OF_CONTEXT
            return second.name if unmarked else None
        case _:
            return None


def _is_context(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Annotated):
        return any(_is_context(each) for each in get_args(hint))
    return isinstance(hint, type) and issubclass(hint, Context)


def _whole_payload(function: Function, rest: Mapping[str, inspect.Parameter]) -> str | None:
    positional = [each for each in rest.values() if each.kind in _POSITIONAL]
    others_have_defaults = all(
        each.default is not each.empty for each in rest.values() if each not in positional
    )
    if len(positional) == 1 and others_have_defaults and _may_be_payload(function, positional[0]):
        return positional[0].name
    return None


def _may_be_payload(function: Function, parameter: inspect.Parameter) -> bool:
    hint = _type(parameter.annotation)
    return hint is Any or takes_object(hint, place=f"parameter {parameter.name!r} of {name_of(function)!r}")


def _fields(function: Function, rest: Mapping[str, inspect.Parameter]) -> Mapping[str, inspect.Parameter]:
    bare = [name for name, each in rest.items() if each.annotation is each.empty]
    if bare:
        problem = f"handler {name_of(function)!r}: {', '.join(bare)} without a type hint; a handler {_HOW}"
        raise BadInput(Problem(problem, hint="def query(sql: str, limit: int = 10, ctx: Context = …)"))
    return rest
