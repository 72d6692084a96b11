"""Looks at the run again and again, keeps board and screen up to date, and lets others wait for what they show."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from reach_worker.demo.board import Board
from reach_worker.demo.caller import Caller
from reach_worker.demo.screen import Screen
from reach_worker.demo.telling import told
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.store.tail import Tail

LOOK_S: Final = 0.1


class TooLong(OutsideWorld):
    """Something did not happen in its time."""


class Watch:
    """The one who looks."""

    def __init__(self, caller: Caller, store: Path, board: Board, screen: Screen, clock: Clock) -> None:
        self._caller = caller
        self._tail = Tail(store)
        self._board = board
        self._screen = screen
        self._clock = clock
        self._looked = asyncio.Condition()

    async def run(self) -> None:
        """Look until cancelled. Raises ``StoreUnavailable`` if the reach log cannot be read any more."""
        async with AsyncExitStack() as stack:
            following = False
            while True:
                if self._board.router_up and not following:  # by then the router has made the store
                    await stack.enter_async_context(self._tail)
                    following = True
                await self._look(following=following)
                await self._clock.sleep(LOOK_S)

    async def until(self, met: Callable[[], bool], what: str, limit_s: float) -> None:
        """Wait until it is so. ``what`` says it in words. Raises :class:`TooLong`."""
        try:
            async with asyncio.timeout(limit_s), self._looked:
                await self._looked.wait_for(met)
        except TimeoutError as error:
            raise TooLong(f"{what}: not within {limit_s:g} s") from error

    async def _look(self, *, following: bool) -> None:
        heard = await self._caller.hear()
        news = await self._tail.news() if following else []
        self._board.hear(heard, self._clock.monotonic())
        self._board.read(news)
        self._screen.tell(told(heard, news, self._board))
        self._screen.show()
        async with self._looked:
            self._looked.notify_all()
