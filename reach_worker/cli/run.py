"""Commands that run something: a router, an agent's worker, the demo."""

import logging
from pathlib import Path

import click

from reach_worker.cli.command import ReachCommand
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.parameters import manifest_option


@click.command(
    cls=ReachCommand,
    examples=["reach router", "REACH_ROUTER__ID=router-2 reach router", "reach --config staging.yaml router"],
)
@pass_invocation
def router(invocation: Invocation) -> int:
    """Run a router.

    It takes tasks, gives each to an agent, and settles what comes back, until SIGTERM or Ctrl-C: then it takes
    no more, hands back what waits, and leaves after router.grace_s at the latest. A second signal ends it at
    once; nothing is lost by that.

    While it runs it takes changed manifests and tags, and the routing of the settings file. A bad file is told,
    and what was known stays.

    Several routers may share one broker and one store. Each needs its own router.id.
    """
    from reach_worker import wiring  # noqa: PLC0415 - the demo has no use for it
    from reach_worker.settings import Sources  # noqa: PLC0415

    sources = Sources(invocation.settings, invocation.config_file, invocation.environ)
    invocation.log_to_stderr(logging.INFO)
    return wiring.run(lambda: wiring.run_router(sources.settings, sources))


@click.command(
    cls=ReachCommand,
    examples=[
        "reach agent my_agents:log_analyzer",
        "reach agent my_package.agents:Analyzer --manifest staging/analyzer.yaml",
        "reach agent my_agents:log_analyzer --reload",
        "reach agent agents/weather.yaml",
    ],
)
@click.argument("place", metavar="MODULE:NAME|FILE.yaml")
@manifest_option
@click.option("--reload", is_flag=True, help="For development: start it again when its source files change.")
@click.option(
    "--reload-dir",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Watch this folder, and not the module's own. May be given more than once.",
)
@click.option("--with-parent", is_flag=True, hidden=True, help="Stop when standard input ends.")
@pass_invocation
def agent(
    invocation: Invocation,
    place: str,
    manifest: Path | None,
    folders: tuple[Path, ...],
    *,
    reload: bool,
    with_parent: bool,
) -> int:
    """Run a worker of an agent.

    MODULE is imported as Python would from this folder; NAME in it is an Agent, or a subclass of Agent.
    It may be left out where the module holds only one.

    FILE.yaml is a manifest with an `adapter` section, which says how to reach what does the work: an HTTP endpoint, a
    chat model, a program, or a foreign worker's queue.

    The same command run again, here or on another machine, is another instance of the agent.

    With --reload the worker is drained and started again whenever a source file in the module's folder changes. A
    mistake in it is shown, and the next change waited for.
    """
    if reload or folders:
        from reach_worker.cli.reloading import serve_reloading  # noqa: PLC0415 - only here

        invocation.log_to_stderr(logging.INFO)
        return serve_reloading(invocation, place, manifest, folders)
    from reach_worker import wiring  # noqa: PLC0415 - the demo has no use for it
    from reach_worker.cli.adapter_file import adapter_at, is_adapter_file  # noqa: PLC0415
    from reach_worker.cli.agent_module import agent_at  # noqa: PLC0415
    from reach_worker.demo.guest import while_wanted  # noqa: PLC0415

    settings = invocation.settings
    invocation.log_to_stderr(logging.INFO)
    found = adapter_at(place, invocation, manifest) if is_adapter_file(place) else agent_at(place, manifest)
    if with_parent:
        return wiring.run(lambda: while_wanted(lambda: wiring.run_worker(settings, found)))
    return wiring.run(lambda: wiring.run_worker(settings, found))


@click.command(cls=ReachCommand, examples=["reach demo", "REACH_AMQP_URL=amqp://… reach demo --json"])
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON, the last one.")
@click.option("--keep", is_flag=True, help="Leave the demo's store and files behind, and say where they are.")
def demo(*, as_json: bool, keep: bool) -> int:
    """Show a router and its agents at work.

    About 60 real tasks on a router and its agents, each a process of its own, on the broker of REACH_AMQP_URL;
    one agent fails, one is killed. Exit status 0: every task ended as it should.
    """
    from reach_worker.demo.run import main  # noqa: PLC0415 - nobody else needs it

    return main(json_output=as_json, keep=keep)
