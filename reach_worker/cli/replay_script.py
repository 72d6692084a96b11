"""The replay as a program of its own, for ``scripts/replay_dlq.py``."""

from pathlib import Path
from typing import Any

import click

from reach_worker.cli.command import ReachCommand
from reach_worker.cli.program import Guarded, begin, config_option, verbose_option
from reach_worker.cli.replay import replay


class ReplayScript(Guarded, ReachCommand):
    """A program that is one command."""


@click.pass_context
def _run(ctx: click.Context, /, config: Path | None, *, verbose: bool, **options: Any) -> int:
    begin(ctx, config, verbose=verbose)
    status: int = ctx.invoke(replay, **options)
    return status


replay_script = ReplayScript(
    "replay_dlq.py",
    callback=_run,
    params=[config_option, verbose_option, *replay.params],
    help=replay.help,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=[example.replace("reach dlq replay", "scripts/replay_dlq.py") for example in replay.examples],
)
