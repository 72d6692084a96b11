"""Testing agents: one handler, or a whole small world with time to move and things to break, in milliseconds.

A handler alone, run by the code that runs it in production::

    handled = run_handler_sync(agent, "text.shout", {"text": "x"}, attempt=2, timeout=5)
    assert handled.result == {"text": "X"}

A world of real routers, workers and handlers around a broker in memory::

    @in_world([flaky, solid], breaker={"streak": 2})
    async def test_another_agent_takes_over(world):
        answer = await world.call("text.shout", {"text": "x"})      # time passes until it is there
        assert [one.agent for one in world.attempts(answer.task_id)] == ["flaky", "solid"]
        world.faults.duplicate("agent.solid")                       # the next dispatch arrives twice
        await world.kill(solid)
        await world.advance(60)                                     # heartbeats, breakers, retries, in no time
        print(await world.explain(answer.task_id))

And the parts that this is made of, for tests of routers: :class:`MemoryBroker` and :class:`MemoryBus`, which passes the
suite that the bus on RabbitMQ passes (``tests/contracts/test_bus.py``), and :class:`SteppedClock`, which only its holder
moves.
"""

from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.bus import MemoryBus
from reach_worker.testing.caller import Answer
from reach_worker.testing.clock import SteppedClock
from reach_worker.testing.faults import Fate, Faults, Moment
from reach_worker.testing.handlers import Handled, run_handler, run_handler_sync
from reach_worker.testing.history import Try
from reach_worker.testing.playing import in_world
from reach_worker.testing.queue import MemoryQueue, QueueRules
from reach_worker.testing.virtual_time import VirtualTime
from reach_worker.testing.world import World

__all__ = [
    "Answer",
    "Fate",
    "Faults",
    "Handled",
    "MemoryBroker",
    "MemoryBus",
    "MemoryQueue",
    "Moment",
    "QueueRules",
    "SteppedClock",
    "Try",
    "VirtualTime",
    "World",
    "in_world",
    "run_handler",
    "run_handler_sync",
]
