"""The program ``reach``: its commands by what people want to do, each loaded only when it is called."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from reach_worker import __version__
from reach_worker.cli.command import write_examples
from reach_worker.cli.failures import OK, tell
from reach_worker.cli.invocation import Invocation
from reach_worker.errors import ReachError


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: the part of the help it stands in, its name, and where it is (``module:attribute``)."""

    part: str
    name: str
    place: str
    summary: str

    def load(self) -> click.Command:
        """The command itself."""
        module, _, attribute = self.place.partition(":")
        command: click.Command = getattr(import_module(f"reach_worker.cli.{module}"), attribute)
        return command


COMMANDS: Final = (
    Entry("Run", "router", "run:router", "Run a router."),
    Entry("Run", "agent", "run:agent", "Run a worker of an agent."),
    Entry("Run", "demo", "run:demo", "Show a router and its agents at work."),
    Entry("Run", "manifest", "manifest:manifest", "Print what an agent's code declares, as YAML."),
    Entry("Publish", "publish", "publish:publish", "Publish a task, or many from a file."),
    Entry("Publish", "fetch", "fetch:fetch", "Fetch the answer of a task by its id."),
    Entry("Publish", "cancel", "cancel:cancel", "Cancel a task by its id."),
    Entry("Look", "explain", "explain:explain", "Show why a task went where it went."),
    Entry("Look", "agents", "agents:agents", "Show who is there, and how well it does."),
    Entry("Look", "status", "status:status", "Show how every router is, what waits and why."),
    Entry("Look", "ready", "ready:ready", "Tell whether a router or an agent takes work now."),
    Entry("Look", "tasks", "tasks:tasks", "Show the tasks that came last."),
    Entry("Look", "decide", "decide:decide", "Run one decision offline."),
    Entry(
        "Look",
        "replay-log",
        "replay_log:replay_log",
        "Show what another policy would have chosen, and estimate its success.",
    ),
    Entry(
        "Look",
        "tune",
        "tune:tune",
        "Propose time-outs and breaker thresholds from what the log says of each agent.",
    ),
    Entry("Look", "check", "check:check", "Check the settings, the manifests and the tags."),
    Entry("Look", "topology", "topology:topology", "Show, declare or export queues and exchanges."),
    Entry("Look", "audit", "audit:audit", "Prove that every accepted task has one end, or name where it is."),
    Entry(
        "Look",
        "doctor",
        "doctor:doctor",
        "Look at broker, queues, fleet, store and settings, and say what to do.",
    ),
    Entry(
        "Repair", "feedback", "feedback:feedback", "Say of a task's result: good, bad, or wrong-agent=AGENT."
    ),
    Entry("Repair", "dlq", "dlq:dlq", "Look at dead letters, replay or drop them."),
    Entry("Repair", "store", "store:store", "Look at the store's file, prune it, back it up."),
    Entry("Repair", "unmatched", "unmatched:unmatched", "Look at tasks that no agent may take, assign them."),
)
_BY_NAME: Final = {entry.name: entry for entry in COMMANDS}
_EXAMPLES: Final = (
    "reach router",
    "reach agent my_agents:log_analyzer",
    "reach publish log.query '{\"status\": 500}' --wait",
    "reach explain 4f0c",
    "reach dlq replay --reason attempts_exhausted",
)


class Guarded(click.Command):
    """A program of its own: whatever goes wrong becomes a message and an exit status, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        ctx.exit(self._status(ctx))

    def _status(self, ctx: click.Context) -> int:
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except (ReachError, BaseExceptionGroup, BrokenPipeError, KeyboardInterrupt) as error:
            return tell(error)
        return status if isinstance(status, int) else OK


class Program(Guarded, click.Group):
    """The commands of :data:`COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        entry = _BY_NAME.get(cmd_name)
        return entry.load() if entry else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _BY_NAME and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}{_did_you_mean(args[0], _BY_NAME)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        for part, entries in groupby(COMMANDS, key=lambda entry: entry.part):
            with formatter.section(part):
                formatter.write_dl([(entry.name, entry.summary) for entry in entries])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        write_examples(_EXAMPLES, formatter)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    from reach_worker.core.document import nearest  # noqa: PLC0415 - only where something is wrong anyway

    close = nearest(name, known)
    return f", did you mean {close!r}?" if close else ""


def begin(ctx: click.Context, config: Path | None, *, verbose: bool) -> None:
    """Give the command what it is called with."""
    ctx.obj = Invocation(config, verbose)
    ctx.obj.log_to_stderr()


config_option: Final = click.Option(
    ["--config"],
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings; config/reach.yaml where it is there, else the defaults. REACH_* variables go over it.",
)
verbose_option: Final = click.Option(["-v", "--verbose"], is_flag=True, help="Log everything to stderr.")


@click.group(
    cls=Program,
    params=[config_option, verbose_option],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="reach")
@click.pass_context
def reach(ctx: click.Context, config: Path | None, *, verbose: bool) -> None:
    """Deliver every task to the agent that should do it, and prove that it did.

    Exit status: 0 all is well, 1 something is not as it should be, 2 the command or a file is wrong.
    """
    begin(ctx, config, verbose=verbose)


def main() -> None:
    """What the shell calls."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # both are text streams
    reach(prog_name="reach")
