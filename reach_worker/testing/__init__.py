"""What tests of agents and routers need: a clock that only its holder moves, and a broker in memory.

::

    clock = SteppedClock()
    broker = MemoryBroker(clock)
    bus = MemoryBus(broker)                       # one client; make one for each router, worker or caller
    bus.subscribe("work", broker.names.agent("echo"), prefetch=4)
    async with bus.running():
        broker.send_task({"capability": "text.echo", "payload": {}})    # as any AMQP client would
        clock.advance(60)                         # time-outs, retries and expirations happen now
        bus.end_session()                         # what was not acknowledged comes again
        bus.fail_next(Fate.STORED)                # it arrives, but the confirm is lost
    broker.messages(broker.names.dlq)             # look into any queue, changing nothing

:class:`MemoryBus` passes the suite that the bus on RabbitMQ passes (``tests/contracts/test_bus.py``): publishers'
confirms, prefetch, redelivery, delivery limits, expiration and the retry ladder are those of the real one.
"""

from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.bus import MemoryBus
from reach_worker.testing.clock import SteppedClock
from reach_worker.testing.faults import Fate, Moment
from reach_worker.testing.queue import MemoryQueue, QueueRules

__all__ = ["Fate", "MemoryBroker", "MemoryBus", "MemoryQueue", "Moment", "QueueRules", "SteppedClock"]
