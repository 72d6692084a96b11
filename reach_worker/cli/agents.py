"""``reach agents``: who is there, and how well it does."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.human_times import ago, local_second
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Table, print_json, print_table, say
from reach_worker.cli.parameters import duration
from reach_worker.cli.roll_call import Heard, Written, listen, read_known
from reach_worker.clock import SystemClock
from reach_worker.core.foreign import beat_of, is_foreign
from reach_worker.core.manifest import Manifest
from reach_worker.core.presence import Heartbeat
from reach_worker.ports import BreakerMoved
from reach_worker.settings import Settings
from reach_worker.store.records import AgentSuccess

BREAKERS_SINCE_US: Final = 24 * 3600 * 1_000_000
_STYLES: Final = {"active": "green", "silent": "red", "stopping": "yellow"}


@dataclass(frozen=True, slots=True)
class Line:
    """What is known of one agent. ``state``: active, stopping, or silent (known, and did not answer)."""

    agent_id: str
    state: str
    instances: Sequence[Heartbeat]
    manifest: Manifest | None
    queued: int | None
    success: Sequence[AgentSuccess]
    breaker: BreakerMoved | None

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        capabilities = [] if self.manifest is None else [each.id for each in self.manifest.capabilities]
        return {
            "agent": self.agent_id,
            "state": self.state,
            "version": self.manifest.version if self.manifest else None,
            "capabilities": capabilities,
            "capacity": sum(beat.capacity for beat in self.instances),
            "running": sum(len(beat.running) for beat in self.instances),
            "queued": self.queued,
            "instances": [asdict(beat) for beat in self.instances],
            "success": [asdict(each) for each in self.success],
            "breaker": None if self.breaker is None else asdict(self.breaker),
        }


@click.command(cls=ReachCommand, examples=["reach agents", "reach agents --listen 5s --json"])
@click.option(
    "--listen", "seconds", type=duration, default="1.5s", show_default=True, help="How long to listen."
)
@json_option
@pass_invocation
def agents(invocation: Invocation, seconds: float, *, as_json: bool) -> int:
    """Show who is there, and how well it does.

    Asks on the events exchange and listens; adds what manifests and store know. An agent that is known and did not
    answer is `silent`; with `presence: consumers`, one whose queue nobody consumes. Exit status 1: somebody is
    silent, or no router is there.
    """
    settings = invocation.settings
    return wiring.run(lambda: _agents(settings, seconds, as_json=as_json))


async def _agents(settings: Settings, seconds: float, *, as_json: bool) -> int:
    now_us = SystemClock().utc_us()
    written = await read_known(settings, now_us, now_us - BREAKERS_SINCE_US)
    heard = await listen(settings, set(written.manifests), seconds)
    lines = [_line(agent_id, heard, written) for agent_id in heard.depths]
    if as_json:
        print_json(
            {
                "agents": [line.as_data() for line in lines],
                "routers": sorted(heard.routers),
                "intake_consumers": heard.intake_consumers,
            }
        )
    else:
        _print(lines, now_us)
        click.echo(_routers(heard))
    if written.trouble:
        say(f"no success rates: {written.trouble}")
    silent = any(line.state == "silent" for line in lines)
    return TROUBLE if silent or not heard.somebody_routes else OK


def _routers(heard: Heard) -> str:
    """Routers answer when they are asked; that tasks are taken can be seen at any time."""
    ids = ", ".join(sorted(heard.routers)) or "none answers"
    return f"routers: {ids}" + ("" if heard.intake_consumers else "; nobody takes tasks now")


def _line(agent_id: str, heard: Heard, written: Written) -> Line:
    instances = heard.instances(agent_id)
    manifest = heard.manifests.get(agent_id) or written.manifests.get(agent_id)
    if not instances and manifest is not None and is_foreign(manifest) and agent_id in heard.consumed:
        instances = [beat_of(manifest)]
    return Line(
        agent_id=agent_id,
        state=_state(instances),
        instances=instances,
        manifest=manifest,
        queued=heard.depths[agent_id],
        success=[each for each in written.success if each.agent_id == agent_id],
        breaker=written.breakers.get(agent_id),
    )


def _state(instances: Sequence[Heartbeat]) -> str:
    if not instances:
        return "silent"
    return "stopping" if all(beat.stopping for beat in instances) else "active"


def _print(lines: Sequence[Line], now_us: int) -> None:
    columns = (
        "AGENT",
        "STATE",
        "INSTANCES",
        "RUNNING",
        "QUEUED",
        "BREAKER",
        "CAPABILITY",
        "SUCCESS",
        "TRIES",
        "LAST",
    )
    rows: list[Sequence[str]] = []
    styles: list[str] = []
    for line in lines:
        for row in _rows(line, now_us):
            rows.append(row)
            styles.append(_STYLES.get(line.state, ""))
    print_table(Table(columns, rows, styles))


def _rows(line: Line, now_us: int) -> list[Sequence[str]]:
    """One for each capability; what is the agent's own stands in the first."""
    rates = {each.capability: each for each in line.success}
    declared = [each.id for each in line.manifest.capabilities] if line.manifest else []
    running = sum(len(beat.running) for beat in line.instances)
    capacity = sum(beat.capacity for beat in line.instances)
    queued = "no queue" if line.queued is None else str(line.queued)
    own = (
        line.agent_id, line.state, str(len(line.instances)), f"{running}/{capacity}", queued,
        _breaker(line.breaker, now_us),
    )  # fmt: skip
    found: list[Sequence[str]] = []
    for capability in dict.fromkeys([*declared, *rates]) or [""]:
        head = own if not found else ("",) * len(own)
        found.append((*head, capability, *_rate(rates.get(capability))))
    return found


def _rate(success: AgentSuccess | None) -> tuple[str, str, str]:
    """Success, effective tries, last one; nothing known is not zero."""
    if success is None:
        return "-", "-", "-"
    rate = "-" if success.rate is None else f"{success.rate:.0%}"
    return rate, f"{success.tries:.1f}", local_second(success.last_at)


def _breaker(move: BreakerMoved | None, now_us: int) -> str:
    return "closed" if move is None else f"{move.state} {ago(move.at, now_us)}"
