"""The store in memory: for tests of the services, and for a router that shall keep no history."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from reach_worker.core.duplicates import KnownTask
from reach_worker.core.success import TrackRecord
from reach_worker.ports import (
    Accepted,
    Claimed,
    Dispatched,
    Ended,
    Feedback,
    Joined,
    KnownDispatch,
    ManifestSeen,
    OutcomeSeen,
    Row,
    Standing,
    Started,
    Unclaimed,
)
from reach_worker.store.counts import count
from reach_worker.store.facts import Life, OfLife, counts_for, known_dispatch, learn, with_claim


@dataclass(slots=True)
class MemoryStore:
    """The ``Store`` port on plain dictionaries. Passes the same suite as :class:`SqliteStore`.

    ``rows``: everything recorded, in order, for a test to look at. While ``away`` is set, nothing is known
    and ``record`` gives ``False``; what it was given meanwhile is known once ``away`` is unset.
    """

    rows: list[Row] = field(default_factory=list)
    away: bool = False
    _known_rows: int = 0
    _lives: dict[str, Life] = field(default_factory=dict)
    _claims: dict[str, Claimed] = field(default_factory=dict)
    _ended: set[tuple[str, int]] = field(default_factory=set)
    _dispatches: dict[str, KnownDispatch] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)
    _settled: set[str] = field(default_factory=set)
    _waiters: dict[str, dict[tuple[str, str | None], Joined]] = field(default_factory=dict)
    _manifests: dict[str, ManifestSeen] = field(default_factory=dict)
    _record: TrackRecord = field(default_factory=TrackRecord.empty)

    async def record(self, rows: Sequence[Row], *, patient: bool = False) -> bool:  # noqa: ARG002 - the port's
        """Keep the rows."""
        self.rows.extend(rows)
        return self._there()

    async def known_tasks(self, task_ids: Sequence[str]) -> dict[str, KnownTask]:
        """What is known of these task ids."""
        if not self._there():
            return {}
        known = {id_: self._lives[id_].known() for id_ in task_ids if id_ in self._lives}
        for id_ in task_ids:
            if id_ in self._claims:
                known[id_] = with_claim(known.get(id_), self._claims[id_])
        return known

    async def known_dispatches(self, dispatch_ids: Sequence[str]) -> dict[str, KnownDispatch]:
        """What is known of these dispatches."""
        if not self._there():
            return {}
        return {id_: self._known(self._dispatches[id_]) for id_ in dispatch_ids if id_ in self._dispatches}

    async def open_dispatches(self, router: str) -> list[KnownDispatch]:
        """Dispatches of a router without a current outcome, whose task has not ended."""
        if not self._there():
            return []
        of_router = [self._known(one) for one in self._dispatches.values() if one.router == router]
        unsettled = [
            one for one in of_router if not one.settled and (one.task_id, one.life) not in self._ended
        ]
        return sorted(unsettled, key=lambda one: one.at)

    async def waiters(self, task_ids: Sequence[str]) -> dict[str, list[Joined]]:
        """Who else waits for these tasks, in the order they came."""
        if not self._there():
            return {}
        found = {id_: self._waiters[id_].values() for id_ in task_ids if id_ in self._waiters}
        return {id_: sorted(waiting, key=lambda row: row.at) for id_, waiting in found.items()}

    async def track_record(self) -> TrackRecord:
        """The statistics of every agent on every capability."""
        return deepcopy(self._record) if self._there() else TrackRecord.empty()

    async def manifests(self) -> list[str]:
        """The manifest of every agent that was seen last, as JSON."""
        return (
            [self._manifests[agent_id].body for agent_id in sorted(self._manifests)] if self._there() else []
        )

    def _there(self) -> bool:
        if self.away:
            return False
        new, self._known_rows = self.rows[self._known_rows :], len(self.rows)
        for row in new:
            if not isinstance(row, Dispatched) or self._takes(row):
                if isinstance(row, OfLife):
                    learn(self._lives, row)
                self._learn(row)
        return True

    def _learn(self, row: Row) -> None:
        match row:
            case Unclaimed():
                self._drop_claims(row)
            case Claimed() | Accepted():
                self._learn_claim(row)
            case Dispatched():
                self._dispatches.setdefault(row.dispatch_id, known_dispatch(row))
            case Started():
                self._started.add(row.dispatch_id)
            case OutcomeSeen(standing=Standing.CURRENT):
                self._settle(row)
            case Ended():
                self._ended.add((row.task_id, row.life))
            case Joined():
                self._waiters.setdefault(row.task_id, {}).setdefault((row.reply_to, row.correlation_id), row)
            case Feedback():
                self._record.touch(row.agent_id, row.capability).judged(row.at / 1e6, row.verdict)
            case ManifestSeen():
                last = self._manifests.setdefault(row.agent_id, row)
                self._manifests[row.agent_id] = max(last, row, key=lambda seen: seen.at)
            case _:
                pass  # no question is ever asked about it

    def _takes(self, row: Dispatched) -> bool:
        life = self._lives.get(row.task_id)
        return life is None or life.life != row.life or life.takes(row)

    def _drop_claims(self, lost: Unclaimed) -> None:
        claims = self._claims.items()
        self._claims = {id_: one for id_, one in claims if one.router != lost.router or one.at > lost.at}

    def _learn_claim(self, row: Claimed | Accepted) -> None:
        held = self._claims.get(row.task_id)
        match row:
            case Claimed():
                accepted = self._lives.get(row.task_id)
                if counts_for(row, held) and (accepted is None or accepted.life < row.life):
                    self._claims[row.task_id] = row
            case Accepted() if held is not None and held.life <= row.life:
                del self._claims[row.task_id]
            case _:
                pass

    def _settle(self, row: OutcomeSeen) -> None:
        if row.dispatch_id in self._settled:
            return
        self._settled.add(row.dispatch_id)
        seconds = None if row.duration_ms is None else row.duration_ms / 1000
        count(self._record, row.agent_id, row.capability, row.outcome, row.at, seconds)

    def _known(self, one: KnownDispatch) -> KnownDispatch:
        return replace(
            one, started=one.dispatch_id in self._started, settled=one.dispatch_id in self._settled
        )
