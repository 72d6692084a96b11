"""``reach explain``: why did it go there?"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import click
import orjson

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.history_tree import history_tree
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import print_json, print_tree, put, say
from reach_worker.cli.why_not import why_not
from reach_worker.core.document import nearest
from reach_worker.core.tags import fold
from reach_worker.settings import Settings
from reach_worker.store import StoreReader
from reach_worker.store.records import TaskHistory

SHOWN: Final = 10
RECENT: Final = 500


@click.command(
    cls=ReachCommand,
    examples=[
        "reach explain 4f0c",
        "reach explain order-17 --why-not log-analyzer",
        "reach explain --flow import-2024-05",
    ],
)
@click.argument("task", required=False)
@click.option("--flow", metavar="FLOW", help="All tasks of this flow.")
@click.option("--why-not", "other", metavar="AGENT", help="Only say why this agent did not get it.")
@json_option
@pass_invocation
def explain(
    invocation: Invocation, task: str | None, flow: str | None, other: str | None, *, as_json: bool
) -> int:
    """Show why a task went where it went.

    Every decision with every candidate, gate and score; every attempt with its outcome; the end. TASK is the id of
    a task, or as many characters of it as no other id begins with. JSON has times in microseconds, UTC.
    """
    if (task is None) == (flow is None):
        raise click.UsageError("name a task, or a flow with --flow")
    settings = invocation.settings
    return wiring.run(lambda: _explain(settings, task, flow, other, as_json=as_json))


async def _explain(
    settings: Settings, task: str | None, flow: str | None, other: str | None, *, as_json: bool
) -> int:
    async with StoreReader.open(settings.store.path) as store:
        if flow is not None:
            ids = [each.task_id for each in await store.flow(flow)]
        else:
            ids = await _ids(store, task or "")
        if not ids:
            await _say_where_else(store, task, flow)
            return TROUBLE
        if task is not None and len(ids) > 1:
            say(f"several tasks begin with {task!r}: {', '.join(ids)}")
            return TROUBLE
        histories = [history for each in ids if (history := await store.task(each)) is not None]
        others = await store.flow(histories[0].task.flow_id) if flow is None and histories else []
        known = [seen.agent_id for seen in await store.manifests()] if other is not None else []
    if other is not None:
        _answer(histories, fold(other), known, as_json=as_json)
    elif as_json:
        shown = [plain(history) for history in histories]
        print_json(shown if flow is not None else shown[0])
    else:
        for history in histories:
            print_tree(history_tree(history, others))
    return OK


async def _ids(store: StoreReader, task: str) -> list[str]:
    """The task of that id, else those whose id begins so."""
    found = await store.find(task, SHOWN)
    return [task] if task in found else found


def _answer(histories: Sequence[TaskHistory], other: str, known: Sequence[str], *, as_json: bool) -> None:
    answers = {history.task.task_id: why_not(other, history.decisions, known) for history in histories}
    if as_json:
        print_json(answers)
        return
    for task_id, lines in answers.items():
        for line in lines:
            put(line if len(answers) == 1 else f"{task_id}: {line}")


async def _say_where_else(store: StoreReader, task: str | None, flow: str | None) -> None:
    """The store does not know it: it says why that may be, and which ids are near."""
    if task is None:
        say(f"no task of the flow {flow!r} is in the store")
        return
    say(f"no task {task!r} is in the store")
    say(
        "A router writes a task down when it gives it to an agent, or to its end. One that still waits may be in the "
        "intake queue, in a router's window or in a lane (`reach topology show` counts them); one that was published "
        "without task_id and message_id got an id from the router."
    )
    recent = [each.task_id for each in await store.recent(RECENT)]
    close = nearest(task, recent)
    near = await store.find(task[: max(4, len(task) // 2)], 5) or ([close] if close else [])
    if near:
        say(f"Near it: {', '.join(near)}")


def plain(history: TaskHistory) -> dict[str, Any]:
    """A history as plain data. Answers are what the caller got."""
    data = asdict(history)
    for part in (*data["lives"], *data["ends"]):
        part["answer"] = _answer_data(part["answer"])
    return data


def _answer_data(answer: bytes | None) -> Any:
    if answer is None:
        return None
    try:
        return orjson.loads(answer)
    except orjson.JSONDecodeError:
        return answer.decode("utf-8", "replace")
