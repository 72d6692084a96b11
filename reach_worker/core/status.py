"""What a router reports of itself when it is asked: its form on the wire, how it is read, and what in it is wrong.

The question goes to the events exchange, the report to the private queue of whoever asks. A report of another version
may have more or less in it: what is missing reads as not known, what is unknown is passed over.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeGuard

import orjson

from reach_worker.core.announcement import LONGEST_NAME, Unreadable
from reach_worker.core.names import Names

QUESTION: Final = "status"
"""Routing key of the question; its ``reply_to`` says where the report goes."""
ASKER: Final = "reach-listens"
"""Begins the names of the private queues that commands listen on: reports go nowhere else."""
LIMIT: Final = 64 * 1024
"""Bytes of a report."""
MOST: Final = 100
"""Capabilities, and agents, that a report names at most."""
LONGEST_TEXT: Final = 400

Health = Mapping[str, int | float | str | bool | None]
"""The store's own figures: see ``StoreStats``. Empty where there are none."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Tasks of one capability that wait: ``count`` in the router's window, ``lane`` believed to be in its lane.

    ``oldest_s``: how long the oldest in the window has been ready to be sent, ``task`` is its id; ``reason`` why it waits
    or, where the window has none, why no agent takes anything from the lane. ``lane_s``: for so long the lane is known
    not to have been empty; which of its tasks came first cannot be seen from outside.
    """

    capability: str
    count: int = 0
    oldest_s: float | None = None
    task: str = ""
    reason: str = ""
    lane: int = 0
    lane_s: float | None = None


@dataclass(frozen=True, slots=True)
class AgentNow:
    """What a router knows of an agent that has work, or is not as it should be.

    ``in_flight`` of ``slots`` that this router may use. ``breaker_s``: until it can be asked again. ``held_to``: tasks a
    second, since it became slow. ``rests_s``: it said that it is rate limited.
    """

    agent: str
    in_flight: int = 0
    slots: int = 0
    presence: str = ""
    breaker: str = ""
    breaker_s: float | None = None
    held_to: float | None = None
    rests_s: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A router, now. ``unready``: why it takes no tasks, empty if it does.

    ``since_us``: UTC microseconds of its start. ``session``: the number of its broker session, and how old that is.
    ``more_waits``, ``more_agents``: how many the lists leave out. ``counts``: since it runs.
    """

    router: str
    since_us: int = 0
    unready: str = ""
    session: int = 0
    session_s: float | None = None
    waiting: int = 0
    window: int = 0
    in_flight: int = 0
    in_flight_limit: int = 0
    waits: tuple[Waits, ...] = ()
    more_waits: int = 0
    agents: tuple[AgentNow, ...] = ()
    more_agents: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    store: Health = field(default_factory=dict)


def may_be_told(reply_to: str | None, names: Names) -> bool:
    """The address is a private queue of one of our commands; anything else is a stranger's wish, and not answered."""
    return (
        reply_to is not None
        and reply_to.startswith(f"{ASKER}.")
        and len(reply_to.encode(errors="replace")) <= LONGEST_NAME
        and not names.ours(reply_to)
    )


def report_body(report: Report) -> bytes:
    """A report as JSON, of :data:`LIMIT` bytes at most: the lists are cut where they are long, and say so."""
    most = MOST
    while True:
        body = orjson.dumps(_said(_cut(report, most)))
        if len(body) <= LIMIT or most == 0:
            return body
        most //= 2


def _cut(report: Report, most: int) -> Report:
    return replace(
        report,
        waits=report.waits[:most],
        more_waits=report.more_waits + len(report.waits[most:]),
        agents=report.agents[:most],
        more_agents=report.more_agents + len(report.agents[most:]),
    )


def _said(report: Report) -> dict[str, Any]:
    """Plain data; every text is short, and can be written down."""
    return {name: _short(value) for name, value in asdict(report).items()}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST_TEXT].encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_short(name): _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return value


def report_from(body: bytes) -> Report | Unreadable:
    """What :func:`report_body` wrote. Never raises; what cannot be understood reads as not said."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return Unreadable(f"no report: not JSON: {error}")
    if not isinstance(data, dict) or not _text(data, "router"):
        return Unreadable("no report: it names no router")
    return Report(
        router=_text(data, "router"),
        since_us=_count(data, "since_us"),
        unready=_text(data, "unready"),
        session=_count(data, "session"),
        session_s=_seconds(data, "session_s"),
        waiting=_count(data, "waiting"),
        window=_count(data, "window"),
        in_flight=_count(data, "in_flight"),
        in_flight_limit=_count(data, "in_flight_limit"),
        waits=tuple(_waits(each) for each in _objects(data, "waits") if _text(each, "capability")),
        more_waits=_count(data, "more_waits"),
        agents=tuple(_agent(each) for each in _objects(data, "agents") if _text(each, "agent")),
        more_agents=_count(data, "more_agents"),
        counts={name: value for name, value in _object(data, "counts").items() if _is_count(value)},
        store={name: value for name, value in _object(data, "store").items() if _is_plain(value)},
    )


def _waits(data: Mapping[str, Any]) -> Waits:
    return Waits(
        capability=_text(data, "capability"),
        count=_count(data, "count"),
        oldest_s=_seconds(data, "oldest_s"),
        task=_text(data, "task"),
        reason=_text(data, "reason"),
        lane=_count(data, "lane"),
        lane_s=_seconds(data, "lane_s"),
    )


def _agent(data: Mapping[str, Any]) -> AgentNow:
    return AgentNow(
        agent=_text(data, "agent"),
        in_flight=_count(data, "in_flight"),
        slots=_count(data, "slots"),
        presence=_text(data, "presence"),
        breaker=_text(data, "breaker"),
        breaker_s=_seconds(data, "breaker_s"),
        held_to=_seconds(data, "held_to"),
        rests_s=_seconds(data, "rests_s"),
    )


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def _count(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return value if _is_count(value) else 0


def _seconds(data: Mapping[str, Any], name: str) -> float | None:
    value = data.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _object(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _objects(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = data.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str)


def wrong(report: Report) -> list[str]:
    """What a person has to see to. A breaker that is open, or an agent that is slow, is not: that ends by itself."""
    said = [f"router {report.router} takes no tasks: {report.unready}"] if report.unready else []
    store = report.store
    if store.get("away"):
        why = f" ({store['last_error']})" if store.get("last_error") else ""
        said.append(
            f"the store of router {report.router} is away{why}: {store.get('waiting', 0)} rows wait in memory, "
            f"{store.get('spilled', 0)} were spilled"
        )
    if store.get("lost"):
        said.append(
            f"the store of router {report.router} has lost {store['lost']} rows: not even the spill file took them"
        )
    if store.get("refused"):
        said.append(
            f"the store of router {report.router} left out {store['refused']} rows that no database takes"
        )
    return said
