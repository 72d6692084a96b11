"""Handlers that are generators: what they yield goes to the caller at once, and together it is their result."""

from collections.abc import AsyncGenerator, Generator
from typing import Any, TypeGuard

from reach_worker.agent.context import Context


def is_generator(value: object) -> TypeGuard[Generator[Any, None, Any]]:
    """A plain generator that was made by calling a generator function."""
    return isinstance(value, Generator)


def drained(chunks: Generator[Any, None, Any], context: Context) -> Any:
    """Send what a plain generator yields, in the thread it runs in; what it returns, else all it yielded."""
    said: list[Any] = []
    returned = yield_from(chunks, said, context)
    return together(said) if returned is None else returned


def yield_from(chunks: Generator[Any, None, Any], said: list[Any], context: Context) -> Any:
    """Send each chunk and keep it; gives what the generator returns."""
    try:
        while True:
            chunk = next(chunks)
            said.append(chunk)
            context.stream(chunk)
    except StopIteration as end:
        return end.value
    finally:
        chunks.close()


async def streamed(chunks: AsyncGenerator[Any, None], context: Context) -> Any:
    """Send what an async generator yields; all of it together is the result."""
    said: list[Any] = []
    try:
        async for chunk in chunks:
            said.append(chunk)
            await context.stream(chunk)
    finally:
        await chunks.aclose()
    return together(said)


def together(said: list[Any]) -> Any:
    """Text where all chunks are text, else the list of them."""
    return "".join(said) if all(isinstance(chunk, str) for chunk in said) else said
