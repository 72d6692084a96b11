"""``replay``: dead letters on their way to the routers again, through the public tools."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from reach_worker import wiring
from reach_worker.bench.live.figures import middle, rounded
from reach_worker.bench.live.flow import topology_of
from reach_worker.bench.live.scene import CAPABILITY, Place, Scene, bodies
from reach_worker.bench.live.sizes import Sizes
from reach_worker.bench.live.usage import Usage
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.clock import SystemClock
from reach_worker.core.dead_letter import Filter
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.errors import OurBug, OutsideWorld
from reach_worker.ports import Sent
from reach_worker.services.replay_order import ReplayOrder
from reach_worker.services.router.messages import dead_letter_message

BURST: Final = 200
Say = Callable[[str], None]


async def run(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    """No router runs: what is replayed stays where it was sent to, and nothing else takes the machine's time."""
    rates, cpu = [], []
    clock = SystemClock()
    for number in range(1, sizes.runs + 1):
        scene = Scene(settings=place.settings())
        async with dead_letters_of(scene, sizes.letters), wiring.dead_letters(scene.settings) as letters:
            began, used = clock.monotonic(), Usage.own().cpu_s
            report = await letters.replay(ReplayOrder(Filter()))
            rates.append(sizes.letters / (clock.monotonic() - began))
            cpu.append((Usage.own().cpu_s - used) / sizes.letters * 1e6)
        if len(report.replayed) != sizes.letters:
            raise OurBug(f"{len(report.replayed)} of {sizes.letters} dead letters were replayed")
        say(f"round {number}: {rates[-1]:.0f} dead letters/s")
    return {
        "letters_per_s": middle(rates),
        "cpu_us_per_letter": middle(cpu),
        "peak_mb": rounded(Usage.own().peak_mb),
        "letters": sizes.letters,
        "runs": sizes.runs,
    }


@asynccontextmanager
async def dead_letters_of(scene: Scene, count: int) -> AsyncIterator[RabbitBus]:
    """So many dead letters on the broker, within the block."""
    async with topology_of(scene) as bus:
        clock = SystemClock()
        for start in range(0, count, BURST):
            await _bury(bus, scene, [clock.new_id() for _ in range(min(BURST, count - start))])
        yield bus


async def _bury(bus: RabbitBus, scene: Scene, ids: list[str]) -> None:
    now_us = SystemClock().utc_us()
    reason = DeadLetterReason.ATTEMPTS_EXHAUSTED
    error = "4 attempts, the last: failed: RuntimeError: no connection to 10.0.0.7"
    sent = await bus.publish(
        [
            dead_letter_message(scene.names, _envelope(task_id, now_us), body, reason, error, now_us)
            for task_id, body in zip(ids, bodies(ids), strict=True)
        ]
    )
    if set(sent) != {Sent.CONFIRMED}:
        raise OutsideWorld(f"the broker did not take all dead letters: {sorted(set(sent))}")


def _envelope(task_id: str, now_us: int) -> Envelope:
    return Envelope(
        task_id=task_id, flow_id=task_id, capability=CAPABILITY, caller="anonymous", first_seen=now_us
    )
