"""What was looked at and what it means: each finding with where it is and what to do."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from reach_worker.core.manifest import Manifest
from reach_worker.core.names import Names, in_ascii

NAME_LIMIT: Final = 255
LONG_NAME: Final = 200
"""Bytes from which on a longer prefix may not fit any more."""


class Severity(StrEnum):
    """How bad it is. Only an ``error`` makes the whole not well."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``what`` was found, ``where``, and ``advice``: what to do, if anything."""

    severity: Severity
    where: str
    what: str
    advice: str = ""


class Found(StrEnum):
    """A queue or exchange on the broker: as it should be, not there, with other arguments, or not for us to see."""

    AS_WANTED = "as wanted"
    MISSING = "missing"
    OTHER = "other"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Seen:
    """A queue or exchange that was looked at. ``detail``: how it differs, or why nobody could tell."""

    name: str
    found: Found
    messages: int = 0
    consumers: int = 0
    detail: str = ""

    @property
    def there(self) -> bool:
        """It exists."""
        return self.found is not Found.MISSING


def of_version(version: str) -> Finding:
    """What the broker's version implies."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        what = f"the broker does not say its version ({version!r})"
        return Finding(
            Severity.WARNING, "broker", what, "RabbitMQ 3.10 or newer is needed: look for yourself"
        )
    release = int(numbers[1]), int(numbers[2])
    if release < (3, 10):
        what = (
            f"RabbitMQ {version} has no at-least-once dead lettering: tasks that a queue gives up can be lost"
        )
        return Finding(Severity.ERROR, "broker", what, "install 3.10 or newer; 4.x is best")
    if release < (4, 0):
        what = (
            f"RabbitMQ {version}: a quorum queue that was declared within three minutes before the node is killed "
            "may come back without a leader; queues of others have no delivery limit unless they state one"
        )
        advice = "declare in advance with `reach topology declare`; 4.x has no such gap"
        return Finding(Severity.INFO, "broker", what, advice)
    what = f"RabbitMQ {version}: queues have a delivery limit of 20 unless they state one, as ours do"
    if release >= (4, 3):
        what += "; it refuses shared queues that are not durable, and puts no end to requeued messages: neither is used"
    return Finding(Severity.OK, "broker", what)


def of_declarations(seen: Iterable[Seen], base: Collection[str]) -> Iterator[Finding]:
    """Queues and exchanges that are missing or different. ``base``: those that must be there before all others."""
    fine = 0
    for each in seen:
        match each.found:
            case Found.MISSING if each.name in base:
                advice = "start a router, or run `reach topology declare`"
                yield Finding(Severity.ERROR, each.name, "it is missing", advice)
            case Found.MISSING:
                advice = (
                    "a router declares it when it meets who needs it; `reach topology declare` does it now"
                )
                yield Finding(Severity.WARNING, each.name, "it is missing", advice)
            case Found.OTHER:
                advice = (
                    "somebody else declared it: stop routers and agents, take out what is in it, delete it, and run "
                    "`reach topology declare`; or set another broker.prefix"
                )
                yield Finding(
                    Severity.ERROR, each.name, f"it is there with other arguments: {each.detail}", advice
                )
            case Found.REFUSED:
                advice = (
                    "give the user the permissions configure, write and read on this name; without configure, "
                    "declare with another user: `reach topology declare`"
                )
                yield Finding(Severity.WARNING, each.name, f"could not be compared: {each.detail}", advice)
            case Found.AS_WANTED:
                fine += 1
            case _:
                assert_never(each.found)
    if fine:
        yield Finding(Severity.OK, "broker", f"{fine} queues and exchanges are as they should be")


def of_traffic(queues: Mapping[str, Seen], names: Names, live: Collection[str]) -> Iterator[Finding]:
    """Messages that wait where nobody takes them. ``live``: capabilities that somebody offers now."""
    intake = queues.get(names.intake)
    if intake is not None and intake.there and not intake.consumers:
        what = f"no router takes tasks; {_count(intake.messages, 'message')} waiting"
        yield Finding(Severity.ERROR, names.intake, what, "start a router: `reach router`")
    lanes = {names.lane(capability) for capability in live}
    for name, queue in sorted(queues.items()):
        kind = name.removeprefix(f"{names.prefix}.").partition(".")[0]
        if not queue.messages or name == names.intake:
            continue
        match kind:
            case "dlq":
                advice = "`reach dlq list --group` says why; replay, drop or export them"
                yield Finding(
                    Severity.WARNING,
                    name,
                    f"{_count(queue.messages, 'dead letter')} for a person to look at",
                    advice,
                )
            case "unmatched":
                advice = "`reach unmatched list` says why; assign them, or start an agent that may have them"
                yield Finding(
                    Severity.WARNING, name, f"{_count(queue.messages, 'task')} that no agent may take", advice
                )
            case "lane" if name not in lanes:
                advice = "start an agent that offers it"
                yield Finding(
                    Severity.WARNING,
                    name,
                    f"{_count(queue.messages, 'task')} waiting, and nobody offers this",
                    advice,
                )
            case "returns" | "outcomes" | "agent" if not queue.consumers:
                severity = Severity.WARNING if kind == "agent" else Severity.ERROR
                who = "an instance of the agent" if kind == "agent" else "a router"
                what = f"{_count(queue.messages, 'message')} waiting, and nobody consumes them"
                yield Finding(severity, name, what, f"start {who}")


def of_names(names: Names, manifests: Iterable[Manifest]) -> Iterator[Finding]:
    """Ids that look different in the names of queues, or hardly fit there."""
    told: set[tuple[str, str]] = set()
    for manifest in manifests:
        ids = [("agent", manifest.id), *(("capability", each.id) for each in manifest.capabilities)]
        for kind, id_ in ids:
            if (kind, id_) not in told:
                told.add((kind, id_))
                yield from _of_name(kind, id_, names.agent(id_) if kind == "agent" else names.lane(id_))


def _of_name(kind: str, id_: str, queue: str) -> Iterator[Finding]:
    length = len(queue.encode())
    if length > NAME_LIMIT:
        what = f"the queue name for {kind} {id_[:60]!r} would have {length} bytes, AMQP allows {NAME_LIMIT}"
        yield Finding(Severity.ERROR, f"{kind} {id_[:60]}", what, "choose a shorter id or broker.prefix")
    elif length > LONG_NAME:
        what = f"its queue name has {length} of {NAME_LIMIT} bytes"
        yield Finding(
            Severity.WARNING, f"{kind} {id_[:60]}", what, "a longer prefix will not fit; shorten the id"
        )
    if in_ascii(id_) != id_:
        what = f"its queue is called {queue}"
        advice = "nothing to do; on the broker look for that name, an ASCII id would keep its own"
        yield Finding(Severity.INFO, f"{kind} {id_[:60]}", what, advice)


def of_fleet(
    manifests: Mapping[str, Manifest], live: Mapping[str, Collection[str]], routers: Collection[str]
) -> Iterator[Finding]:
    """Who is known and does not answer. ``live``: the capabilities of every agent that does."""
    if routers:
        yield Finding(Severity.OK, "routers", f"answering: {', '.join(sorted(routers))}")
    else:
        yield Finding(Severity.WARNING, "routers", "none answers", "start one: `reach router`")
    offered = {capability for capabilities in live.values() for capability in capabilities}
    silent = sorted(set(manifests) - set(live))
    for agent_id in silent:
        advice = f"start an instance; if agent {agent_id} is no more, remove its manifest"
        yield Finding(Severity.WARNING, f"agent {agent_id}", "it is declared and does not answer", advice)
    declared: dict[str, list[str]] = {}
    for agent_id in silent:
        for capability in manifests[agent_id].capabilities:
            declared.setdefault(capability.id, []).append(agent_id)
    for capability_id, agents in sorted(declared.items()):
        if capability_id not in offered:
            what = f"nobody who lives offers it; declared by {', '.join(agents)}"
            yield Finding(
                Severity.WARNING, f"capability {capability_id}", what, "its tasks wait until somebody does"
            )
    if live:
        yield Finding(
            Severity.OK, "agents", f"{len(live)} of {len(set(manifests) | set(live))} known agents answer"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
