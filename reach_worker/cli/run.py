"""Commands that run something: a router, an agent's worker, the demo."""

import logging

import click

from reach_worker.cli.command import ReachCommand
from reach_worker.cli.invocation import Invocation, pass_invocation


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
    examples=["reach agent my_agents:log_analyzer", "reach agent my_package.agents:Analyzer"],
)
@click.argument("place", metavar="MODULE:NAME")
@pass_invocation
def agent(invocation: Invocation, place: str) -> int:
    """Run a worker of an agent.

    MODULE is imported as Python would from this folder; NAME in it is an Agent, or a subclass of Agent.
    It may be left out where the module holds only one.

    The same command run again, here or on another machine, is another instance of the agent.
    """
    from reach_worker import wiring  # noqa: PLC0415 - the demo has no use for it
    from reach_worker.cli.agent_module import agent_at  # noqa: PLC0415

    settings = invocation.settings
    invocation.log_to_stderr(logging.INFO)
    found = agent_at(place)
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
