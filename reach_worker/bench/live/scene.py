"""What a run is made of: settings with names of its own, equal agents, and tasks of about 1 KB."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict

from reach_worker import wiring
from reach_worker.agent.agent import Agent, Function
from reach_worker.bus.topology import Topology
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.settings import Settings

CAPABILITY: Final = "text.summarize"
TEXT_BYTES: Final = 900
"""Of a task's payload: with all that is around it the body comes to about 1 KB."""
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
}
LONG_MS: Final = 600_000


class Scene(BaseModel):
    """One run, as its processes are told of it. ``holds``: agents answer only when they are told to.

    ``expected``: tasks after which the agents' process says that they are done.
    """

    model_config = ConfigDict(frozen=True)

    settings: Settings
    agents: int = 4
    slots: int = 50
    holds: bool = False
    expected: int = 0

    @property
    def names(self) -> Names:
        """Its names on the broker."""
        return Names(self.settings.broker.prefix)

    def fleet(self, handler: Function) -> list[Agent]:
        """Its agents, all with this handler."""
        return [declared(place, self.slots, handler) for place in range(self.agents)]

    def topology(self) -> Topology:
        """All that it leaves on the broker."""
        return wiring.known_topology(self.settings, [agent.manifest for agent in self.fleet(_nothing)])


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs take place: a broker, and a folder that is removed at the end."""

    url: str
    folder: Path
    new_id: Callable[[], str]

    def history(self, outcomes: int) -> Path:
        """Where a store with so many outcomes lies, or is to be made."""
        return self.folder / f"history-{outcomes}.db"

    def settings(self, store: Path | None = None, **sections: Mapping[str, Any]) -> Settings:
        """Settings with names of their own on the broker, and a new store unless one is given."""
        unique = self.new_id()[-12:]
        folder = self.folder / unique
        (folder / "agents").mkdir(parents=True)
        given: dict[str, Mapping[str, Any]] = {
            "broker": {"url": [self.url], "prefix": f"bench-{unique}"},
            "store": {"path": str(store or folder / "reach.db")},
            "paths": {"agents": str(folder / "agents"), "tags": str(folder / "tags.yaml")},
        }
        return Settings.model_validate(given | sections)


def declared(place: int, slots: int, handler: Function) -> Agent:
    """An agent of the bench. All are equal."""
    agent = Agent(
        f"agent-{place:04}", version="1", max_concurrency=slots, callable_by=["*"], permission_domains=["*"]
    )
    agent.capability(
        CAPABILITY,
        description="Says in a few words what a text says",
        input_schema=dict(SCHEMA),
        cost=1,
        latency_ms=1000,
        timeout_ms=LONG_MS,
    )(handler)
    return agent


def bodies(ids: Sequence[str]) -> list[bytes]:
    """Tasks with these ids."""
    text = "x" * TEXT_BYTES
    return [
        orjson.dumps({"task_id": task_id, "capability": CAPABILITY, "payload": {"text": text}})
        for task_id in ids
    ]


def messages(names: Names, ids: Sequence[str], reply_to: str | None = None) -> list[Message]:
    """The same as publishers send them."""
    return [
        Message(task_id, body, exchange=names.tasks, correlation_id=task_id, reply_to=reply_to)
        for task_id, body in zip(ids, bodies(ids), strict=True)
    ]


def _nothing(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    return payload
