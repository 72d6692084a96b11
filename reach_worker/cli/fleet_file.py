"""A fleet in a certain state, for decisions that are run offline: from manifests and, if wanted, a file."""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from reach_worker.core.breaker import BreakerState
from reach_worker.core.document import Document, json_pointer, nearest, validate
from reach_worker.core.fleet import Agent, Fleet
from reach_worker.core.presence import Heartbeat, Instance, PresenceState
from reach_worker.core.slots import Lease
from reach_worker.core.tags import fold
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, Problem

Rate = Annotated[float, Field(ge=0, le=1)]
TRIES: Final = 1000
"""Attempts behind a rate that a file gives: it is taken at its word."""


class AgentState(BaseModel):
    """How an agent is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    presence: Literal["pending", "active", "suspect", "dead"] = Field("active", description="is it there")
    breaker: Literal["closed", "open", "half_open"] = Field("closed", description="its breaker")
    open_for_s: float = Field(30.0, ge=0, description="seconds until an open breaker lets its probe through")
    held: int = Field(0, ge=0, le=100_000, description="tasks it has now")
    instances: int = Field(1, ge=0, le=1000, description="its live processes")
    success: dict[str, Rate] = Field(default_factory=dict, description="success rate by capability")


class FleetState(BaseModel):
    """The states of agents; one that is not named is active and idle."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: dict[str, AgentState] = Field(default_factory=dict, description="state by agent id")


def read_fleet_state(path: Path, fleet: Fleet) -> FleetState:
    """The states in a YAML file. Raises ``BadInput``, also for an agent or a capability that no manifest declares."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Problem(f"cannot be read: {error}", file=str(path))) from None
    document = parse(text, file=str(path))
    state = validate(FleetState, document)
    problems = _strangers(state, fleet, document)
    if problems:
        raise BadInput(problems)
    return FleetState(agents={fold(name): agent for name, agent in state.agents.items()})


def _strangers(state: FleetState, fleet: Fleet, document: Document) -> list[Problem]:
    problems = []
    for name, agent_state in state.agents.items():
        agent = fleet.agents.get(fold(name))
        if agent is None:
            problems.append(_unknown(("agents", name), "no manifest is of agent", name, list(fleet.agents)))
            continue
        ids = [capability.id for capability in agent.manifest.capabilities]
        problems += (
            _unknown(("agents", name, "success", each), f"{name} has no capability", each, ids)
            for each in agent_state.success
            if fold(each) not in ids
        )
    return [document.located(problem) for problem in problems]


def _unknown(place: tuple[str, ...], what: str, name: str, known: list[str]) -> Problem:
    close = nearest(name, known)
    hint = f"did you mean {close}?" if close else f"known: {', '.join(sorted(known)) or 'none'}"
    return Problem(f"{what} {name!r}", json_pointer(place), hint=hint)


def put_in_state(fleet: Fleet, state: FleetState, now: float) -> None:
    """Make the fleet be as the file says, at ``now`` (monotonic seconds)."""
    for agent in fleet.agents.values():
        _put(fleet, agent, state.agents.get(agent.agent_id, AgentState()), now)


def _put(fleet: Fleet, agent: Agent, state: AgentState, now: float) -> None:
    for number in range(state.instances):
        _add_instance(agent, f"{agent.agent_id}-{number + 1}", PresenceState(state.presence), now)
    for number in range(state.held):
        dispatch_id = f"held-{agent.agent_id}-{number + 1}"
        fleet.leases.add(Lease(dispatch_id, agent.agent_id, dispatch_id, now, now, 0, probe=False))
    agent.breaker.state = BreakerState(state.breaker)
    if agent.breaker.state is BreakerState.OPEN:
        agent.breaker.open_until = now + state.open_for_s
    for capability, rate in state.success.items():
        track = fleet.record.touch(agent.agent_id, fold(capability))
        for number in range(TRIES):
            track.ended(now, good=number < rate * TRIES, seconds=None)


def _add_instance(agent: Agent, instance_id: str, presence: PresenceState, now: float) -> None:
    instance = Instance(agent.agent_id, instance_id, presence)
    if presence is not PresenceState.PENDING:
        instance.heard_at = now
        instance.beat = Heartbeat(
            agent_id=agent.agent_id,
            instance_id=instance_id,
            mailbox="",
            capacity=agent.manifest.max_concurrency,
            running=(),
            manifest_hash=agent.manifest.hash,
            version=agent.manifest.version,
            stopping=False,
        )
    agent.roster.instances[instance_id] = instance
