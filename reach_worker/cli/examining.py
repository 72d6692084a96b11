"""Everything that the doctor looks at, each part by itself: what one cannot see stops none of the others."""

import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from reach_worker import wiring
from reach_worker.bus import topology
from reach_worker.cli import broker_ctl
from reach_worker.cli.broker_ctl import Told
from reach_worker.cli.publishing import listen_within_reason, takes_messages
from reach_worker.cli.roll_call import Heard, known_manifests
from reach_worker.core.diagnosis import (
    Finding,
    Seen,
    Severity,
    of_declarations,
    of_fleet,
    of_names,
    of_traffic,
    of_version,
)
from reach_worker.core.diagnosis_policies import of_bindings, of_policy
from reach_worker.core.diagnosis_store import of_files, of_store
from reach_worker.core.diagnosis_times import Holding, of_clock, of_consumer_timeout
from reach_worker.core.foreign import is_foreign
from reach_worker.core.manifest import Manifest
from reach_worker.core.names import Names
from reach_worker.errors import BadInput, OutsideWorld, Problem, WrongCredentials
from reach_worker.ports import Bus, Clock, Sent
from reach_worker.settings import Settings, load_fleet
from reach_worker.store.health import look_at

STORE_CHECK_S: Final = 15.0
PUBLISH_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Wish:
    """How long to listen, and the broker's own tool (``None``: where it usually is; empty: not to be asked)."""

    listen_s: float = 1.5
    ctl: Sequence[str] | None = None


async def examine(settings: Settings, wish: Wish, clock: Clock) -> list[Finding]:
    """Look at everything."""
    began, began_us = clock.monotonic(), clock.utc_us()
    findings: list[Finding] = []
    try:
        manifests = await known_manifests(settings)
    except BadInput as error:
        findings += [_problem(problem, Severity.ERROR) for problem in error.problems]
        manifests = {}
    told: Told | None = None
    try:
        found, told = await _broker(settings, wish, manifests, clock)
        findings += found
    except* OutsideWorld as group:
        findings += [_no_broker(error) for error in group.exceptions]
    findings += of_consumer_timeout(_holding(settings, told), manifests.values())
    findings += of_names(Names(settings.broker.prefix), manifests.values())
    health = await look_at(settings.store.path, STORE_CHECK_S)
    findings += of_store(health, clock.utc_us(), settings.store.retention_days)
    elapsed_s = clock.monotonic() - began
    jumped_s = (clock.utc_us() - began_us) / 1e6 - elapsed_s
    findings += of_clock(clock.utc_us(), health.newest_us, jumped_s)
    findings += _files(settings)
    findings.append(of_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    return findings


def _no_broker(error: BaseException) -> Finding:
    wrong = isinstance(error, WrongCredentials)
    advice = "the address is broker.url, or REACH_AMQP_URL" + ("" if wrong else "; is the broker up?")
    return Finding(Severity.ERROR, "broker", f"{error}; nothing on it was looked at", advice)


async def _broker(
    settings: Settings, wish: Wish, manifests: Mapping[str, Manifest], clock: Clock
) -> tuple[list[Finding], Told]:
    names = Names(settings.broker.prefix)
    name = f"doctor {clock.new_id()}"
    async with wiring.visiting_bus(settings, name) as bus:
        findings = [of_version(bus.server_version)]
        told = await _ctl(settings, wish, name)
        seen = {
            each.name: each for each in await wiring.examine(settings, _wanted(settings, manifests, Heard()))
        }
        publishing = await _publishing(bus, names, seen)
    findings.append(publishing)
    heard = Heard()
    asks = publishing.severity is not Severity.ERROR
    if asks and seen[names.events].there and seen[names.intake].there:
        heard = await listen_within_reason(settings, set(manifests), wish.listen_s) or heard
        more = _wanted(settings, {**manifests, **heard.manifests}, heard)
        seen = {each.name: each for each in await wiring.examine(settings, more)}
    base = topology.base(names)
    findings += of_declarations(
        seen.values(), {each.name for each in base.queues} | {each.name for each in base.exchanges}
    )
    live = _live(names, {**manifests, **heard.manifests}, heard, seen)
    findings += of_traffic(seen, names, {each for capabilities in live.values() for each in capabilities})
    if asks:
        findings += of_fleet(manifests, live, heard.routers)
    findings += _only_told(names, told, seen)
    return findings, told


def _wanted(settings: Settings, manifests: Mapping[str, Manifest], heard: Heard) -> topology.Topology:
    """What there should be, without names that do not fit: those are found elsewhere."""
    names = Names(settings.broker.prefix)
    known = {**manifests, **heard.manifests}
    capabilities = {each.id for manifest in known.values() for each in manifest.capabilities}
    return topology.complete(
        names,
        router_ids=sorted({settings.router.id, *heard.routers}),
        agent_ids=sorted(each for each in known if _fits(names.agent(each))),
        capabilities=sorted(each for each in capabilities if _fits(names.lane(each))),
    )


def _fits(name: str) -> bool:
    return len(name.encode()) <= topology.NAME_LIMIT


def _live(
    names: Names, known: Mapping[str, Manifest], heard: Heard, seen: Mapping[str, Seen]
) -> dict[str, set[str]]:
    """The agents that are there, with what each offers: they answered, or are known to say nothing and consume."""
    agents = {agent for agent, _ in heard.beats}
    for agent_id, manifest in known.items():
        queue = seen.get(names.agent(agent_id))
        if is_foreign(manifest) and queue is not None and queue.consumers:
            agents.add(agent_id)
    return {
        agent: {each.id for each in known[agent].capabilities} if agent in known else set()
        for agent in agents
    }


async def _publishing(bus: Bus, names: Names, seen: Mapping[str, Seen]) -> Finding:
    if not seen[names.events].there:
        what = "not tried: there is no exchange for events yet"
        return Finding(Severity.INFO, "publishing", what, "look again once a router has declared it")
    sent = await takes_messages(bus, names, PUBLISH_S)
    if sent is None:
        what = f"the broker took no event within {PUBLISH_S:g} s: a memory or disk alarm blocks publishers"
        advice = "`rabbitmqctl status` names the alarm; make room, nothing is lost meanwhile"
        return Finding(Severity.ERROR, "publishing", what, advice)
    if sent is Sent.CONFIRMED:
        return Finding(Severity.OK, "publishing", "no alarm, events were taken at once")
    what = f"the broker did not take an event: {sent.value}"
    return Finding(Severity.ERROR, "publishing", what, f"the user needs write permission on {names.prefix}.*")


async def _ctl(settings: Settings, wish: Wish, our_connection: str) -> Told:
    command = broker_ctl.usual_command() if wish.ctl is None else wish.ctl
    vhost = unquote(urlsplit(settings.broker.url[0]).path.removeprefix("/")) or "/"
    return await broker_ctl.ask(command, vhost, our_connection)


def _only_told(names: Names, told: Told, seen: Mapping[str, Seen]) -> Iterator[Finding]:
    """What only the broker's own tool can tell."""
    if told.trouble is not None:
        what = f"cannot be seen over AMQP, and the broker's tool could not be asked: {told.trouble}"
        advice = "on the broker's machine, as its user: `reach doctor --ctl rabbitmqctl`"
        yield Finding(Severity.INFO, "policies and bindings", what, advice)
        return
    there = {name for name, each in seen.items() if each.there}
    wanted = [(each.exchange, each.queue) for each in topology.base(names).bindings]
    findings = [
        *of_bindings((pair for pair in wanted if there.issuperset(pair)), told.bindings),
        *(
            finding
            for queue, (policy, definition) in sorted(told.policies.items())
            if names.ours(queue)
            for finding in of_policy(names, queue, policy, definition)
        ),
    ]
    yield from findings
    if not findings:
        what = "no policy changes a queue of ours, and what should be bound is"
        yield Finding(Severity.OK, "policies and bindings", what)


def _holding(settings: Settings, told: Told | None) -> Holding:
    return Holding(
        stated_s=settings.broker.consumer_timeout_s,
        real_s=None if told is None else told.consumer_timeout_s,
        hold_s=wiring.router_policies(settings).hold_s,
        pickup_s=settings.timeouts.pickup_s,
        attempt_s=settings.timeouts.attempt_ms / 1000,
    )


def _files(settings: Settings) -> Iterator[Finding]:
    """What settings and manifests say that can never happen, as ``reach check`` has it."""
    try:
        warnings = load_fleet(settings).warnings
    except BadInput:
        return  # said before
    yield from (_problem(problem, Severity.WARNING) for problem in warnings)
    if not warnings:
        yield Finding(Severity.OK, "settings", "settings and manifests do not contradict one another")


def _problem(problem: Problem, severity: Severity) -> Finding:
    place = ":".join(str(part) for part in (problem.file, problem.line) if part is not None)
    where = " ".join(part for part in (place or "settings", problem.field) if part)
    return Finding(severity, where, problem.message, problem.hint or "`reach check` shows it in its place")
