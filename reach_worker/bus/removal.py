"""Removing a topology from the broker, with everything that is in it."""

from aiormq.exceptions import AMQPError

from reach_worker.bus.link import connect_to_any
from reach_worker.bus.rabbit import BusSettings
from reach_worker.bus.topology import Topology
from reach_worker.errors import BrokerUnavailable


async def remove(settings: BusSettings, topology: Topology) -> None:
    """Delete its queues and exchanges; what is not there counts as deleted.

    Raises ``BrokerUnavailable`` or ``WrongCredentials``; some of it may be deleted by then.
    """
    connection = await connect_to_any(settings.urls, settings.name, settings.connect_timeout_s)
    try:
        channel = await connection.channel(publisher_confirms=False, timeout=settings.call_timeout_s)
        for queue in topology.queues:
            await channel.queue_delete(queue.name, timeout=settings.call_timeout_s)
        for exchange in topology.exchanges:
            await channel.exchange_delete(exchange.name, timeout=settings.call_timeout_s)
    except (AMQPError, TimeoutError, ConnectionError) as error:
        raise BrokerUnavailable(f"the broker went away while queues were deleted: {error!r}") from error
    finally:
        await connection.close()
