"""An async iterator that lets go of what it holds as soon as nobody reads it any more."""

from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")


class Closing(Generic[Item]):
    """To be read with ``async for``. ``async with`` around that ends it at once where the reading stops early.

    Without it, it ends as soon as it is forgotten, which is a moment later.
    """

    def __init__(self, items: AsyncGenerator[Item, None]) -> None:
        self._items = items

    def __aiter__(self) -> AsyncIterator[Item]:
        return self._items

    async def __anext__(self) -> Item:
        return await anext(self._items)

    async def aclose(self) -> None:
        """Stop. What is still under way for it is cancelled."""
        await self._items.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
