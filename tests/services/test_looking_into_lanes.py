"""Looking into lanes that look empty: it finds what others put there, and costs little where a look takes long."""

from dataclasses import dataclass, field

from reach_worker.core.message import Delivery, Message
from reach_worker.services.router.sources import LOOK_AT_ONCE_S, LOOK_SHARE
from reach_worker.testing import MemoryBroker, MemoryBus, SteppedClock
from tests.services.stage import Stage

LOOK_S = 0.02
MANY = [f"text.echo{number}" for number in range(60)]


@dataclass
class Looks:
    """What looking costs, and where it went. Queues that are not empty answer at once."""

    clock: SteppedClock
    into: dict[str, int] = field(default_factory=dict)

    def bus(self, broker: MemoryBroker) -> MemoryBus:
        return BusyBus(broker, self)


class BusyBus(MemoryBus):
    """On a busy broker: a look takes its time."""

    def __init__(self, broker: MemoryBroker, looks: Looks) -> None:
        super().__init__(broker)
        self._looks = looks

    async def get(self, queue: str, limit: int) -> tuple[list[Delivery], int]:
        got, left = await super().get(queue, limit)
        if not got:
            self._looks.clock.advance(LOOK_S)
            self._looks.into[queue] = self._looks.into.get(queue, 0) + 1
        return got, left


async def with_many_lanes() -> tuple[Stage, Looks]:
    clock = SteppedClock()
    looks = Looks(clock)
    stage = Stage(clock=clock, bus_of=looks.bus)
    await stage.router()
    await stage.agent("a", *MANY)
    looks.into.clear()
    return stage, looks


async def test_a_router_spends_little_of_its_time_with_it_and_leaves_no_lane_out() -> None:
    stage, looks = await with_many_lanes()
    began = stage.clock.monotonic()
    await stage.pass_time(60, step=0.1)
    took = stage.clock.monotonic() - began
    spent = sum(looks.into.values()) * LOOK_S
    assert spent <= LOOK_AT_ONCE_S + LOOK_SHARE * took + LOOK_S
    assert {stage.names.lane(capability) for capability in MANY} <= looks.into.keys()
    assert max(looks.into.values()) - min(looks.into.values()) <= 1


async def test_a_task_that_somebody_else_put_into_a_lane_is_found_all_the_same() -> None:
    stage, _ = await with_many_lanes()
    stage.publish("t", MANY[0])
    await stage.settle()
    assert stage.answer("t")["status"] == "succeeded"
    other = MemoryBus(stage.broker)
    other.connect()
    body = b'{"capability": "text.echo59", "payload": {}, "task_id": "u"}'
    await other.publish([Message(stage.names.lane(MANY[59]), body, reply_to="caller", correlation_id="u")])
    await stage.pass_time(30)
    assert stage.ready().get(stage.names.lane(MANY[59]), 0) == 0
