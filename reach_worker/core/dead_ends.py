"""This can never happen: rules of a manifest or of the settings that no task could ever reach, each with the way out.

Only what is certain from the files. An agent may bring its manifest itself, so one that no file is of may still come:
that is said too, with how sure it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from reach_worker.core.backoff import RetryPolicy, delay_s
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.document import Document, json_pointer, nearest
from reach_worker.core.manifest import Capability, Manifest
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.presence import PresencePolicy
from reach_worker.core.recovery import TimeoutPolicy
from reach_worker.errors import Problem

CONSUMER_TIMEOUT_MS: Final = 30 * 60_000
"""RabbitMQ's own default: a delivery that is not acknowledged for so long is taken back."""
DAY_MS: Final = 24 * 3_600_000
HERE_OR_BROUGHT: Final = "an agent that brings its manifest itself is known once it was there"


def manifest_dead_ends(manifest: Manifest) -> Iterator[Problem]:
    """What no task could ever get from this agent."""
    if not manifest.callable_by:
        yield Problem(
            "nobody may send it work, so it never gets any", "/callable_by", hint='"*" lets anyone in'
        )
    for index, capability in enumerate(manifest.capabilities):
        at = f"/capabilities/{index}"
        never = [tag for tag in capability.tags if tag in manifest.mutually_exclusive_tags]
        for tag in never:
            message = f"the tag {tag!r} is also in mutually_exclusive_tags: a task that requires it is always refused"
            yield Problem(message, f"{at}/tags", hint="take it out of one of the two")
        fault = _never_fits(capability)
        if fault is not None:
            yield Problem(fault, f"{at}/input_schema", hint="a payload is an object; no task would ever fit")


def _never_fits(capability: Capability) -> str | None:
    """Why no payload at all fits the input schema, where that can be seen at its top."""
    schema = capability.input_schema
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        return f"allows {kinds} only"
    if schema.get("additionalProperties") is not False or schema.get("patternProperties"):
        return None
    lost = sorted(set(schema.get("required", ())) - set(schema.get("properties", ())))
    return f"requires {', '.join(map(repr, lost))} and allows no such field" if lost else None


def time_dead_ends(manifest: Manifest, retry: RetryPolicy, timeouts: TimeoutPolicy) -> Iterator[Problem]:
    """Attempts that the broker ends before they may end, and retries that nobody would wait for."""
    for index, capability in enumerate(manifest.capabilities):
        if capability.timeout_ms is not None:
            for message, hint in _too_long(capability.timeout_ms, manifest, retry, timeouts):
                yield Problem(message, f"/capabilities/{index}/timeout_ms", hint=hint)


def _too_long(
    limit_ms: int, manifest: Manifest, retry: RetryPolicy, timeouts: TimeoutPolicy
) -> Iterator[tuple[str, str]]:
    """Workers of ours park a long task before the broker takes it back; others hold on to it."""
    if limit_ms > CONSUMER_TIMEOUT_MS and manifest.presence == "consumers":
        yield (
            f"an attempt may take {_span(limit_ms)}, and RabbitMQ takes work back after {_span(CONSUMER_TIMEOUT_MS)}",
            "split the work, or raise the broker's consumer_timeout above it",
        )
    attempts = min(retry.max_retries + 1, retry.max_dispatches)
    waits_s = sum(delay_s(number, 1.0, retry) + timeouts.pickup_s for number in range(1, attempts))
    total_ms = attempts * limit_ms + waits_s * 1000
    if attempts > 1 and total_ms > DAY_MS:
        yield (
            f"{attempts} attempts of {_span(limit_ms)} and the waits between may take {_span(total_ms)}",
            "a failed task is known as such only then: lower timeout_ms or retry.max_retries",
        )


def _span(ms: float) -> str:
    unit, size = next(
        ((unit, size) for unit, size in (("days", DAY_MS), ("hours", 3_600_000)) if ms >= 2 * size),
        ("minutes", 60_000),
    )
    return f"{ms / size:.3g} {unit}"


def routing_dead_ends(routing: RoutingPolicy, manifests: Sequence[Manifest]) -> Iterator[Problem]:
    """Rules of the routing that name agents or capabilities which are not there, or that never apply."""
    agents = {manifest.id: manifest for manifest in manifests}
    yield from _fallback(routing, agents)
    for agent_id in routing.score_bonus:
        if agent_id not in agents:
            message = f"no manifest is of agent {agent_id!r}"
            yield _unknown(("score_bonus", agent_id), message, agent_id, agents)
    for name, mine in (("region", routing.region), ("team", routing.team)):
        theirs = {getattr(manifest, name) for manifest in manifests} - {None}
        if mine is not None and mine not in theirs:
            yield _unknown((name,), f"no manifest is of {name} {mine!r}, so none is near", mine, theirs)
    if routing.shadow is not None:
        for problem in routing_dead_ends(routing.shadow, manifests):
            yield Problem(problem.message, f"/shadow{problem.field}", hint=problem.hint)


def _fallback(routing: RoutingPolicy, agents: Mapping[str, Manifest]) -> Iterator[Problem]:
    if not routing.fallback and "fallback_after_ms" in routing.model_fields_set:
        hint = "name the capability and its agents in fallback"
        yield Problem("never counts: no capability has a fallback", "/fallback_after_ms", hint=hint)
    known = {capability.id for manifest in agents.values() for capability in manifest.capabilities}
    for capability_id, names in routing.fallback.items():
        place = ("fallback", capability_id)
        if capability_id not in known:
            yield _unknown(place, f"no manifest has the capability {capability_id!r}", capability_id, known)
            continue
        able = [agent_id for agent_id, manifest in agents.items() if manifest.capability(capability_id)]
        for index, name in enumerate(names):
            if name not in agents:
                yield _unknown((*place, str(index)), f"no manifest is of agent {name!r}", name, able)
            elif name not in able:
                message = f"agent {name!r} has not the capability {capability_id!r}, so it never takes over"
                hint = _listed("these have it", able)
                yield Problem(message, json_pointer((*place, str(index))), hint=hint)
        if set(able) <= set(names):
            message = f"every agent that has {capability_id!r} is its fallback, so none is ever kept back"
            hint = "leave out those that should have the tasks first"
            yield Problem(message, json_pointer(place), hint=hint)


def _unknown(place: tuple[str, ...], message: str, name: str, known: Iterable[str]) -> Problem:
    close = nearest(name, known)
    hint = f"did you mean {close}?" if close else f"{_listed('known here', known)}; {HERE_OR_BROUGHT}"
    return Problem(message, json_pointer(place), hint=hint)


def _listed(what: str, names: Iterable[str]) -> str:
    return f"{what}: {', '.join(sorted(names)) or 'none'}"


def retry_dead_ends(retry: RetryPolicy) -> Iterator[Problem]:
    """Retries that never come."""
    if retry.max_dispatches <= retry.max_retries:
        message = f"never all come: a task ends after max_dispatches, {retry.max_dispatches}"
        yield Problem(message, "/max_retries", hint="max_dispatches is at least max_retries + 1")
    if retry.base_s > retry.cap_s:
        message = f"never counts: no bound is above cap_s, {retry.cap_s:g}"
        yield Problem(message, "/base_s", hint="base_s is at most cap_s")


def presence_dead_ends(presence: PresencePolicy) -> Iterator[Problem]:
    """Instances that are never long active."""
    if presence.suspect_s <= presence.heartbeat_s:
        message = f"every instance is suspect before it beats again, after {presence.heartbeat_s:g} s"
        yield Problem(message, "/suspect_s", hint="three heartbeats are usual")


def breaker_dead_ends(breaker: BreakerPolicy) -> Iterator[Problem]:
    """Cool-downs that never are."""
    if breaker.open_s > breaker.max_open_s:
        message = f"never counts: no cool-down is longer than max_open_s, {breaker.max_open_s:g}"
        yield Problem(message, "/open_s", hint="open_s is at most max_open_s")


def located(problems: Iterable[Problem], document: Document, under: str = "") -> list[Problem]:
    """The problems with their places in a document, their fields below ``under`` there."""
    return [
        document.located(Problem(problem.message, f"{under}{problem.field}", hint=problem.hint))
        for problem in problems
    ]
