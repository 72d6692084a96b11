"""What agents and routers say of themselves on the events exchange."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reach_worker.core.presence import Heartbeat

WHO: Final = "who"
"""Routing key of the question "who is there?"; everybody answers with a heartbeat, agents with their manifest too."""


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
    """What :func:`beat_body` wrote."""
    data = _object(body)
    if isinstance(data, Unreadable):
        return data
    try:
        return Heartbeat(
            agent_id=str(data["agent"]),
            instance_id=str(data["instance"]),
            mailbox=str(data["mailbox"]),
            capacity=max(0, int(data["capacity"])),
            running=tuple(str(item) for item in data["running"]),
            manifest_hash=str(data["manifest_hash"]),
            version=str(data["version"]),
            stopping=bool(data["stopping"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        return Unreadable(f"no heartbeat: {error!r}")


def router_body(beat: RouterBeat) -> bytes:
    """A router's heartbeat as JSON."""
    return orjson.dumps({"router": beat.router_id, "stopping": beat.stopping})


def router_from(body: bytes) -> RouterBeat | Unreadable:
    """What :func:`router_body` wrote."""
    data = _object(body)
    if isinstance(data, Unreadable):
        return data
    if not isinstance(data.get("router"), str):
        return Unreadable("no router is named")
    return RouterBeat(data["router"], bool(data.get("stopping")))


def _object(body: bytes) -> Mapping[str, Any] | Unreadable:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return Unreadable(f"not JSON: {error}")
    return data if isinstance(data, dict) else Unreadable("not a JSON object")
