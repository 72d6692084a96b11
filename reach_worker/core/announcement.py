"""What agents and routers say of themselves on the events exchange."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reach_worker.core.presence import Heartbeat

WHO: Final = "who"
"""Routing key of the question "who is there?"; everybody answers with a heartbeat, agents with their manifest too."""
LONGEST_NAME: Final = 255
LONGEST_VERSION: Final = 1000


def presence_key(agent_id: str) -> str:
    """Routing key of an agent's heartbeats."""
    return f"presence.{agent_id}"


def manifest_key(agent_id: str) -> str:
    """Routing key of an agent's manifest."""
    return f"manifest.{agent_id}"


def router_key(router_id: str) -> str:
    """Routing key of a router's heartbeats."""
    return f"router.{router_id}"


def cancel_key(agent_id: str) -> str:
    """Routing key of cancels for whatever instance of the agent has the dispatch."""
    return f"cancel.{agent_id}"


@dataclass(frozen=True, slots=True)
class RouterBeat:
    """A router says that it lives."""

    router_id: str
    stopping: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An announcement that says nothing to us, with why."""

    error: str


def beat_body(beat: Heartbeat) -> bytes:
    """A heartbeat as JSON."""
    return orjson.dumps(
        {
            "agent": beat.agent_id,
            "instance": beat.instance_id,
            "mailbox": beat.mailbox,
            "capacity": beat.capacity,
            "running": list(beat.running),
            "manifest_hash": beat.manifest_hash,
            "version": beat.version,
            "stopping": beat.stopping,
        }
    )


def beat_from(body: bytes) -> Heartbeat | Unreadable:
    """What :func:`beat_body` wrote. Never raises; fields that it does not know are a newer agent's."""
    data = _object(body)
    if isinstance(data, Unreadable):
        return data
    try:
        return Heartbeat(
            agent_id=_name(data, "agent"),
            instance_id=_name(data, "instance"),
            mailbox=_name(data, "mailbox"),
            capacity=_count(data, "capacity"),
            running=_names(data, "running"),
            manifest_hash=_name(data, "manifest_hash"),
            version=_name(data, "version", LONGEST_VERSION),
            stopping=data.get("stopping") is True,
        )
    except ValueError as error:
        return Unreadable(f"no heartbeat: {error}")


def router_body(beat: RouterBeat) -> bytes:
    """A router's heartbeat as JSON."""
    return orjson.dumps({"router": beat.router_id, "stopping": beat.stopping})


def router_from(body: bytes) -> RouterBeat | Unreadable:
    """What :func:`router_body` wrote. Never raises."""
    data = _object(body)
    if isinstance(data, Unreadable):
        return data
    try:
        return RouterBeat(_name(data, "router"), data.get("stopping") is True)
    except ValueError as error:
        return Unreadable(f"no router's heartbeat: {error}")


def _object(body: bytes) -> Mapping[str, Any] | Unreadable:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return Unreadable(f"not JSON: {error}")
    return data if isinstance(data, dict) else Unreadable("not a JSON object")


def _name(data: Mapping[str, Any], field: str, longest: int = LONGEST_NAME) -> str:
    """Some become names of queues, which have 255 bytes at most."""
    value = data.get(field)
    if not isinstance(value, str) or not value or len(value.encode()) > longest:
        raise ValueError(f"{field} must be text of 1 to {longest} bytes")
    return value


def _names(data: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = data.get(field)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{field} must be a list of texts")
    return tuple(value)


def _count(data: Mapping[str, Any], field: str) -> int:
    value = data.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{field} must be a whole number from 0")
    return value
