"""One connection to the broker: aiormq's, and the way past it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import aiormq
from aiormq import exceptions as amqp
from aiormq.abc import AbstractConnection
from yarl import URL

from reach_worker.bus.bypass import Bypass
from reach_worker.bus.transport import transport_for
from reach_worker.errors import BrokerUnavailable, WrongCredentials


@dataclass(frozen=True, slots=True)
class Link:
    """A connection, and what goes by aiormq on it."""

    connection: AbstractConnection
    bypass: Bypass


async def connect(address: URL, timeout_s: float) -> Link:
    """Open one connection. Raises :class:`WrongCredentials` or :class:`BrokerUnavailable`, in words."""
    shown = f"{address.host}:{address.port or 5672}"
    bypass = Bypass()
    try:
        async with asyncio.timeout(timeout_s):
            connection = await aiormq.connect(address, transport_factory=transport_for(address, bypass))
    except amqp.ProbableAuthenticationError as error:
        raise WrongCredentials(
            f"the broker at {shown} refuses user {address.user or 'guest'!r}: "
            "check the name and password in the URL"
        ) from error
    except amqp.InvalidFrameError as error:
        if "OpenOk" not in str(error):
            raise BrokerUnavailable(f"no broker at {shown}: {_first_words(error)}") from error
        # All that aiormq tells of a broker that closes in place of opening the virtual host.
        raise WrongCredentials(
            f"the broker at {shown} refuses virtual host {_vhost(address)!r}: there is none of that name, "
            f"user {address.user or 'guest'!r} may not use it, or it takes no more connections"
        ) from error
    except TimeoutError as error:
        raise BrokerUnavailable(f"the broker at {shown} does not answer within {timeout_s:g} s") from error
    except (amqp.AMQPError, OSError, RuntimeError) as error:
        raise BrokerUnavailable(f"no broker at {shown}: {_first_words(error)}") from error
    return Link(connection, bypass)


async def connect_to_any(urls: Sequence[str], name: str, timeout_s: float) -> AbstractConnection:
    """A connection to the first host that answers, for what needs no bypass. Raises as :func:`connect` does."""
    last: BrokerUnavailable | None = None
    for url in urls:
        try:
            link = await connect(URL(url).update_query(name=name), timeout_s)
        except BrokerUnavailable as error:
            last = error
        else:
            return link.connection
    raise last or BrokerUnavailable("no broker address is configured")


def _vhost(address: URL) -> str:
    return address.path.removeprefix("/") or "/"


def _first_words(error: BaseException) -> str:
    words = " ".join(str(arg) for arg in error.args) or type(error).__name__
    return words[:200]
