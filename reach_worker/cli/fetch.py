"""``reach fetch``: the answer of a task that was published before, by its id."""

import click

from reach_worker import wiring
from reach_worker.calling.client import ReachClient
from reach_worker.cli.answers import answer_of, print_answer, print_task_error
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.parameters import duration
from reach_worker.core.task_errors import TaskError
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
            print_task_error(error, as_json=as_json)
            return TROUBLE
    answer = answer_of(content, task_id)
    print_answer(answer, as_json=as_json)
    return OK if answer.succeeded else TROUBLE
