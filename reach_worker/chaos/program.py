"""``scripts/chaos``: its command."""

import click

from reach_worker import wiring
from reach_worker.chaos.report import Figures, summary
from reach_worker.chaos.run import Interrupted, run
from reach_worker.chaos.scale import FULL, SHORT, Scale, soak
from reach_worker.chaos.screen import Screen
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import INTERRUPTED, OK, TROUBLE
from reach_worker.cli.output import print_json_line, say
from reach_worker.cli.program import Guarded
from reach_worker.clock import SystemClock

SEEDS = 1_000_000


class Program(Guarded, ReachCommand):
    """A program of one command."""


@click.command(
    cls=Program,
    examples=[
        "scripts/chaos",
        "scripts/chaos --short --json",
        "scripts/chaos --seed 7",
        "scripts/chaos --minutes 60",
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--short", is_flag=True, help="A small run of a minute or so: one fault of each important kind."
)
@click.option("--minutes", type=click.FloatRange(min=1), help="A soak: load and faults for so long.")
@click.option("--seed", type=click.IntRange(0), help="Repeats a plan of tasks and faults; drawn if left out.")
@click.option("--keep", is_flag=True, help="Leave logs, ledgers and store behind, also when all went well.")
@json_option
def chaos(*, short: bool, minutes: float | None, seed: int | None, keep: bool, as_json: bool) -> int:
    """Break everything, and prove that nothing is lost and nothing happens twice unseen.

    Two routers with one store, six agents, a broker of their own; 20,000 tasks of many kinds, and over sixty faults
    meanwhile: processes killed, frozen and cut off, broker and store taken away. In the end every task that the broker
    had confirmed is looked up in what the agents wrote down, in the reach log and in the queues.

    What happens is told on stderr. Exit status 0 only if nothing is lost or stuck, whatever was done twice is explained
    by a fault, and nothing with side effects was begun twice.
    """
    if short and minutes is not None:
        raise click.UsageError("--short and --minutes are two different runs: take one")
    seed = int(SystemClock().draw() * SEEDS) if seed is None else seed
    figures: list[Figures] = []

    async def main() -> int:
        try:
            with Screen() as screen:
                figures.append(await run(_scale(minutes, short=short), seed, screen, keep=keep))
        except Interrupted:
            say("stopped")
            return INTERRUPTED
        return OK if figures[0].good else TROUBLE

    status = wiring.run(main)
    if not figures:
        return status
    for line in summary(figures[0]):
        say(line) if as_json else click.echo(line)
    if as_json:
        print_json_line(figures[0].as_dict())
    else:
        click.echo("All is as it should be." if status == OK else "NOT as it should be.")
    return status


def _scale(minutes: float | None, *, short: bool) -> Scale:
    if minutes is not None:
        return soak(minutes)
    return SHORT if short else FULL


def main() -> None:
    """What the shell calls."""
    chaos(prog_name="chaos")
