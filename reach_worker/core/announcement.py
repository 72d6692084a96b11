"""What agents and routers say of themselves on the events exchange."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reach_worker.core.presence import Heartbeat

WHO: Final = "who"
"""Routing key of the question "who is there?"; everybody answers with a heartbeat, agents with their manifest too."""
PAUSE: Final = b"pause"
"""Body of a message to an instance's mailbox: stop consuming. An empty one is a probe, answered with a heartbeat."""
RESUME: Final = b"resume"
"""Body of a message to an instance's mailbox: go on."""
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


FEEDBACK: Final = "feedback"


def feedback_key(agent_id: str) -> str:
    """Routing key of what people say of an agent's results."""
    return f"{FEEDBACK}.{agent_id}"


def cancel_key(agent_id: str) -> str:
    """Routing key of cancels for whatever instance of the agent has the dispatch."""
    return f"cancel.{agent_id}"


def go_key(agent_id: str) -> str:
    """Routing key of what tells an instance of the agent that its dispatch has won its race. The body is its id."""
    return f"go.{agent_id}"


def instance_keys(agent_id: str) -> tuple[str, ...]:
    """What an instance of the agent listens to."""
    return WHO, cancel_key(agent_id), go_key(agent_id)


@dataclass(frozen=True, slots=True)
class RouterBeat:
    """A router says that it lives.

    ``unready``: why it takes no tasks now, empty if it does; ``None`` if it does not say.
    """

    router_id: str
    stopping: bool
    unready: str | None = None


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
            **({} if beat.completed is None else {"completed": beat.completed}),
            **({} if beat.consuming is None else {"consuming": beat.consuming}),
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
            completed=None if data.get("completed") is None else _count(data, "completed"),
            consuming=None if data.get("consuming") is None else data["consuming"] is True,
        )
    except ValueError as error:
        return Unreadable(f"no heartbeat: {error}")


def router_body(beat: RouterBeat) -> bytes:
    """A router's heartbeat as JSON."""
    said = {"router": beat.router_id, "stopping": beat.stopping}
    return orjson.dumps(said if beat.unready is None else {**said, "unready": beat.unready})


def router_from(body: bytes) -> RouterBeat | Unreadable:
    """What :func:`router_body` wrote. Never raises."""
    data = _object(body)
    if isinstance(data, Unreadable):
        return data
    try:
        unready = data.get("unready")
        return RouterBeat(
            _name(data, "router"),
            data.get("stopping") is True,
            unready[:LONGEST_VERSION] if isinstance(unready, str) else None,
        )
    except ValueError as error:
        return Unreadable(f"no router's heartbeat: {error}")


def feedback_body(agent_id: str, capability: str, verdict: str) -> bytes:
    """Feedback as JSON."""
    return orjson.dumps({"agent": agent_id, "capability": capability, "verdict": verdict})


def feedback_from(body: bytes) -> tuple[str, str, str] | Unreadable:
    """What :func:`feedback_body` wrote: agent, capability, verdict."""
    data = _object(body)
    if isinstance(data, Unreadable):
        return data
    agent_id, capability, verdict = data.get("agent"), data.get("capability"), data.get("verdict")
    if not isinstance(agent_id, str) or not isinstance(capability, str) or verdict not in VERDICTS:
        return Unreadable("agent, capability or verdict is missing")
    return agent_id, capability, verdict


VERDICTS: Final = ("good", "bad", "wrong-agent")
"""What people can say of a result."""


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
