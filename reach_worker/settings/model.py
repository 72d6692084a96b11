"""What can be set, with the default and the meaning of each field."""

import re
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.call_limits import CallPolicy
from reach_worker.core.handoff import HandoffPolicy
from reach_worker.core.identifier import Identifier
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.presence import PresencePolicy
from reach_worker.core.recovery import IdempotencyPolicy, TimeoutPolicy
from reach_worker.core.slots import SlotPolicy
from reach_worker.core.streaming import StreamPolicy
from reach_worker.core.token_bucket import IntakePolicy

DEFAULT_URL: Final = "amqp://guest:guest@127.0.0.1:5672/"


def redacted(url: str) -> str:
    """The URL with its password hidden: the only form in which it may be shown."""
    return re.sub(r"://([^:/@]*):.*@", r"://\1:***@", url, flags=re.DOTALL)


def _amqp_url(url: str) -> str:
    """Refuse what is no AMQP URL, without repeating it: it may hold a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("amqp", "amqps") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", url):
        message = "must look like amqp://user:password@host:5672/vhost"
        raise ValueError(f"{message}, with special characters in the password as %xx")
    return url


def _as_tuple(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Url = Annotated[str, AfterValidator(_amqp_url)]
Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class BrokerSettings(_Section):
    """How to reach RabbitMQ."""

    url: Annotated[tuple[Url, ...], BeforeValidator(_as_tuple)] = Field(
        (DEFAULT_URL,),
        min_length=1,
        repr=False,
        description="URL of the broker; or a list of several hosts, tried in order",
    )
    prefix: Prefix = Field(
        "reach.v1", description="begins the name of every queue and exchange, 40 characters at most"
    )
    heartbeat_s: int = Field(10, ge=1, le=600, description="seconds between AMQP heartbeats")
    call_timeout_s: float = Field(
        10.0, gt=0, le=600, description="longest wait for a publish or a call, seconds"
    )
    connect_timeout_s: float = Field(10.0, gt=0, le=600, description="longest wait for a connection, seconds")
    consumer_timeout_s: float = Field(
        1800.0,
        gt=0,
        description="the broker's consumer_timeout, as its operator set it, seconds: nothing is held unacknowledged "
        "for half of it, so that a task may run longer",
    )

    def redacted(self) -> tuple[str, ...]:
        """The URLs with their passwords hidden."""
        return tuple(redacted(url) for url in self.url)


class RouterSettings(_Section):
    """The router process."""

    id: Identifier = Field(
        "router-1", description="unique among the routers of one prefix, and the same after a restart"
    )
    grace_s: float = Field(
        20.0, ge=0, le=3600, description="seconds that a drain may take before the router leaves"
    )


class StoreSettings(_Section):
    """The long-term store."""

    path: Path = Field(
        Path("data/reach.db"),
        description="the SQLite file; relative to the folder that holds config/ (else to this file's)",
    )
    retention_days: int = Field(90, ge=1, le=36_500, description="days that the reach log is kept")
    wait_s: float = Field(1.0, gt=0, le=60, description="longest that a task waits for the store, seconds")
    batch: int = Field(500, ge=1, le=100_000, description="rows written in one transaction at most")


class PathSettings(_Section):
    """Where the fleet is described; relative to the folder of this file."""

    agents: Path = Field(Path("agents"), description="folder of the manifests, one `<id>.yaml` each")
    tags: Path = Field(Path("tags.yaml"), description="spellings of tags: `canonical: [spelling, …]`")


class Settings(_Section):
    """All of ``config/reach.yaml``."""

    broker: BrokerSettings = BrokerSettings()
    router: RouterSettings = RouterSettings()
    store: StoreSettings = StoreSettings()
    paths: PathSettings = PathSettings()
    intake: IntakePolicy = IntakePolicy()
    routing: RoutingPolicy = RoutingPolicy()
    slots: SlotPolicy = SlotPolicy()
    presence: PresencePolicy = PresencePolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    retry: RetryPolicy = RetryPolicy()
    timeouts: TimeoutPolicy = TimeoutPolicy()
    idempotency: IdempotencyPolicy = IdempotencyPolicy()
    streaming: StreamPolicy = StreamPolicy()
    handoff: HandoffPolicy = HandoffPolicy()
    calls: CallPolicy = CallPolicy()

    def redacted(self) -> dict[str, Any]:
        """Plain JSON data for people to look at, without passwords."""
        shown = self.model_dump(mode="json")
        shown["broker"]["url"] = list(self.broker.redacted())
        return shown
