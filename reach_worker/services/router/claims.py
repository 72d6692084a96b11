"""Claims: of two routers that get one task id at the same moment, only the first one begins.

A task that waits in a router's window is in no store and on no queue but the one it came from. As long as other routers
share the store, a router therefore says there that it begins, before it does, and sees whether another one was
first. A claim ends by what is recorded next of the task; or with the session that brought its message, which then comes
again to whichever router is there; or with its router.
"""

from collections.abc import Iterable
from typing import Final

from reach_worker.core.duplicates import Fresh, InHand, KnownTask
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.ports import Claimed, Row, Store, Unclaimed
from reach_worker.services.router.desk import Desk

LASTS_US: Final = 60 * MICROSECONDS
"""A router holds no task longer than its hold time without recording something of it: a claim that is older is void."""


class Claims:
    """This router's claims. Without other routers nothing is claimed; while the store is away everything is begun."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store
        self._together = False
        self._session = 0

    async def begin_turn(self) -> None:
        """Give up what was claimed in another session: the messages come again, to us or to another router.

        So do those that an earlier process of this router had claimed: it is gone, and we live under its name.
        """
        if self._session != self._desk.session:
            self._session = self._desk.session
            await self._store.record([Unclaimed(self._desk.router_id, self._desk.clock.utc_us())])

    async def make(
        self,
        wishes: Iterable[tuple[str, Fresh | InHand]],
        known: dict[str, KnownTask],
    ) -> dict[str, int]:
        """The tasks that may begin now, with their life; ``known`` is brought up to date with who holds the others.

        A wish: a task id, and how the task stands.
        """
        wanted: dict[str, Claimed] = {}
        for task_id, standing in wishes:
            claim = self._claim(task_id, standing, known.get(task_id))
            if claim is not None:
                wanted[task_id] = claim
        if not wanted or not await self._store.record(list(wanted.values())):
            return {task_id: claim.life for task_id, claim in wanted.items()}
        now = await self._store.known_tasks(list(wanted))
        known.update(now)
        granted = {}
        for task_id, claim in wanted.items():
            found = now.get(task_id)
            if found is None or (found.life, found.claimed_by) == (claim.life, claim.router):
                granted[task_id] = claim.life
        return granted

    def rows(self) -> list[Row]:
        """Another router has come: what waits here was begun before it could have known."""
        was, self._together = self._together, not self._desk.alone()
        if was or not self._together:
            return []
        hands, now_us = self._desk.hands, self._desk.clock.utc_us()
        return [
            Claimed(task_id, waiting.admitted.envelope.life, self._desk.router_id, now_us)
            for task_id, waiting in hands.waiting.items()
        ]

    # -- inside

    def _claim(self, task_id: str, standing: Fresh | InHand, known: KnownTask | None) -> Claimed | None:
        now_us, me = self._desk.clock.utc_us(), self._desk.router_id
        match standing:
            case Fresh(life):
                begins = known is None or known.life < life
                return Claimed(task_id, life, me, now_us) if begins and not self._desk.alone() else None
            case InHand(life, router, since):
                holds = router != me and now_us - since <= LASTS_US and self._desk.lives(router)
                instead = Claimed(task_id, life, me, now_us, instead_of=router, instead_at=since)
                return None if holds else instead
