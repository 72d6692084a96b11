"""One look for the audit, and looking again: the store at one moment, then the broker, then whoever answers.

The store comes first. What it says was sent had been sent, so a letter that it knows of must be found after it; what
is found and not known there is asked for once more.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reach_worker import wiring
from reach_worker.cli.roll_call import Heard, known_manifests, listen
from reach_worker.core.audit import Held, Key, OpenLife, Orphan, Patience, orphan, place, still
from reach_worker.core.backoff import RUNGS_MS, rung_ms
from reach_worker.core.dead_letter import Filter
from reach_worker.core.duplicates import TaskState
from reach_worker.core.manifest import Manifest
from reach_worker.core.names import Names
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.settings import Settings
from reach_worker.store.conservation import Conservation, DeadTask, DoubledEnd

NAMED: Final = 1000
"""Of each kind of oddity so many are named; all are counted."""
SLACK_S: Final = 15.0
LONGEST_PAUSE_S: Final = 8.0


@dataclass(slots=True)
class Named:
    """Oddities of one kind: how many there are, and the first of them."""

    count: int = 0
    first: list[Mapping[str, object]] = field(default_factory=list)

    def add(self, **what: object) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < NAMED:
            self.first.append(what)


@dataclass(slots=True)
class Report:
    """What the audit found. ``unchecked``: what could not be looked at, and why."""

    accepted: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    open: int = 0
    waiting: Counter[str] = field(default_factory=Counter)
    doubled: list[DoubledEnd] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    letters_gone: Named = field(default_factory=Named)
    letters_left: Named = field(default_factory=Named)
    unknown: Named = field(default_factory=Named)
    letters: int = 0
    unmatched: int = 0
    spilled: int = 0
    unreadable: int = 0
    unchecked: list[str] = field(default_factory=list)
    strict: bool = False
    suspects: list[OpenLife] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every accepted task is accounted for, as far as was asked, and everything was looked at."""
        lost = self.orphans or self.doubled or self.unreadable or self.unchecked
        return not lost and not (self.strict and self.letters_gone.count)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: lives first seen since then; ``strict``: no dead letter may have left the dlq unseen."""

    since_us: int = 0
    strict: bool = False
    patience_s: float = 40.0
    listen_s: float = 1.5


@dataclass(slots=True)
class Broker:
    """What the broker holds. ``None`` where nobody could look."""

    letters: dict[Key, bool] | None = None
    unmatched: dict[Key, bool] | None = None
    heard: Heard | None = None
    depths: dict[str, tuple[int, int]] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)


async def audit(settings: Settings, question: Question, clock: Clock) -> Report:
    """Look, and while there are suspects look again, until they have moved or the patience is over."""
    manifests = await known_manifests(settings)
    ends_at = clock.monotonic() + question.patience_s
    before: set[tuple[object, ...]] | None = None
    pause_s = 1.0
    while True:
        report = await _look(settings, question, manifests, clock)
        report.suspects = still(report.suspects, before)
        left_s = ends_at - clock.monotonic()
        gone = question.strict and report.letters_gone.count
        if report.unchecked or not (report.suspects or gone) or left_s <= 0:
            break
        before = {one.position for one in report.suspects}
        await clock.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    if not report.unchecked:
        report.orphans = [orphan(one) for one in report.suspects if one.first_seen >= question.since_us]
    return report


async def _look(
    settings: Settings, question: Question, manifests: Mapping[str, Manifest], clock: Clock
) -> Report:
    report = Report(strict=question.strict)
    try:
        async with Conservation(settings.store.path) as store:
            await _count(report, store, question)
            lives = await store.open_lives()
            broker = await _ask(settings, question, manifests, lives)
            report.unchecked += broker.unchecked
            if broker.letters is not None:
                async for dead in store.dead(question.since_us):
                    _dead(report, dead, broker.letters)
    except OutsideWorld as error:
        report.unchecked.append(f"the store: {error}; no end and no open task was looked at")
        broker = await _ask(settings, question, manifests, [])
        report.unchecked += broker.unchecked
        _count_letters(report, broker)
        return report
    _count_letters(report, broker)
    held = _held(settings, manifests, lives, broker)
    placed = place(lives, held, patience_of(settings, manifests), clock.utc_us())
    report.suspects = placed.suspects
    report.waiting = placed.waiting
    await _compare(settings, report, broker)
    return report


async def _count(report: Report, store: Conservation, question: Question) -> None:
    states = await store.states(question.since_us)
    report.open = states.pop("open", 0)
    report.ended = states
    report.accepted = report.open + sum(states.values())
    report.doubled = await store.doubled(question.since_us)
    report.spilled, report.unreadable = store.spilled, store.unreadable


def _count_letters(report: Report, broker: Broker) -> None:
    report.letters = len(broker.letters or ())
    report.unmatched = len(broker.unmatched or ())


def _dead(report: Report, dead: DeadTask, letters: Collection[Key]) -> None:
    if (dead.task_id, dead.life) not in letters:
        report.letters_gone.add(
            task_id=dead.task_id, life=dead.life, reason=dead.reason, ended_at=dead.ended_at
        )


async def _compare(settings: Settings, report: Report, broker: Broker) -> None:
    """What is in dlq and unmatched, by what the store knows of it now."""
    found = [("dlq", key, outcome) for key, outcome in (broker.letters or {}).items()]
    found += [("unmatched", key, False) for key in broker.unmatched or ()]
    if not found:
        return
    try:
        async with Conservation(settings.store.path) as store:
            known = await store.known({task_id for _, (task_id, _), _ in found})
    except OutsideWorld as error:
        report.unchecked.append(
            f"the store, which is away by now: {error}; what lies in dlq was not compared"
        )
        return
    wanted = {"dlq": TaskState.DEAD_LETTER, "unmatched": TaskState.UNMATCHED}
    for queue, key, outcome in found:
        state = known.get(key)
        if state is None:
            report.unknown.add(task_id=key[0], life=key[1], where=queue, is_outcome=outcome)
        elif state is not wanted[queue]:
            report.letters_left.add(task_id=key[0], life=key[1], where=queue, state=state.value)


# -- the broker


async def _ask(
    settings: Settings, question: Question, manifests: Mapping[str, Manifest], lives: Sequence[OpenLife]
) -> Broker:
    broker = Broker()
    try:
        try:
            async with asyncio.timeout(question.listen_s + 2 * settings.broker.call_timeout_s):
                broker.heard = await listen(settings, {*manifests, *_agents(lives)}, question.listen_s)
        except TimeoutError:
            broker.unchecked.append(
                "who is there: the broker takes no question now (a memory or disk alarm?)"
            )
        broker.depths = await _depths(settings, manifests, lives, broker.heard or Heard())
        broker.letters = await _keys(settings, unmatched=False)
        broker.unmatched = await _keys(settings, unmatched=True)
    except* OutsideWorld as group:
        words = dict.fromkeys(str(error) for error in group.exceptions)
        broker.unchecked.append(
            f"the broker: {'; '.join(words)}; no open task was placed, no letter looked for"
        )
    return broker


async def _keys(settings: Settings, *, unmatched: bool) -> dict[Key, bool]:
    """Whose messages are in dlq or unmatched, and whether one is an outcome. Looking changes nothing there."""
    found: dict[Key, bool] = {}
    async with wiring.dead_letters(settings, unmatched=unmatched) as letters:
        async for item in letters.walk(Filter()):
            found[item.letter.task_id, item.letter.envelope.life] = item.letter.is_outcome
    return found


def _agents(lives: Iterable[OpenLife]) -> set[str]:
    return {life.agent_id for life in lives if life.agent_id}


async def _depths(
    settings: Settings, manifests: Mapping[str, Manifest], lives: Sequence[OpenLife], heard: Heard
) -> dict[str, tuple[int, int]]:
    """Messages ready and consumers of every queue that an open task may be in; a missing queue holds nothing."""
    names = Names(settings.broker.prefix)
    queues = [names.intake, names.returns, *(names.retry(rung) for rung in RUNGS_MS)]
    queues += [names.outcomes(router) for router in _routers(settings, lives, heard)]
    queues += [names.agent(agent) for agent in sorted({*manifests, *_agents(lives), *heard.depths})]
    queues += [names.lane(capability) for capability in sorted(_capabilities(manifests, lives))]
    async with wiring.visiting_bus(settings, "audit") as bus:
        return {queue: await bus.depth(queue) or (0, 0) for queue in queues}


def _routers(settings: Settings, lives: Iterable[OpenLife], heard: Heard) -> list[str]:
    return sorted({settings.router.id, *heard.routers, *(life.router for life in lives if life.router)})


def _capabilities(manifests: Mapping[str, Manifest], lives: Iterable[OpenLife]) -> set[str]:
    declared = {each.id for manifest in manifests.values() for each in manifest.capabilities}
    return declared | {life.capability for life in lives if life.capability}


def _held(
    settings: Settings, manifests: Mapping[str, Manifest], lives: Sequence[OpenLife], broker: Broker
) -> Held:
    names, depths, heard = Names(settings.broker.prefix), broker.depths, broker.heard or Heard()
    agents = {*manifests, *_agents(lives), *heard.depths}
    ready = {queue: depth[0] for queue, depth in depths.items()}
    consumed = {queue for queue, depth in depths.items() if depth[1]}
    routers = len(heard.routers)
    if not routers and consumed & {names.intake, names.returns}:
        routers = 1
    beats = heard.beats.values()
    return Held(
        lanes={each: ready.get(names.lane(each), 0) for each in _capabilities(manifests, lives)},
        agents={each: ready.get(names.agent(each), 0) for each in agents},
        elsewhere={
            "retry rungs": sum(ready.get(names.retry(rung), 0) for rung in RUNGS_MS),
            "returns": ready.get(names.returns, 0),
            "intake": ready.get(names.intake, 0),
            "outcomes": sum(ready.get(names.outcomes(r), 0) for r in _routers(settings, lives, heard)),
        },
        running={dispatch: beat.instance_id for beat in beats for dispatch in beat.running},
        able={beat.agent_id for beat in beats} | {each for each in agents if names.agent(each) in consumed},
        busy={beat.agent_id for beat in beats if beat.running},
        routers=routers,
        unmatched=set(broker.unmatched or ()),
        letters=set(broker.letters or ()),
    )


def patience_of(settings: Settings, manifests: Mapping[str, Manifest]) -> Patience:
    """How long what is seen can be explained, by the settings and what the manifests declare."""
    timeouts, presence = settings.timeouts, settings.presence
    hold_s = wiring.router_policies(settings).hold_s
    deaf_s = presence.suspect_s + presence.dead_s
    return Patience(
        out_s=timeouts.pickup_s + 2 * timeouts.backstop_s + deaf_s + hold_s,
        attempt_s=timeouts.attempt_ms / 1000,
        waiting_s=rung_ms(settings.retry.cap_s) / 1000 + hold_s + SLACK_S,
        window=settings.intake.held_at_most() + settings.intake.prefetch + wiring.OUTCOMES_PREFETCH,
        declared_s={
            (manifest.id, each.id): (each.timeout_ms or timeouts.attempt_ms) / 1000
            for manifest in manifests.values()
            for each in manifest.capabilities
        },
    )
