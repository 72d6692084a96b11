"""``reach decide``: one decision, offline."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.decision_tree import add_decision
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.fleet_file import FleetState, put_in_state, read_fleet_state
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Node, print_json, print_tree
from reach_worker.cli.parameters import json_object
from reach_worker.core.envelope import ANONYMOUS
from reach_worker.core.gates import Ask
from reach_worker.core.routing import Chosen, Decision, plan
from reach_worker.core.tags import TagTable, fold
from reach_worker.core.task import Refusal, Task, task_from
from reach_worker.errors import BadInput
from reach_worker.settings import Settings, load_fleet

NOW = 0.0
"""Offline no time passes."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be decided."""

    capability: str
    payload: dict[str, Any]
    task_id: str
    requires: tuple[str, ...]
    domain: str | None
    caller: str
    max_cost: float | None
    to_agent: str | None
    fleet_file: Path | None

    def ask(self, tags: TagTable) -> Ask:
        """The question as the routing takes it, in normalised spelling. Raises ``BadInput``."""
        task = task_from(
            {
                "task_id": self.task_id,
                "capability": self.capability,
                "payload": self.payload,
                "requires": list(self.requires),
                "domain": self.domain,
            }
        )
        if isinstance(task, Refusal):
            raise BadInput(task.error)
        return self._of(task, tags)

    def _of(self, task: Task, tags: TagTable) -> Ask:
        return Ask(
            task_id=self.task_id,
            capability=fold(self.capability),
            payload=task.payload,
            requires=tuple(tags.normalise(tag) for tag in task.requires),
            domain=fold(task.domain) if task.domain is not None else None,
            caller=self.caller,
            max_cost=self.max_cost,
            to_agent=fold(self.to_agent) if self.to_agent is not None else None,
        )


@click.command(
    cls=ReachCommand,
    examples=[
        "reach decide log.query '{\"status\": 500}'",
        "reach decide text.echo @task.json --requires vision --domain finance",
        "reach decide log.query '{}' --fleet sick.yaml   # agents: {log-a: {breaker: open, open_for_s: 41}}",
    ],
)
@click.argument("capability")
@click.argument("payload", type=json_object, default="{}", metavar="PAYLOAD|@file|-")
@click.option(
    "--fleet", "fleet_file", type=click.Path(path_type=Path), metavar="FILE.yaml", help="States of agents."
)
@click.option(
    "--task-id", default="decide", help="Breaks ties and draws exploration, where the policy has them."
)
@click.option("--requires", multiple=True, metavar="TAG", help="Tags that are all needed; may be repeated.")
@click.option("--domain", help="The permission domain of the task.")
@click.option("--caller", default=ANONYMOUS, show_default=True, help="Who asks: the AMQP user.")
@click.option("--max-cost", type=click.FloatRange(0), help="The highest price that the caller pays.")
@click.option("--to", "to_agent", metavar="AGENT", help="As if a person had sent it to this agent.")
@json_option
@pass_invocation
def decide(invocation: Invocation, /, *, as_json: bool, **question: Any) -> int:
    """Run one decision offline.

    Without a broker, from the manifests alone: every agent counts as there and idle, unless --fleet says
    otherwise: for each agent presence, breaker, open_for_s, held, instances, success by capability.

    Exit status 1: no agent would get it now.
    """
    decision = _decision(invocation.settings, Question(**question))
    if as_json:
        print_json(decision.as_dict())
    else:
        root = Node(f"{decision.capability} asked by {question['caller']}", "bold")
        add_decision(root, decision.as_dict(), "decision")
        print_tree(root)
    return OK if isinstance(decision.choice, Chosen) else TROUBLE


def _decision(settings: Settings, question: Question) -> Decision:
    files = load_fleet(settings)
    fleet = wiring.offline_fleet(settings, list(files.manifests))
    state = FleetState() if question.fleet_file is None else read_fleet_state(question.fleet_file, fleet)
    put_in_state(fleet, state, NOW)
    return plan(question.ask(files.tags), fleet, settings.routing, NOW)
