"""Whatever happens in whatever order: every accepted task has exactly one end, or is still somewhere on the broker."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.duplicates import TaskState
from reach_worker.core.handoff import Handoff
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.testing import Fate, Moment
from tests.services.scripted import Reply, ScriptedAgent, Work, succeed
from tests.services.stage import OnStage, Stage, die, rules

RETRIES = 2
TASKS = [f"t{number}" for number in range(6)]
RESOLVED = [
    (TaskState.DEAD_LETTER, DeadLetterReason.OUTCOME_UNKNOWN),
    (TaskState.SUCCEEDED, None),
]
KINDS = [kind for kind in OutcomeClass if kind is not OutcomeClass.CANCELLED]


@dataclass(frozen=True)
class Publish:
    """A caller publishes one of a few tasks, perhaps for the second time."""

    task_id: str
    capability: str
    deadline_ms: int | None

    async def happen(self, play: "Play") -> None:
        extra = {} if self.deadline_ms is None else {"deadline_ms": self.deadline_ms}
        capability = play.capabilities.setdefault(self.task_id, self.capability)
        play.stage.publish(self.task_id, capability, **extra)
        play.published[self.task_id] += 1


@dataclass(frozen=True)
class Outcome:
    """An agent ends something that it has, perhaps saying so twice, perhaps without the acknowledgement."""

    kind: OutcomeClass
    started: bool
    twice: bool
    unacknowledged: bool
    to: str = "text.both"

    def reply(self) -> Reply:
        handoff = Handoff(capability=self.to) if self.kind is OutcomeClass.HANDOFF else None
        return Reply(self.kind, started=self.started, retry_after_ms=1000, handoff=handoff)

    async def happen(self, play: "Play") -> None:
        agent = next((agent for agent in play.agents if agent.held), None)
        if agent is None:
            return
        work = agent.held[0]
        reply = play.word(work, self.reply())
        if self.started and work.dispatch.envelope.side_effects:
            await agent.say_started(work)
        if self.twice or self.unacknowledged:
            await agent.send_outcome(work, reply)
        if not self.unacknowledged:
            await agent.end(work, reply)


@dataclass(frozen=True)
class SessionLost:
    """The router's session ends: now, or in the middle of what it does next."""

    moment: Moment | None
    who: int

    async def happen(self, play: "Play") -> None:
        bus = play.router(self.who).bus
        if self.moment is None:
            bus.end_session()
        else:
            bus.once(self.moment, bus.end_session)


@dataclass(frozen=True)
class RouterKilled:
    """The router's process dies in the middle of what it does next; another one starts over the same store."""

    moment: Moment
    who: int

    async def happen(self, play: "Play") -> None:
        play.router(self.who).bus.once(self.moment, die)


@dataclass(frozen=True)
class Mishap:
    """One of the next messages that the router sends meets a fate."""

    skip: int
    fate: Fate
    who: int

    async def happen(self, play: "Play") -> None:
        play.router(self.who).bus.fail_next(*[Fate.CONFIRMED] * self.skip, self.fate)


@dataclass(frozen=True)
class AgentKilled:
    """An agent's process dies, and comes back at once or later."""

    index: int
    back: bool

    async def happen(self, play: "Play") -> None:
        agent = play.agents[self.index]
        agent.die()
        if self.back:
            await agent.start()


@dataclass(frozen=True)
class StoreAway:
    """The store goes, or comes back."""

    away: bool

    async def happen(self, play: "Play") -> None:
        play.stage.store.away = self.away


@dataclass(frozen=True)
class Turn:
    """Everybody does what there is to do, and time passes."""

    seconds: float

    async def happen(self, play: "Play") -> None:
        await play.stage.pass_time(self.seconds, step=1.0)


Event = Publish | Outcome | SessionLost | RouterKilled | Mishap | AgentKilled | StoreAway | Turn

WHO = st.integers(0, 1)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Publish,
        st.sampled_from(TASKS),
        st.sampled_from(["text.one", "text.both", "text.effects", "text.nobody"]),
        st.sampled_from([None, None, None, 4_000]),
    ),
    st.builds(
        Outcome,
        st.sampled_from([*KINDS, OutcomeClass.HANDOFF, OutcomeClass.HANDOFF]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["text.one", "text.both", "text.effects", "text.nobody"]),
    ),
    st.builds(SessionLost, st.sampled_from([None, *Moment]), WHO),
    st.builds(RouterKilled, st.sampled_from(Moment), WHO),
    st.builds(Mishap, st.integers(0, 2), st.sampled_from([Fate.LOST, Fate.STORED, Fate.REFUSED]), WHO),
    st.builds(AgentKilled, st.integers(0, 2), st.booleans()),
    st.builds(StoreAway, st.booleans()),
    st.builds(Turn, st.sampled_from([0.5, 1.0, 4.0, 12.0, 35.0])),
)


@dataclass
class Play:
    """One run of events, and what has to be true after it."""

    stage: Stage = field(
        default_factory=lambda: Stage(
            policies=rules(retry=RetryPolicy(max_retries=RETRIES)),
            breaker=BreakerPolicy(streak=4, open_s=10.0),
        )
    )
    published: Counter[str] = field(default_factory=Counter)
    capabilities: dict[str, str] = field(default_factory=dict)
    events: Sequence[Event] = ()
    said: dict[str, Reply] = field(default_factory=dict)

    @property
    def agents(self) -> list[ScriptedAgent]:
        return self.stage.agents

    def word(self, work: Work, reply: Reply) -> Reply:
        """An agent may say how a dispatch ended more than once, but always the same."""
        return self.said.setdefault(work.dispatch.dispatch_id, reply)

    def router(self, who: int) -> OnStage:
        return self.stage.routers[who % len(self.stage.routers)]

    async def run(self, events: Sequence[Event], routers: int) -> None:
        stage = self.stage
        for number in range(routers):
            await stage.router(f"r{number}")
        await stage.pass_time(4)
        await stage.agent("a", "text.one", "text.both", slots=2, script=lambda _: None)
        await stage.agent("b", "text.both", slots=1, script=lambda _: None)
        await stage.agent("c", "text.effects", script=lambda _: None, capability_side_effects=True)
        self.events = events
        for event in events:
            await event.happen(self)
            await stage.settle(rounds=2)
        await self.come_to_rest()

    async def come_to_rest(self) -> None:
        """The troubles are over: everybody is well, and does everything."""
        self.stage.store.away = False
        for agent in self.agents:
            agent.script = succeed
            if not agent.alive:
                await agent.start()
            for work in list(agent.held):
                await agent.end(work, self.word(work, Reply()))
        await self.stage.come_to_rest()

    def check(self) -> None:
        stage = self.stage
        away, killed = (
            StoreAway(away=True) in self.events,
            any(isinstance(e, RouterKilled) for e in self.events),
        )
        blind = away and (killed or len(stage.routers) > 1)  # what others did is known by the store alone
        parked = Counter(d.headers["x-reach-task"] for d in stage.broker.messages(stage.names.unmatched))
        for task_id in self.published:
            ends = stage.ends(task_id)
            assert ends or parked[task_id], f"{task_id} is lost"
            if blind:
                continue
            for life in {end.life for end in ends}:
                states = [(end.state, end.reason) for end in ends if end.life == life]
                assert len(states) == 1 or states == RESOLVED, f"{task_id} ended as {states}"
        for letter in stage.letters():
            assert letter.envelope.retries_spent <= RETRIES + 1
        assert stage.at_rest(), (stage.ready(), stage.unacknowledged(), stage.r1.leases)


# What was found once, each with a fault of its own behind it.
ONE, BOTH, EFFECTS = (Publish("t0", f"text.{name}", None) for name in ("one", "both", "effects"))
OTHER = Publish("t1", "text.both", None)
RELEASED, TIMEOUT, LIMITED, DONE = (
    Outcome(kind, started=False, twice=False, unacknowledged=False)
    for kind in (
        OutcomeClass.RELEASED,
        OutcomeClass.TIMEOUT,
        OutcomeClass.RATE_LIMITED,
        OutcomeClass.SUCCEEDED,
    )
)
DONE_TWICE = replace(DONE, twice=True)
HANDED_ON = Outcome(OutcomeClass.HANDOFF, started=False, twice=False, unacknowledged=False, to="text.effects")
BEFORE, AFTER = Moment.BEFORE_PUBLISH, Moment.AFTER_PUBLISH


@example(  # told twice: to the one who stood by and had nobody for it now, and to its router, which was back
    events=[
        ONE,
        ONE,
        replace(DONE, to="text.one"),
        OTHER,
        SessionLost(None, 0),
        Publish("t2", "text.one", None),
        replace(HANDED_ON, unacknowledged=True, to="text.one"),
        Turn(0.5),
    ]
)
@example(
    events=[
        RouterKilled(BEFORE, 0),
        EFFECTS,
        Turn(0.5),
        StoreAway(away=True),
        *[Publish("t4", "text.effects", 4_000)] * 2,
        RouterKilled(BEFORE, 0),
    ]
)
@example(
    events=[
        Publish("t0", "text.one", 4_000),
        SessionLost(BEFORE, 1),
        Mishap(2, Fate.STORED, 1),
        RouterKilled(Moment.BEFORE_ACK, 0),
        OTHER,
        StoreAway(away=True),
        ONE,
        DONE,
    ]
)
@example(
    events=[
        RouterKilled(AFTER, 1),
        AgentKilled(0, back=False),
        ONE,
        Publish("t2", "text.effects", None),
        Turn(12.0),
        Publish("t3", "text.effects", None),
        Outcome(OutcomeClass.REJECTED, started=False, twice=False, unacknowledged=True),
        Turn(35.0),
        Turn(12.0),
        Mishap(1, Fate.REFUSED, 0),
        Mishap(1, Fate.STORED, 1),
        Turn(1.0),
    ]
)
@example(events=[Mishap(0, Fate.STORED, 0), EFFECTS, StoreAway(away=True), EFFECTS, DONE])
@example(events=[SessionLost(BEFORE, 0), ONE, ONE])
@example(
    events=[StoreAway(away=True), Publish("t0", "text.effects", 4_000), Mishap(2, Fate.REFUSED, 0), Turn(4.0)]
)
@example(
    events=[StoreAway(away=True), Publish("t0", "text.effects", 4_000), RouterKilled(BEFORE, 0), Turn(4.0)]
)
@example(events=[StoreAway(away=True), EFFECTS, RouterKilled(BEFORE, 0), ONE])
@example(events=[StoreAway(away=True), EFFECTS, Mishap(2, Fate.REFUSED, 0), Turn(4.0)])
@example(events=[ONE, replace(LIMITED, unacknowledged=True), DONE, SessionLost(None, 0)])
@example(events=[StoreAway(away=True), EFFECTS, RouterKilled(Moment.BEFORE_ACK, 1), Turn(35.0)])
@example(events=[RouterKilled(BEFORE, 0), StoreAway(away=True), EFFECTS, OTHER, Turn(0.5)])
@example(events=[StoreAway(away=True), EFFECTS, SessionLost(None, 0), SessionLost(None, 0)])
@example(events=[EFFECTS, LIMITED, Turn(0.5), SessionLost(BEFORE, 0)])
@example(events=[EFFECTS, Mishap(0, Fate.LOST, 0), DONE_TWICE])
@example(events=[EFFECTS, RouterKilled(AFTER, 0), RELEASED, Turn(12.0), SessionLost(BEFORE, 0)])
@example(events=[Mishap(0, Fate.LOST, 0), EFFECTS, RouterKilled(BEFORE, 0)])
@example(events=[Mishap(0, Fate.LOST, 0), ONE, RouterKilled(BEFORE, 1)])
@example(events=[ONE, RouterKilled(BEFORE, 0), RELEASED, SessionLost(BEFORE, 0), TIMEOUT])
@example(
    events=[ONE, RouterKilled(BEFORE, 0), RELEASED, RouterKilled(BEFORE, 0), OTHER, RouterKilled(BEFORE, 1)]
)
@example(events=[SessionLost(None, 1), ONE, OTHER, SessionLost(BEFORE, 0)])
@example(events=[BOTH, TIMEOUT, Mishap(2, Fate.STORED, 1), OTHER, RELEASED, Turn(35.0), Turn(35.0)])
@example(events=[RouterKilled(BEFORE, 0), StoreAway(away=True), EFFECTS, OTHER])
@example(events=[ONE, StoreAway(away=True), TIMEOUT, ONE, TIMEOUT])
@example(events=[ONE, RouterKilled(BEFORE, 0), HANDED_ON, StoreAway(away=True)])
@example(events=[ONE, RouterKilled(BEFORE, 0), HANDED_ON, StoreAway(away=True), SessionLost(None, 0)])
@pytest.mark.parametrize("routers", [1, 2])
@settings(
    max_examples=80,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),  # the same ones in CI every time; new ones everywhere else
    suppress_health_check=[HealthCheck.too_slow],
)
@given(events=st.lists(EVENTS, min_size=3, max_size=25))
def test_nothing_is_lost_and_nothing_ends_twice(routers: int, events: list[Event]) -> None:
    play = Play()
    asyncio.run(play.run(events, routers))
    play.check()
