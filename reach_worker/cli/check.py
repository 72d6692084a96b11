"""``reach check``: everything that is wrong in the files, at once."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import print_json, say
from reach_worker.core.document import Document
from reach_worker.errors import BadInput, Problem
from reach_worker.settings import PathSettings, Settings, load_fleet, read_settings

USUAL_FOLDER: Final = Path("config")


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong, and what is allowed but probably not meant; and what was looked at."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    agents: tuple[str, ...]


@click.command(cls=ReachCommand, examples=["reach check", "reach --config staging/reach.yaml check --json"])
@json_option
@pass_invocation
def check(invocation: Invocation, *, as_json: bool) -> int:
    """Check the settings, the manifests and the tags.

    Every problem with its file, line, column and field, and with the nearest known name. Exit status 1: there are
    problems. Warnings are only shown.
    """
    found = _findings(invocation)
    if as_json:
        print_json(
            {
                "ok": not found.problems,
                "problems": [asdict(each) for each in found.problems],
                "warnings": [asdict(each) for each in found.warnings],
                "agents": list(found.agents),
            }
        )
    else:
        _print(found.problems, "problem", "red")
        _print(found.warnings, "warning", "yellow")
        say(f"{_source(invocation)}: {_summary(found)}")
    return TROUBLE if found.problems else OK


def _findings(invocation: Invocation) -> Findings:
    """The fleet is looked at even where the settings are wrong: then where it usually is."""
    problems: tuple[Problem, ...] = ()
    try:
        settings, document = read_settings(invocation.config_file, invocation.environ)
    except BadInput as error:
        settings, document = _usual_places(invocation.config_file), Document(None)
        problems = error.problems
    try:
        files = load_fleet(settings, document)
    except BadInput as error:
        return Findings((*problems, *error.problems), (), ())
    return Findings(problems, files.warnings, tuple(manifest.id for manifest in files.manifests))


def _usual_places(config_file: Path | None) -> Settings:
    folder = USUAL_FOLDER if config_file is None else config_file.parent
    return Settings(paths=PathSettings(agents=folder / "agents", tags=folder / "tags.yaml"))


def _print(problems: Iterable[Problem], kind: str, colour: str) -> None:
    for problem in problems:
        shown = click.style(kind, fg=colour) if sys.stdout.isatty() else kind
        click.echo(f"{shown}: {problem.render()}")


def _source(invocation: Invocation) -> str:
    file = invocation.config_file
    return "no settings file, the defaults" if file is None else str(file)


def _summary(found: Findings) -> str:
    agents = f"agents {', '.join(found.agents)}" if found.agents else "no agents"
    counts = f"{_count(len(found.problems), 'problem')}, {_count(len(found.warnings), 'warning')}"
    return counts if found.problems else f"{counts}; {agents}"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
