"""``reach feedback``: what a person says of a result."""

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import say
from reach_worker.clock import SystemClock
from reach_worker.core.announcement import VERDICTS
from reach_worker.core.tags import fold
from reach_worker.ports import Feedback, Standing
from reach_worker.settings import Settings
from reach_worker.store import StoreReader


@click.command(
    cls=ReachCommand,
    examples=["reach feedback order-17 good", "reach feedback order-17 wrong-agent=log-archive"],
)
@click.argument("task")
@click.argument("verdict")
@pass_invocation
def feedback(invocation: Invocation, task: str, verdict: str) -> int:
    """Say of a task's result: good, bad, or wrong-agent=AGENT.

    It counts for or against the agent that did the task: its quality, and with wrong-agent its routing errors.
    """
    word, _, better = verdict.partition("=")
    if word not in VERDICTS or (word == "wrong-agent") != bool(better):
        raise click.UsageError(f"say {VERDICTS[0]}, {VERDICTS[1]}, or {VERDICTS[2]}=AGENT")
    settings = invocation.settings
    return wiring.run(lambda: _give(settings, task, word, fold(better) or None))


async def _give(settings: Settings, task_id: str, word: str, better: str | None) -> int:
    async with StoreReader.open(settings.store.path) as store:
        history = await store.task(task_id)
    current = [row for row in history.outcomes if row.standing is Standing.CURRENT] if history else []
    if not current:
        say(f"no agent has answered a task {task_id!r}; see: reach tasks")
        return TROUBLE
    last = current[-1]
    said = Feedback(task_id, last.agent_id, last.capability, word, better, SystemClock().utc_us())
    told = await wiring.give_feedback(settings, said)
    say(
        f"{word} for {last.agent_id} on {last.capability}"
        + ("" if told else "; routers learn it when they start again")
    )
    return OK
