"""What rows say about a task, in whatever order they come.

Every fact moves one way only: the highest life, the latest dispatch, the first end, a set of settled
dispatches. So a row may come twice (a redelivery after a crash), late (a spill file read back) or in another
order (two routers on one file), and the same is known in the end. The SQL in ``statements`` keeps the same
facts on disk; the tests hold the two against each other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.ports import (
    Accepted,
    Claimed,
    Decided,
    Dispatched,
    Ended,
    KnownDispatch,
    OutcomeSeen,
    Parked,
    Row,
    Standing,
    Started,
    Unsent,
)

OfLife = Accepted | Decided | Dispatched | Unsent | OutcomeSeen | Ended | Parked
"""Rows that speak of one life of a task."""


@dataclass(slots=True)
class Life:
    """What is known of one life of a task. ``attempts``: the dispatches that ended other than released.

    ``dropped``: dispatches with an outcome that nobody acted on. ``sent``: dispatches, each with the one before it.
    """

    task_id: str
    life: int
    router: str = ""
    latest: tuple[int, int, str] = (0, 0, "")
    holder: str | None = None
    parked_at: int = 0
    end: Ended | None = None
    settled: set[str] = field(default_factory=set)
    attempts: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    sent: dict[str, str] = field(default_factory=dict)
    unsent: set[str] = field(default_factory=set)
    caller: str = ""

    def learn(self, row: OfLife) -> None:
        """Take in a row of this life."""
        match row:
            case Accepted():
                self.router = self.router or row.router
                self.caller = self.caller or row.caller
            case Dispatched():
                self.send(row)
            case OutcomeSeen():
                self.see(row.dispatch_id, row.outcome, row.standing)
            case Unsent():
                self.unsent.add(row.dispatch_id)
            case Parked():
                self.parked_at = max(self.parked_at, row.at)
            case Ended():
                if self.end is None or resolves(row, self.end):
                    self.end = row
            case Decided():
                pass

    def send(self, row: Dispatched) -> None:
        """A dispatch."""
        if not self.takes(row):
            return
        latest = (row.attempt, row.at, row.dispatch_id)
        if latest > self.latest:
            self.latest, self.holder = latest, row.router
        if row.after is not None:
            self.sent.setdefault(row.dispatch_id, row.after)

    def takes(self, row: Dispatched) -> bool:
        """It may be recorded: nothing stands in its place, or that does not matter."""
        taken = any(
            after == row.after and sent != row.dispatch_id and sent not in self.unsent
            for sent, after in self.sent.items()
        )
        return not (row.only_first and (taken or self.end is not None))

    def see(self, dispatch_id: str, outcome: OutcomeClass, standing: Standing) -> None:
        """An outcome of a dispatch."""
        if standing is not Standing.CURRENT:
            self.dropped.add(dispatch_id)
            return
        self.settled.add(dispatch_id)
        if outcome is not OutcomeClass.RELEASED:
            self.attempts.add(dispatch_id)

    def known(self) -> KnownTask:
        """The same, as the port has it."""
        _, dispatched_at, dispatch_id = self.latest
        gone = self.unsent | (self.dropped - self.settled)
        sent = tuple((one, after) for one, after in self.sent.items() if one not in gone)
        left = frozenset(self.sent[one] for one in self.unsent if one in self.sent)
        if self.end is not None:
            state = self.end.state
        else:
            state = TaskState.UNMATCHED if self.parked_at > dispatched_at else TaskState.UNDER_WAY
        return KnownTask(
            task_id=self.task_id,
            life=self.life,
            state=state,
            router=self.router if self.holder is None else self.holder,
            dispatch_id=dispatch_id if dispatch_id and dispatch_id not in self.settled else None,
            attempts_ended=len(self.attempts),
            remember_until=self.end.remember_until if self.end else 0,
            answer=self.end.answer if self.end else None,
            dispatched_at=dispatched_at,
            outcome_unknown=self.end is not None and self.end.reason is DeadLetterReason.OUTCOME_UNKNOWN,
            sent=sent,
            out=frozenset(one for one, _ in sent if one not in self.settled),
            left=left,
            caller=self.caller,
        )


def resolves(late: Ended, first: Ended) -> bool:
    """The first end of a life counts; but a success resolves a dead letter whose outcome was unknown."""
    return (
        first.reason is DeadLetterReason.OUTCOME_UNKNOWN
        and late.state is TaskState.SUCCEEDED
        and first.state is not TaskState.SUCCEEDED
    )


def learn(newest: dict[str, Life], row: OfLife) -> None:
    """Take a row into the newest life of its task; one of an earlier life says nothing about it."""
    life = newest.get(row.task_id)
    if life is None or row.life > life.life:
        life = newest[row.task_id] = Life(row.task_id, row.life)
    if row.life == life.life:
        life.learn(row)


def counts_for(claim: Claimed, held: Claimed | None) -> bool:
    """Whether this claim takes the place of the one that is there: the first one counts.

    Its router may renew it, and another may take it over; and a later life is another matter.
    """
    if held is None or claim.life > held.life:
        return True
    over = (held.router, held.at) == (claim.instead_of, claim.instead_at)
    return claim.life == held.life and (claim.router == held.router or over)


def with_claim(known: KnownTask | None, claim: Claimed) -> KnownTask:
    """What is known of a task, and of the router that has begun with its next life."""
    if known is not None and known.life >= claim.life:
        return known
    return KnownTask(
        claim.task_id,
        claim.life,
        TaskState.UNDER_WAY,
        claim.router,
        dispatch_id=None,
        attempts_ended=0,
        remember_until=0,
        answer=None,
        claimed_by=claim.router,
        claimed_at=claim.at,
    )


def completed(dispatches: Iterable[KnownDispatch], rows: Iterable[Row]) -> dict[str, KnownDispatch]:
    """What is known of dispatches after these rows: more of them, starts and current outcomes."""
    known = {one.dispatch_id: one for one in dispatches}
    later: list[Started | OutcomeSeen] = []
    for row in rows:
        if isinstance(row, Dispatched):
            known.setdefault(row.dispatch_id, known_dispatch(row))
        elif isinstance(row, Started | OutcomeSeen) and not stale(row):
            later.append(row)
    for row in later:
        one = known.get(row.dispatch_id)
        if one is not None:
            known[row.dispatch_id] = (
                replace(one, started=True) if isinstance(row, Started) else replace(one, settled=True)
            )
    return known


def stale(row: Started | OutcomeSeen) -> bool:
    """An outcome that nobody acted on."""
    return isinstance(row, OutcomeSeen) and row.standing is Standing.STALE


def known_dispatch(row: Dispatched) -> KnownDispatch:
    """A dispatch of which nothing more is known."""
    return KnownDispatch(
        dispatch_id=row.dispatch_id,
        task_id=row.task_id,
        life=row.life,
        attempt=row.attempt,
        agent_id=row.agent_id,
        capability=row.capability,
        decision_id=row.decision_id,
        router=row.router,
        at=row.at,
        started=False,
        settled=False,
    )
