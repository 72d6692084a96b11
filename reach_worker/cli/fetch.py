"""``reach fetch``: the answer of a task that was published before, by its id."""

import click

from reach_worker import wiring
from reach_worker.calling.client import ReachClient
from reach_worker.cli.answers import print_answer
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import print_json_line, put
from reach_worker.cli.parameters import duration
from reach_worker.client import Answer
from reach_worker.core.task_errors import CallTimeout, TaskError, UnknownTask
from reach_worker.settings import Settings


@click.command(cls=ReachCommand, examples=["reach fetch order-17", "reach fetch order-17 --now --json"])
@click.argument("task")
@click.option(
    "--timeout", type=duration, default="1m", show_default=True, help="How long to wait for its end."
)
@click.option("--now", is_flag=True, help="Do not wait for its end.")
@json_option
@pass_invocation
def fetch(invocation: Invocation, task: str, timeout: float, *, now: bool, as_json: bool) -> int:
    """Fetch the answer of a task by its id.

    Whoever published it, the routers are asked until it is over. They tell it to the broker user that published it, and
    to everybody where that was nobody in particular. Exit status 1: it did not succeed, or is not over.
    """
    settings = invocation.settings
    return wiring.run(lambda: _fetch(settings, task, 0 if now else timeout, as_json=as_json))


async def _fetch(settings: Settings, task_id: str, timeout: float, *, as_json: bool) -> int:
    async with ReachClient(settings=settings) as reach:
        try:
            content = await reach.answer(task_id, timeout)
        except TaskError as error:
            _print_silence(error, as_json=as_json)
            return TROUBLE
    status, final = str(content.get("status", "unreadable")), content.get("final") is not False
    answer = Answer(task_id, status, final, content)
    print_answer(answer, as_json=as_json)
    return OK if answer.succeeded else TROUBLE


def _print_silence(error: TaskError, *, as_json: bool) -> None:
    """No answer says nothing of the task, unless nobody knows it."""
    if not as_json:
        put(str(error))
        return
    kinds = {CallTimeout: "no_answer", UnknownTask: "unknown"}
    status = kinds.get(type(error), "lost")
    print_json_line({"task_id": error.task_id, "status": status, "final": False, "error": error.why})
