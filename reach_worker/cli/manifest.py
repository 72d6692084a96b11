"""``reach manifest``: what an agent's code declares, as a file to keep or to change."""

from pathlib import Path

import click

from reach_worker.cli.command import ReachCommand
from reach_worker.cli.output import put, say
from reach_worker.cli.parameters import manifest_option
from reach_worker.core.manifest import Manifest
from reach_worker.core.yaml_writing import write_yaml
from reach_worker.errors import BadInput, Problem


@click.command(
    cls=ReachCommand,
    examples=[
        "reach manifest my_agents:log_analyzer",
        "reach manifest my_agents:log_analyzer --out config/agents/log-analyzer.yaml",
    ],
)
@click.argument("place", metavar="MODULE:NAME")
@manifest_option
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it there, over what is there, and print nothing.",
)
def manifest(place: str, manifest: Path | None, out: Path | None) -> None:
    """Print what an agent's code declares, as YAML.

    With schemas from its type hints and descriptions from its docstrings; what is left at its default is left out.
    `reach check` takes it, and `reach agent` can be given it, or a part of it, with --manifest.
    """
    from reach_worker.cli.agent_module import agent_at  # noqa: PLC0415 - `reach --help` needs none of it

    text = manifest_text(agent_at(place, manifest).manifest)
    if out is None:
        put(text.rstrip("\n"))
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise BadInput(Problem(f"cannot be written: {error.strerror or error}", file=str(out))) from None
    say(f"{out}: written")


def manifest_text(manifest: Manifest) -> str:
    """A manifest as YAML that loads back equal."""
    said = manifest.model_dump(mode="json", exclude_defaults=True)
    always = manifest.model_dump(mode="json", include={"version", "mutually_exclusive_tags"})
    fields = {**said, **always}
    return write_yaml({name: fields[name] for name in type(manifest).model_fields if name in fields})
