"""What changed in the fleet, gathered for the router to act on."""

from dataclasses import dataclass, field

from reach_worker.core.message import Message
from reach_worker.core.presence import Instance
from reach_worker.ports import Row


@dataclass(slots=True)
class News:
    """What changed. ``agents``: ids whose presence or manifest is not what it was.

    ``withdrawn``: capabilities that nobody offers any more.
    """

    agents: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    new_capabilities: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    new_agents: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    questions: list[Message] = field(default_factory=list)
    probes: list[tuple[Instance, Message]] = field(default_factory=list)
    routers: set[str] = field(default_factory=set)
