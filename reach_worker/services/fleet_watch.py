"""Who is there: heartbeats, manifests and routers, heard on the events exchange."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from reach_worker.core.announcement import (
    PAUSE,
    RESUME,
    WHO,
    RouterBeat,
    Unreadable,
    beat_from,
    feedback_from,
    router_body,
    router_from,
    router_key,
)
from reach_worker.core.fleet import Agent, Fleet
from reach_worker.core.foreign import BY_CONSUMERS
from reach_worker.core.fresh_files import Changed
from reach_worker.core.manifest import Manifest
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.presence import (
    Died,
    Heartbeat,
    Instance,
    Pause,
    PresencePolicy,
    PresenceState,
    Probe,
    tick,
)
from reach_worker.core.tags import TagTable
from reach_worker.ports import Clock, Sent
from reach_worker.services.manifest_book import ManifestBook
from reach_worker.services.news import News

log = logging.getLogger(__name__)

HEARD_OF_S: Final = 0.5
"""A router that starts takes nothing for so long: the others are to hear of it before they share the work."""
_AWAY: Final = (PresenceState.SUSPECT, PresenceState.STALLED, PresenceState.DEAD)
NEWCOMERS_AT_MOST: Final = 5
"""An agent that comes again and again under a new name holds a router up for so many times ``newcomers_s`` at most."""


class FleetWatch:
    """Keeps the fleet's presence and manifests by what is heard. ``unready``: why the router takes no tasks now."""

    def __init__(
        self, fleet: Fleet, policy: PresencePolicy, names: Names, clock: Clock, tags: TagTable, router_id: str
    ) -> None:
        self._fleet = fleet
        self._policy = policy
        self._names = names
        self._clock = clock
        self.book = ManifestBook(fleet, tags, clock)
        self._router_id = router_id
        self._routers: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self.sessions = 0
        self.unready: Callable[[], str] = lambda: ""
        self._began: float | None = None
        self._session_began = float("-inf")
        self.ghost_s = 0.0
        self._knew_some = False
        self._came: tuple[float, float] | None = None
        self._settled = False
        self._told_nobody = False
        self._beaten = float("-inf")
        self._heard_since: set[str] = set()

    def remember(self, manifests: Iterable[Manifest]) -> News:
        """Manifests known from the store or from files, before anybody was heard; the newer version counts."""
        news = News()
        self.book.remember(manifests, news)
        self._knew_some = self._knew_some or bool(news.new_agents)
        return news

    def reread(self, changed: Changed) -> News:
        """What was read again from the files: manifests that are new or other than they were, files that are gone."""
        news = News()
        if changed.tags is not None:
            self.book.retag(changed.tags)
        self.book.remember(changed.manifests, news)
        self.book.forget(changed.removed, news)
        self._meet(news)
        return news

    def session_began(self) -> None:
        """A new broker session: ask who is there, and trust no silence from before."""
        now = self._clock.monotonic()
        self._began = now if self._began is None else self._began
        self._session_began = now
        self.sessions += 1
        self._beaten = float("-inf")
        for agent in self._fleet.agents.values():
            for instance in agent.roster.instances.values():
                instance.session_began(now)
        self.was_deaf()

    def session_s(self) -> float | None:
        """Seconds since the broker session began, ``None`` before the first."""
        return None if self._began is None else self._clock.monotonic() - self._session_began

    def was_deaf(self) -> None:
        """Nothing could be heard for a while (no broker, or we were held up): no dispatch is given up for that.

        Its outcome has as long to come as a silent agent is given, and as the broker may take to notice that a consumer
        of an earlier session is gone, which holds what has come meanwhile.
        """
        patience = max(self._policy.suspect_s + self._policy.dead_s, self.ghost_s)
        self._fleet.leases.postpone(self._clock.monotonic() + patience)

    def settled(self) -> bool:
        """It is known who is there: two heartbeat periods have passed, or every known agent has answered.

        A router that knew no agent when it started (a new store, no files) cannot tell an agent that starts a little
        later from one that does not exist, and would call its tasks unmatched. It waits for the first, and then until
        no other came for a while. Once it is so it stays so.
        """
        if not self._settled and self._knows_who_is_there():
            self._settled = True
            log.info("taking tasks; known agents: %s", ", ".join(sorted(self._fleet.agents)))
        return self._settled

    def _knows_who_is_there(self) -> bool:
        if self._began is None or not self._fleet.agents:
            return False
        now = self._clock.monotonic()
        waited = now - self._began
        if waited < HEARD_OF_S:
            return False
        long_enough = waited >= 2 * self._policy.heartbeat_s
        if self._knew_some or self._came is None:
            return long_enough or self._fleet.agents.keys() <= self._heard_since
        first, last = self._came
        quiet_s = self._policy.newcomers_s
        return long_enough and (now - last >= quiet_s or now - first >= NEWCOMERS_AT_MOST * quiet_s)

    def alone(self) -> bool:
        """There is no other router, and each has had the time to say so."""
        return self._fleet.routers == 1 and self._could_hear_all()

    def lives(self, router_id: str) -> bool:
        """Another router was heard lately, and did not say goodbye."""
        return router_id in self._routers

    def may_live(self, router_id: str) -> bool:
        """It lives, or we were away ourselves, and it has not had the time to say so since."""
        return self.lives(router_id) or not self._could_hear_all()

    def _could_hear_all(self) -> bool:
        """Everybody has had the time to speak in this session."""
        return self._clock.monotonic() - self._session_began >= 2 * self._policy.heartbeat_s

    def take(self, deliveries: Sequence[Delivery]) -> News:
        """What was announced."""
        news = News()
        for delivery in deliveries:
            kind = delivery.routing_key.partition(".")[0]
            match kind:
                case "presence":
                    self._beat(delivery, news)
                case "manifest":
                    self.book.bring(delivery, news)
                case "who":
                    self._beaten = min(self._beaten, self._clock.monotonic() - self._policy.heartbeat_s)
                case "feedback":
                    self._feedback(delivery)
                case "router":
                    self._router(delivery, news)
                case "hearsay" | "status" | "fetch-task":
                    pass
                case _:
                    log.debug("an announcement %r says nothing to a router", delivery.routing_key)
        self._meet(news)
        return news

    def consumed(self, beats: Sequence[Heartbeat]) -> News:
        """What the consumers of queues would say of agents that say nothing themselves."""
        news = News()
        for beat in beats:
            self._heard(beat, news)
        return news

    def tick(self) -> News:
        """Let time pass: suspicions, probes, deaths, and our own heartbeat."""
        now = self._clock.monotonic()
        news = News()
        self._tell_if_nobody(now)
        for agent in self._fleet.agents.values():
            agent.roster.forget(now, self._policy)
            before = agent.roster.state()
            for instance in list(agent.roster.instances.values()):
                match tick(instance, now, self._policy, self._longest_s(agent, instance)):
                    case Probe(_, mailbox):
                        news.agents.add(agent.agent_id)
                        if mailbox:
                            news.probes.append((instance, Message(mailbox, b"", {}, persistent=False)))
                    case Pause() as pause:
                        self._pause(agent, pause, news)
                    case Died():
                        self._dead(agent.agent_id, instance, before, news, _why_dead(instance))
                    case None:
                        pass
        if now - self._beaten >= self._policy.heartbeat_s:
            news.questions += self._own_beat(now)
        return news

    def probed(self, probes: Sequence[tuple[Instance, Message]], results: Sequence[Sent]) -> News:
        """How sending the probes went: one without a queue to go to proves that the instance is gone."""
        news = News()
        for (instance, _), result in zip(probes, results, strict=True):
            agent = self._fleet.agents[instance.agent_id]
            before = agent.roster.state()
            if result is Sent.UNROUTABLE and instance.probe_unroutable():
                self._dead(instance.agent_id, instance, before, news, "its connection is gone")
        return news

    def farewell(self) -> Message:
        """Says that this router stops."""
        body = router_body(RouterBeat(self._router_id, stopping=True))
        return Message(
            router_key(self._router_id), body, {}, self._names.events, persistent=False, mandatory=False
        )

    # -- inside

    def _beat(self, delivery: Delivery, news: News) -> None:
        beat = beat_from(delivery.body)
        if isinstance(beat, Unreadable):
            log.warning("a heartbeat cannot be read: %s", beat.error)
            return
        self._heard(beat, news)

    def _heard(self, beat: Heartbeat, news: News) -> None:
        agent = self._fleet.agents.get(beat.agent_id)
        if agent is None:
            self._ask_manifest(beat.agent_id, news)
            return
        instances = agent.roster.instances
        instance = instances.setdefault(beat.instance_id, Instance(beat.agent_id, beat.instance_id))
        before = agent.roster.state()
        starts = not beat.stopping and instance.state in (PresenceState.PENDING, PresenceState.DEAD)
        slots = agent.roster.slots()
        changed = instance.heard(beat, self._clock.monotonic())
        self._heard_since.add(beat.agent_id)
        self._fleet.smooth_load(agent)
        if self.book.is_new(beat.agent_id, beat.manifest_hash, starts=starts):
            self._ask_manifest(beat.agent_id, news)
        if changed or slots != agent.roster.slots():
            news.agents.add(beat.agent_id)
        if changed:
            now = "stopping: it takes no more tasks" if beat.stopping else instance.state.value
            log.info("%s instance %s is %s", beat.agent_id, beat.instance_id, now)
        if instance.goes_on():
            news.questions.append(Message(beat.mailbox, RESUME, {}, persistent=False))
        after = agent.roster.state()
        if before is not PresenceState.DEAD and after is PresenceState.DEAD:
            news.gone.add(beat.agent_id)
        if before in _AWAY and after is PresenceState.ACTIVE:
            agent.breaker.came_back()

    def _tell_if_nobody(self, now: float) -> None:
        began = self._began
        if (
            self._told_nobody
            or self._fleet.agents
            or began is None
            or now - began < 2 * self._policy.heartbeat_s
        ):
            return
        self._told_nobody = True
        log.warning("no agent is known yet: tasks wait in %s until one comes", self._names.intake)

    def _meet(self, news: News) -> None:
        if news.new_agents:
            now = self._clock.monotonic()
            self._came = (now if self._came is None else self._came[0], now)

    def _longest_s(self, agent: Agent, instance: Instance) -> float:
        """The longest limit of what the instance runs; what other routers sent may take as long as is declared."""
        running = instance.beat.running if instance.beat is not None else ()
        declared = max((capability.timeout_ms or 0 for capability in agent.manifest.capabilities), default=0)
        return self._fleet.leases.longest_s(running, declared / 1000)

    def _pause(self, agent: Agent, pause: Pause, news: News) -> None:
        """An instance that runs tasks and completes none is to take no more."""
        news.agents.add(agent.agent_id)
        if not pause.again:
            told = "%s instance %s is stalled: %d running, nothing completed for %.0f s"
            log.warning(told, agent.agent_id, pause.instance_id, pause.running, pause.seconds)
        news.questions.append(Message(pause.mailbox, PAUSE, {}, persistent=False))

    def _feedback(self, delivery: Delivery) -> None:
        """What a person said of a result counts at once; the store has it for the next start."""
        said = feedback_from(delivery.body)
        if isinstance(said, Unreadable):
            log.warning("feedback cannot be read: %s", said.error)
            return
        agent_id, capability, verdict = said
        if agent_id in self._fleet.agents:
            self._fleet.record.touch(agent_id, capability).judged(self._clock.utc_us() / 1e6, verdict)

    def _ask_manifest(self, agent_id: str, news: News) -> None:
        """Ask for a manifest we do not have, at most once a heartbeat period and agent."""
        now = self._clock.monotonic()
        if now - self._asked.get(agent_id, float("-inf")) < self._policy.heartbeat_s:
            return
        self._asked[agent_id] = now
        news.questions.append(Message(WHO, b"", {}, self._names.events, persistent=False, mandatory=False))

    def _router(self, delivery: Delivery, news: News) -> None:
        beat = router_from(delivery.body)
        if isinstance(beat, Unreadable):
            log.warning("a router's heartbeat cannot be read: %s", beat.error)
            return
        if beat.router_id == self._router_id:
            return
        if beat.stopping:
            self._routers.pop(beat.router_id, None)
        else:
            if beat.router_id not in self._routers:
                news.routers.add(beat.router_id)
            self._routers[beat.router_id] = self._clock.monotonic()
        self._count_routers()

    def _count_routers(self) -> None:
        limit = self._clock.monotonic() - self._policy.suspect_s
        self._routers = {router: heard for router, heard in self._routers.items() if heard >= limit}
        self._fleet.routers = 1 + len(self._routers)
        self._fleet.rank = sum(router < self._router_id for router in self._routers)

    def _own_beat(self, now: float) -> list[Message]:
        first = self._beaten == float("-inf")
        self._beaten = now
        self._count_routers()
        body = router_body(RouterBeat(self._router_id, stopping=False, unready=self.unready()))
        beat = Message(
            router_key(self._router_id), body, {}, self._names.events, persistent=False, mandatory=False
        )
        who = Message(WHO, b"", {}, self._names.events, persistent=False, mandatory=False)
        return [beat, who] if first else [beat]

    def _dead(self, agent_id: str, instance: Instance, before: PresenceState, news: News, why: str) -> None:
        log.warning("%s instance %s is dead: %s", agent_id, instance.instance_id, why)
        news.agents.add(agent_id)
        roster = self._fleet.agents[agent_id].roster
        if before is not PresenceState.DEAD and roster.state() is PresenceState.DEAD:
            news.gone.add(agent_id)


def _why_dead(instance: Instance) -> str:
    if instance.instance_id == BY_CONSUMERS:
        return "nobody consumes its queue"
    return "silent, and no probe was answered"
