"""``reach publish``: a task, or many, with or without waiting for the answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast, get_args

import click

from reach_worker import wiring
from reach_worker.cli.answers import print_answer
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.human_times import took
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import print_json_line, put, say
from reach_worker.cli.parameters import duration, json_object, key_value, read_file
from reach_worker.cli.progress import progress_bar
from reach_worker.cli.stream_printing import Wanted, print_stream
from reach_worker.cli.task_lines import tasks_in
from reach_worker.client import Client
from reach_worker.core.task import Task
from reach_worker.errors import OutsideWorld

if TYPE_CHECKING:
    from reach_worker.calling.order import Options

MODES: Final = get_args(Task.model_fields["mode"].annotation)
AGGREGATES: Final = get_args(Task.model_fields["aggregate"].annotation)
BATCH: Final = 200
"""Tasks that are sent together and confirmed together."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for, as the command line says it."""

    capability: str | None
    payload: dict[str, Any] | None
    from_file: str | None
    wait: bool
    timeout: float
    task_id: str | None
    flow: str | None
    requires: tuple[str, ...]
    domain: str | None
    deadline: float | None
    max_cost: float | None
    mode: str | None
    aggregate: str | None
    first_n: int | None
    side_effects: bool
    metadata: tuple[tuple[str, str], ...]
    intent: str | None
    stream: bool
    lines: bool
    as_json: bool

    def fields(self) -> dict[str, Any]:
        """The fields of a task that were given, without its payload."""
        fields = {
            "task_id": self.task_id,
            "capability": self.capability,
            "intent": self.intent,
            "flow_id": self.flow,
            "requires": list(self.requires) or None,
            "domain": self.domain,
            "deadline_ms": None if self.deadline is None else max(1, round(self.deadline * 1000)),
            "max_cost": self.max_cost,
            "mode": self.mode,
            "aggregate": self.aggregate or ("first_n" if self.first_n is not None else None),
            "first_n": self.first_n,
            "side_effects": self.side_effects or None,
            "metadata": dict(self.metadata) or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def wanted(self) -> Wanted:
        """The task for a client, which has its deadline in seconds."""
        fields = {
            name: value for name, value in self.fields().items() if name not in ("capability", "deadline_ms")
        }
        given = fields if self.deadline is None else {**fields, "deadline": self.deadline}
        return Wanted(self.capability, self.payload or {}, cast("Options", given), self.timeout, self.lines)


@click.command(
    cls=ReachCommand,
    examples=[
        "reach publish log.query '{\"status\": 500}' --wait",
        "reach publish report.table @figures.json --flow monthly --deadline 10m",
        "reach publish text.summarize @report.json --stream",
        "reach publish text.label @letter.json --mode fanout --aggregate vote --wait",
        "jq -c '.[]' orders.json | reach publish order.book - --task-id order-17 --side-effects",
        "reach publish --from tasks.jsonl --wait --json > answers.jsonl",
    ],
)
@click.argument("capability", required=False)
@click.argument("payload", required=False, metavar="PAYLOAD|@file|-")
@click.option(
    "--from", "from_file", metavar="FILE.jsonl", help="Many tasks, one JSON object a line; - is stdin."
)
@click.option("--wait", is_flag=True, help="Wait for the answers and print them.")
@click.option("--stream", is_flag=True, help="Print what its agent says while it works, then the end.")
@click.option("--lines", is_flag=True, help="With --stream: each chunk on a line of its own.")
@click.option(
    "--timeout", type=duration, default="1m", show_default=True, help="How long to wait for an answer."
)
@click.option("--task-id", help="The task's id; else one is made.")
@click.option("--flow", help="The flow it belongs to; else its own.")
@click.option("--requires", multiple=True, metavar="TAG", help="A tag that its agent needs; may be repeated.")
@click.option("--domain", help="The permission domain it belongs to.")
@click.option("--deadline", type=duration, help="It is worthless after so long: 30s, 10m.")
@click.option("--max-cost", type=click.FloatRange(0), help="The highest price that you pay.")
@click.option(
    "--mode", type=click.Choice(MODES), help="For one agent (the default), a race of two, or all who can."
)
@click.option("--aggregate", type=click.Choice(AGGREGATES), help="With fanout: what its answer is made of.")
@click.option("--first-n", type=click.IntRange(1, 1000), help="With fanout: the first so many answers.")
@click.option("--side-effects", is_flag=True, help="Running it twice would do harm.")
@click.option(
    "--metadata", multiple=True, type=key_value, metavar="KEY=VALUE", help="Passed on; may be repeated."
)
@click.option("--intent", metavar="TEXT", help="What is wanted in words, in place of CAPABILITY.")
@json_option
@pass_invocation
def publish(invocation: Invocation, /, **options: Any) -> int:
    """Publish a task, or many from a file.

    The broker confirms each one. A file is checked as a whole before anything is sent; wrong lines are named by their
    number. With --wait every answer is printed, with --json as JSON lines. With --stream the chunks go to stdout as they
    come, what is said about them to stderr; the task is cancelled if you leave (Ctrl-C) or the time is up. Exit status
    1: not every task succeeded.
    """
    order = Order(**_with_payload(options))
    if order.lines and not order.stream:
        raise click.UsageError("--lines says how --stream prints: give both")
    settings = invocation.settings
    limit = settings.intake.max_body_bytes
    if order.from_file is None:
        if order.capability is None and order.intent is None:
            raise click.UsageError("name a capability and a payload, or a file with --from")
        if order.stream:
            return wiring.run(lambda: print_stream(settings, order.wanted(), as_json=order.as_json))
        tasks = [{**order.fields(), "payload": order.payload or {}}]
    elif order.fields() or order.payload is not None:
        raise click.UsageError("with --from the tasks and all their fields are in the file")
    elif order.stream:
        raise click.UsageError("--stream is for one task: with --from use --wait")
    else:
        name = "standard input" if order.from_file == "-" else order.from_file
        tasks = tasks_in(read_file(order.from_file), file=name, max_bytes=limit)
    return wiring.run(lambda: _publish(invocation, tasks, order))


def _with_payload(options: dict[str, Any]) -> dict[str, Any]:
    """With an intent the only argument is the payload."""
    capability, payload = options["capability"], options["payload"]
    if options["intent"] is not None:
        if payload is not None:
            raise click.UsageError("a task has a capability or an intent, not both")
        capability, payload = None, capability
    read = None if payload is None else json_object(payload)
    return {**options, "capability": capability, "payload": read}


async def _publish(invocation: Invocation, tasks: Sequence[dict[str, Any]], order: Order) -> int:
    async with wiring.client(invocation.settings) as client:
        ids = await _send(client, tasks, answer=order.wait)
        if order.wait:
            return await _collect(client, ids, order)
    for task_id in ids:
        if order.as_json:
            print_json_line({"task_id": task_id})
        else:
            put(task_id)
    return OK


async def _send(client: Client, tasks: Sequence[dict[str, Any]], *, answer: bool) -> list[str]:
    ids: list[str] = []
    with progress_bar("published", len(tasks)) as show:
        for start in range(0, len(tasks), BATCH):
            try:
                ids += await client.publish(tasks[start : start + BATCH], answer=answer)
            except OutsideWorld:
                if ids:
                    say(
                        f"{len(ids)} of {len(tasks)} tasks were confirmed before this; the next {BATCH} may be partly"
                    )
                raise
            show(len(ids))
    return ids


async def _collect(client: Client, ids: Sequence[str], order: Order) -> int:
    """Print answers as they come. ``order.timeout`` runs anew with each."""
    waiting = dict.fromkeys(ids)
    good = 0
    with progress_bar("answered", len(ids)) as show:
        while waiting:
            try:
                answer = await client.next_answer(order.timeout)
            except TimeoutError:
                break
            if answer.task_id in waiting:
                del waiting[answer.task_id]
                good += answer.succeeded
                print_answer(answer, as_json=order.as_json)
                show(len(ids) - len(waiting))
    for task_id in waiting:
        _print_silence(task_id, order)
    if len(ids) > 1:
        say(f"{good} of {len(ids)} tasks succeeded" + (f", {len(waiting)} gave no answer" if waiting else ""))
    return OK if good == len(ids) else TROUBLE


def _print_silence(task_id: str, order: Order) -> None:
    """No answer in time says nothing of the task: it goes on."""
    if order.as_json:
        print_json_line({"task_id": task_id, "status": "no_answer", "final": False})
    else:
        put(f"task {task_id}: no answer within {took(order.timeout)}; it goes on, see: reach fetch {task_id}")
