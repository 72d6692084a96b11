"""Removing a topology from the broker, with everything that is in it."""

from aiormq.abc import AbstractConnection
from aiormq.exceptions import AMQPError
from yarl import URL

from reach_worker.bus.link import connect
from reach_worker.bus.rabbit import BusSettings
from reach_worker.bus.topology import Topology
from reach_worker.errors import BrokerUnavailable


async def remove(settings: BusSettings, topology: Topology) -> None:
    """Delete its queues and exchanges; what is not there counts as deleted.

    Raises ``BrokerUnavailable`` or ``WrongCredentials``; some of it may be deleted by then.
    """
    connection = await _connect(settings)
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


async def _connect(settings: BusSettings) -> AbstractConnection:
    """To the first host that answers."""
    last: BrokerUnavailable | None = None
    for url in settings.urls:
        try:
            link = await connect(URL(url).update_query(name=settings.name), settings.connect_timeout_s)
        except BrokerUnavailable as error:
            last = error
        else:
            return link.connection
    raise last or BrokerUnavailable("no broker address is configured")
