"""Claims: of two routers that get one task id at the same moment, only the first one begins.

A task that waits in a router's window is in no store and on no queue but the one it came from. As long as other routers
share the store, a router therefore says there that it begins, before it does, and sees whether another one was
first. A claim ends by what is recorded next of the task; or with the session that brought its message, which then comes
again to whichever router is there; or with its router.
"""

from collections.abc import Iterable
from typing import Final

from reach_worker.core.duplicates import Fresh, InHand, KnownTask, StaleCopy, standing_of_returned
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.ports import Claimed, Store, Unclaimed
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.hands import Waiting

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
        if not wanted:
            return {}
        recorded = await self._store.record(list(wanted.values()))
        self._desk.recording.away = not recorded
        if not recorded:
            self._together = False
            return {task_id: claim.life for task_id, claim in wanted.items()}
        now = await self._store.known_tasks(list(wanted))
        known.update(now)
        granted = {}
        for task_id, claim in wanted.items():
            found = now.get(task_id)
            if found is None or (found.life, found.claimed_by) == (claim.life, claim.router):
                granted[task_id] = claim.life
        return granted

    async def catch_up(self) -> list[Step]:
        """Another router has come, or the store is back: what waits here was begun before anybody could have known.

        It is claimed now. What the other one was first with is handled again, as if it had come a moment later: nothing
        is recorded of it, for an outcome that is recorded as settled leads to nothing more.
        """
        if self._desk.recording.away:
            return []
        was, self._together = self._together, not self._desk.alone()
        if was or not self._together:
            return []
        # One that we recorded a dispatch of and could not send is ours; the store does not know yet that it stays.
        waiting = [one for one in self._desk.hands.waiting.values() if not one.unsent]
        me = self._desk.router_id
        if not waiting:
            return []
        now_us = self._desk.clock.utc_us()
        claims = [Claimed(w.ask.task_id, w.admitted.envelope.life, me, now_us) for w in waiting]
        if not await self._store.record(claims):
            self._together = False
            return []
        known = await self._store.known_tasks([claim.task_id for claim in claims])
        lost = [w for w in waiting if self._is_anothers(w, known.get(w.ask.task_id))]
        for one in lost:
            self._desk.hands.take(one.ask.task_id)
        return [Step([one.delivery], put_off=True) for one in lost]

    # -- inside

    def _is_anothers(self, waiting: Waiting, known: KnownTask | None) -> bool:
        standing = standing_of_returned(waiting.admitted.envelope, known)
        if isinstance(standing, InHand):
            return standing.router != self._desk.router_id
        return isinstance(standing, StaleCopy)

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
