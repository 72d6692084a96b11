"""Asking every router how it is, and the broker how much waits in its queues."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from reach_worker import wiring
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.bus.topology import NAME_LIMIT
from reach_worker.cli.publishing import takes_messages
from reach_worker.cli.roll_call import Heard, known_manifests
from reach_worker.client import MAILBOX
from reach_worker.core.announcement import WHO
from reach_worker.core.backoff import RUNGS_MS
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.status import QUESTION, Report, report_from, wrong
from reach_worker.ports import Sent
from reach_worker.settings import Settings

KEYS: Final = ("router.#", "manifest.#")
BLOCKED: Final = (
    "the broker takes no messages now (a memory or disk alarm?): no router can be asked, none can work"
)


@dataclass(slots=True)
class Queues:
    """Messages that are ready in each, not those that somebody holds. ``rungs``: by their delay, milliseconds.

    ``intake_consumers``: a router may have several.
    """

    intake: int = 0
    intake_consumers: int = 0
    returns: int = 0
    rungs: dict[int, int] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=dict)
    dlq: int = 0
    unmatched: int = 0

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "intake": self.intake,
            "intake_consumers": self.intake_consumers,
            "returns": self.returns,
            "retry": {str(rung): count for rung, count in self.rungs.items()},
            "lanes": self.lanes,
            "dlq": self.dlq,
            "unmatched": self.unmatched,
        }


@dataclass(slots=True)
class Seen:
    """What was answered. ``silent``: routers that say that they live, and gave no report."""

    reports: dict[str, Report] = field(default_factory=dict)
    heard: Heard = field(default_factory=Heard)
    queues: Queues = field(default_factory=Queues)
    blocked: bool = False

    @property
    def silent(self) -> list[str]:
        beats = self.heard.routers.items()
        return sorted(each for each, beat in beats if not beat.stopping and each not in self.reports)

    def take(self, delivery: Delivery) -> None:
        """An announcement, or a report: that comes straight to our queue, past any exchange of ours."""
        if delivery.exchange:
            self.heard.take(delivery)
            return
        report = report_from(delivery.body)
        if isinstance(report, Report):
            self.reports[report.router] = report

    def all_answered(self) -> bool:
        """Everybody who was heard has given a report, and somebody has."""
        return bool(self.reports) and not self.silent

    def wrong(self) -> list[str]:
        """What a person has to see to, the worst first."""
        if self.blocked:
            return [BLOCKED]
        said = [f"router {each} lives, and gave no report: it is held up, or older" for each in self.silent]
        if not self.reports:
            more = ", though somebody consumes the intake: it hangs, or is older"
            said.insert(0, f"no router answers{more if self.queues.intake_consumers else ''}")
        return [*said, *(each for router in sorted(self.reports) for each in wrong(self.reports[router]))]


async def ask(settings: Settings, listen_s: float, within_s: float) -> Seen:
    """Ask, listen for ``listen_s``, and longer, up to ``within_s``, where somebody has not answered yet."""
    names = Names(settings.broker.prefix)
    seen = Seen()
    declared = {
        each.id for manifest in (await known_manifests(settings)).values() for each in manifest.capabilities
    }
    async with wiring.listening_bus(settings, KEYS) as bus:
        seen.blocked = await takes_messages(bus, names, within_s) is not Sent.CONFIRMED
        if not seen.blocked:
            await bus.publish([_question(names, QUESTION, bus.mailbox), _question(names, WHO, None)])
            await _hear(bus, seen, listen_s, lambda: False)
            await _hear(bus, seen, max(0.0, within_s - listen_s), seen.all_answered)
        await _look(bus, names, seen.queues)
        await _look_into_lanes(bus, names, seen, declared)
    return seen


def _question(names: Names, key: str, mailbox: str | None) -> Message:
    return Message(key, b"", {}, names.events, reply_to=mailbox, persistent=False, mandatory=False)


async def _hear(bus: RabbitBus, seen: Seen, seconds: float, enough: Callable[[], bool]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not enough():
                await bus.inbox.arrived.wait()
                bus.inbox.arrived.clear()
                deliveries = bus.inbox.take(MAILBOX)
                for delivery in deliveries:
                    seen.take(delivery)
                await bus.ack(deliveries)


async def _look(bus: RabbitBus, names: Names, queues: Queues) -> None:
    queues.intake, queues.intake_consumers = await bus.depth(names.intake) or (0, 0)
    queues.returns = await _ready(bus, names.returns)
    queues.rungs = {rung: await _ready(bus, names.retry(rung)) for rung in RUNGS_MS}
    queues.dlq = await _ready(bus, names.dlq)
    queues.unmatched = await _ready(bus, names.unmatched)


async def _look_into_lanes(bus: RabbitBus, names: Names, seen: Seen, declared: Iterable[str]) -> None:
    capabilities = {*declared, *(waits.capability for each in seen.reports.values() for waits in each.waits)}
    capabilities |= {each.id for manifest in seen.heard.manifests.values() for each in manifest.capabilities}
    for capability in sorted(each for each in capabilities if len(names.lane(each)) <= NAME_LIMIT):
        if ready := await _ready(bus, names.lane(capability)):
            seen.queues.lanes[capability] = ready


async def _ready(bus: RabbitBus, queue: str) -> int:
    depth = await bus.depth(queue)
    return 0 if depth is None else depth[0]
