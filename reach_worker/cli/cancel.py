"""``reach cancel``: have a task cancelled, by its id."""

import click

from reach_worker import wiring
from reach_worker.calling.client import ReachClient
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import print_json, put
from reach_worker.cli.parameters import duration
from reach_worker.settings import Settings


@click.command(cls=ReachCommand, examples=["reach cancel order-17", "reach cancel order-17 --json"])
@click.argument("task")
@click.option(
    "--timeout", type=duration, default="5s", show_default=True, help="How long to wait for a router's word."
)
@json_option
@pass_invocation
def cancel(invocation: Invocation, task: str, timeout: float, *, as_json: bool) -> int:
    """Cancel a task by its id.

    What waits ends at once; what runs is told to stop. The routers do it for the broker user that published the task, and
    for everybody where that was nobody in particular. Exit status 1: it was not, because it is over, or somebody else's,
    or no router answered.
    """
    settings = invocation.settings
    return wiring.run(lambda: _cancel(settings, task, timeout, as_json=as_json))


async def _cancel(settings: Settings, task_id: str, timeout: float, *, as_json: bool) -> int:
    async with ReachClient(settings=settings) as reach:
        done = await reach.cancel(task_id, timeout)
    if as_json:
        print_json({"task_id": task_id, "cancelled": done.cancelled, "state": done.state})
    else:
        put(f"task {task_id}: {_WORDS.get(done.state, done.state) if done else _why_not(done.state)}")
    return OK if done else TROUBLE


_WORDS = {
    "waiting": "cancelled, it waited",
    "running": "it runs, and is told to stop",
    "under_way": "it is under way, and ends where it turns up",
    "unknown": "no router knows it; should it turn up within a minute, it is cancelled",
    "cancelled": "it was cancelled",
}


def _why_not(state: str) -> str:
    match state:
        case "unknown":
            return "not cancelled: no router answered"
        case "forbidden":
            return "not cancelled: another user published it"
        case _:
            return f"not cancelled: it has ended, {state}"
