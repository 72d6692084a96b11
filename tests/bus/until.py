"""Waiting for something to come true, without ever sleeping for a guessed time."""

import inspect
import operator
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryError, retry_if_result, stop_after_delay, wait_fixed

LIMIT_S = 20.0
"""No wait of these tests is longer, on a busy machine either."""


async def until(condition: Callable[[], bool | Awaitable[bool]], limit_s: float = LIMIT_S) -> None:
    """Look again and again until the condition holds; a limit that is passed fails the test."""

    async def holds() -> bool:
        found = condition()
        return await found if inspect.isawaitable(found) else found

    looking = AsyncRetrying(
        stop=stop_after_delay(limit_s), wait=wait_fixed(0.02), retry=retry_if_result(operator.not_)
    )
    try:
        await looking(holds)
    except RetryError as error:
        raise AssertionError(f"did not come true within {limit_s:g} s") from error
