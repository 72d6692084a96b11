"""One run: a fleet, a way to choose, a seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from reach_worker.bench.chance import Chance, waiting_time
from reach_worker.bench.fleets import SimulatedFleet
from reach_worker.bench.knowledge import Knowledge, beat_of, fleet_for, manifest_of
from reach_worker.bench.router import Contender, Router
from reach_worker.bench.tasks import CAPABILITY, DEADLINE_S, MOST_ATTEMPTS, Luck, Task
from reach_worker.bench.timeline import Timeline
from reach_worker.bench.workplace import Workplace
from reach_worker.core.gates import Ask
from reach_worker.core.presence import Heartbeat

BEAT_S: Final = 3.0

_News = Sequence[tuple[Heartbeat, Sequence[int]]]
"""Heartbeats, each with what the agent had under way for others than this router, by router."""


@dataclass(frozen=True, slots=True)
class Run:
    """What happened. ``spent``: the agents' real cost over all attempts that they began."""

    tasks: Sequence[Task]
    spent: float
    longest_queue: int


class Simulation:
    """Agents that work, routers that choose, tasks that come. Policies compared on one seed get the same tasks."""

    def __init__(self, fleet: SimulatedFleet, contender: Contender, *, seed: int, early: bool) -> None:
        self._fleet = fleet
        self._name = f"{fleet.letter}{seed}"
        self._timeline = Timeline()
        self._arrivals = Chance(fleet.letter, seed, "arrivals")
        self._luck = Chance(fleet.letter, seed, "luck")
        self._manifests = {agent.agent_id: manifest_of(agent) for agent in fleet.agents}
        self._workplaces = {agent.agent_id: Workplace(agent, self._timeline) for agent in fleet.agents}
        self._there: list[Workplace] = []
        self.routers = [
            self._router(contender, Chance(fleet.letter, seed, "router", number), early=early)
            for number in range(fleet.routers)
        ]
        self._tasks: list[Task] = []

    def run(self) -> Run:
        """Let it happen, until every task has ended."""
        for workplace in self._workplaces.values():
            self._timeline.at(workplace.agent.joins_at, partial(self._join, workplace))
        self._timeline.at(BEAT_S, self._beat)
        self._expect_arrival()
        self._timeline.run()
        places = self._workplaces.values()
        spent = sum(place.started * place.agent.cost for place in places)
        return Run(self._tasks, spent, max(place.longest for place in places))

    def _router(self, contender: Contender, chance: Chance, *, early: bool) -> Router:
        knowledge = Knowledge(fleet_for(self._fleet.routers, early=early), chance.draw)
        return Router(knowledge, contender, self._timeline, self._workplaces)

    # -- agents

    def _join(self, workplace: Workplace) -> None:
        self._there.append(workplace)
        for router in self.routers:
            router.knowledge.meet(self._manifests[workplace.agent.agent_id], self._timeline.now)
            router.bind()

    def _beat(self) -> None:
        now = self._timeline.now
        news = [self._heartbeat(place) for place in self._there]
        self._timeline.at(now + self._fleet.news_s, partial(self._hear, news))
        if now < self._fleet.seconds + DEADLINE_S:
            self._timeline.at(now + BEAT_S, self._beat)

    def _heartbeat(self, place: Workplace) -> tuple[Heartbeat, Sequence[int]]:
        agent_id = place.agent.agent_id
        own = [router.knowledge.fleet.leases.held(agent_id) for router in self.routers]
        elsewhere = [sum(own) - held for held in own]
        return beat_of(self._manifests[agent_id], tuple(place.running)), elsewhere

    def _hear(self, news: _News) -> None:
        for beat, elsewhere in news:
            for router, load in zip(self.routers, elsewhere, strict=True):
                router.knowledge.hear(beat, load, self._timeline.now)

    # -- tasks

    def _expect_arrival(self) -> None:
        when = self._timeline.now + waiting_time(self._fleet.rate_per_s, self._arrivals.draw())
        if when < self._fleet.seconds:
            self._timeline.at(when, self._arrive)

    def _arrive(self) -> None:
        draw = self._luck.draw
        router = self.routers[int(self._arrivals.draw() * len(self.routers))]
        luck = tuple(Luck(draw(), draw()) for _ in range(MOST_ATTEMPTS))
        ask = Ask(
            f"{self._name}.{len(self._tasks)}", CAPABILITY, {}
        )  # no two runs explore with the same tasks
        task = Task(ask, self._timeline.now, luck)
        self._tasks.append(task)
        router.take(task)
        self._expect_arrival()


def simulate(fleet: SimulatedFleet, contender: Contender, *, seed: int, early: bool = False) -> Run:
    """One run. ``early``: late binding is off. The same arguments give the same run, on every machine."""
    return Simulation(fleet, contender, seed=seed, early=early).run()
