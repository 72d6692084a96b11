"""What the broker holds, for the audit: counts of its queues, whose messages rest there, and who is there.

Of live queues only the counts are read. `dlq` and `unmatched` are looked into: nobody is served from them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reach_worker import wiring
from reach_worker.cli.publishing import listen_within_reason, takes_messages
from reach_worker.cli.roll_call import Heard
from reach_worker.core.audit import Held, Key, OpenLife, Patience
from reach_worker.core.backoff import RUNGS_MS, rung_ms
from reach_worker.core.dead_letter import Filter
from reach_worker.core.manifest import Manifest
from reach_worker.core.names import Names
from reach_worker.core.retry_budget import LONGEST_WAIT_S
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Sent
from reach_worker.services.router.reception import OUTCOMES_PREFETCH
from reach_worker.settings import Settings

SLACK_S: Final = 15.0
HELD_UP_S: Final = 5.0


@dataclass(slots=True)
class Broker:
    """What the broker holds. ``None`` where nobody could look. ``twice``: who has more than one letter in dlq."""

    letters: dict[Key, bool] | None = None
    unmatched: dict[Key, bool] | None = None
    heard: Heard | None = None
    depths: dict[str, tuple[int, int]] = field(default_factory=dict)
    twice: list[Key] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


async def ask(
    settings: Settings, listen_s: float, manifests: Mapping[str, Manifest], lives: Sequence[OpenLife]
) -> Broker:
    """Ask who is there, count, and look. Never raises for a broker that is away."""
    broker = Broker()
    try:
        if not await _held_up(settings):
            known = {*manifests, *_agents(lives)}
            broker.heard = await listen_within_reason(settings, known, listen_s)
        if broker.heard is None:
            broker.unchecked.append(
                "who is there: the broker takes no messages now (a memory or disk alarm?), so everything stands still"
            )
        broker.depths = await _depths(settings, manifests, lives, broker.heard or Heard())
        broker.letters, broker.twice = await _keys(settings, unmatched=False)
        broker.unmatched, _ = await _keys(settings, unmatched=True)
    except* OutsideWorld as group:
        words = dict.fromkeys(str(error) for error in group.exceptions)
        broker.unchecked.append(
            f"the broker: {'; '.join(words)}; no open task was placed, no letter looked for"
        )
    return broker


async def _held_up(settings: Settings) -> bool:
    """Nobody can publish now: agents are not heard, and what they hold stays in their hands."""
    names = Names(settings.broker.prefix)
    async with wiring.visiting_bus(settings, "audit") as bus:
        if await bus.depth(names.intake) is None:
            return False  # no router ever was here: listening says so
        return await takes_messages(bus, names, HELD_UP_S) is not Sent.CONFIRMED


async def _keys(settings: Settings, *, unmatched: bool) -> tuple[dict[Key, bool], list[Key]]:
    """Whose messages are in dlq or unmatched, and whether one is an outcome; who has several there.

    Looking changes nothing.
    """
    found: dict[Key, bool] = {}
    twice: list[Key] = []
    async with wiring.dead_letters(settings, unmatched=unmatched) as letters:
        async for item in letters.walk(Filter()):
            key = item.letter.task_id, item.letter.envelope.life
            if key in found:
                twice.append(key)
            found[key] = item.letter.is_outcome
    return found, twice


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


def held_by(
    settings: Settings, manifests: Mapping[str, Manifest], lives: Sequence[OpenLife], broker: Broker
) -> Held:
    """The same, as the judgement wants it."""
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
        },
        outcomes={each: ready.get(names.outcomes(each), 0) for each in _routers(settings, lives, heard)},
        intake=ready.get(names.intake, 0),
        side_effects={
            each.id for manifest in manifests.values() for each in manifest.capabilities if each.side_effects
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
        waiting_s=rung_ms(max(settings.retry.cap_s, LONGEST_WAIT_S)) / 1000 + hold_s + SLACK_S,
        window=settings.intake.held_at_most() + settings.intake.prefetch + OUTCOMES_PREFETCH,
        declared_s={
            (manifest.id, each.id): (each.timeout_ms or timeouts.attempt_ms) / 1000
            for manifest in manifests.values()
            for each in manifest.capabilities
        },
    )
