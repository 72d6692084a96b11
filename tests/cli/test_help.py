"""Every command says what it does and shows how; a new one cannot be forgotten here."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from reach_worker import __version__
from reach_worker.cli.program import COMMANDS
from tests.cli.conftest import Call
from tests.tooling.observing import ROOT

EVERY_COMMAND = {
    "router",
    "agent",
    "manifest",
    "demo",
    "publish",
    "fetch",
    "cancel",
    "explain",
    "agents",
    "status",
    "ready",
    "tasks",
    "decide",
    "replay-log",
    "tune",
    "audit",
    "doctor",
    "feedback",
    "check",
    "topology",
    "topology show",
    "topology declare",
    "topology export",
    "dlq",
    "dlq list",
    "dlq show",
    "dlq replay",
    "dlq drop",
    "dlq export",
    "store",
    "store stats",
    "store prune",
    "store backup",
    "unmatched",
    "unmatched list",
    "unmatched assign",
}
PRINT_NO_DATA = {"router", "agent", "feedback", "unmatched assign"}
PRINT_NOTHING_ELSE = {"manifest", "topology export", "dlq export"}


def every_command() -> Iterator[tuple[str, click.Command]]:
    for entry in COMMANDS:
        command = entry.load()
        yield entry.name, command
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield f"{entry.name} {name}", below


def test_the_table_is_complete() -> None:
    assert {name for name, _ in every_command()} == EVERY_COMMAND


@pytest.mark.parametrize("name", sorted(EVERY_COMMAND))
def test_help_has_a_summary_and_an_example_of_this_command(call: Call, name: str) -> None:
    done = call(*name.split(), "--help")

    usage, _, examples = done.stdout.partition("Examples:\n")
    assert done.exit_code == 0
    assert usage.startswith(f"Usage: reach {name} ")
    assert f"reach {name}" in examples
    assert len(usage.split("\n\n")[1].strip()) > 10


@pytest.mark.parametrize("name", sorted(EVERY_COMMAND))
def test_a_command_that_prints_data_has_json(name: str) -> None:
    command = dict(every_command())[name]

    options = {text for parameter in command.params for text in parameter.opts}

    without = PRINT_NO_DATA | PRINT_NOTHING_ELSE | {"topology", "dlq", "store", "unmatched"}
    assert ("--json" in options) == (name not in without)


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_summary_in_the_list_is_the_commands_own(entry: object) -> None:
    for each in COMMANDS:
        if each is entry:
            assert (each.load().help or "").split("\n")[0] == each.summary


def test_the_list_is_grouped_by_what_people_do(call: Call) -> None:
    lines = call("--help").stdout.splitlines()

    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", "Run:", "Publish:", "Look:", "Repair:", "Examples:"]
    assert call("-h").stdout.splitlines() == lines


def test_the_version_is_the_packages(call: Call) -> None:
    assert call("--version").stdout == f"reach, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explian"], "there is no command 'explian', did you mean 'explain'?"),
        (["xyzzy"], "there is no command 'xyzzy'"),
        (["dlq", "lst"], "No such command 'lst'."),
        (["tasks", "--limt", "3"], "--limt"),
        (["tasks", "--limit", "0"], "0 is not in the range x>=1"),
        (["explain"], "name a task, or a flow with --flow"),
        (["explain", "t", "--flow", "f"], "name a task, or a flow with --flow"),
        (["unmatched", "assign", "t"], "choose an agent with --to, a capability with --capability, or both"),
        (["dlq", "replay", "--set", "limit=1"], "'limit' is no JSON pointer, such as /payload/limit"),
        (["dlq", "replay", "--set", "/a=b"], "text goes in quotes: '/a=\"b\"'"),
        (["dlq", "replay", "--edit", "-"], "--edit is for one task: name it with --task-id"),
        (["dlq", "replay", "--edit", "-", "--set", "/a=1"], "--edit replaces the whole body"),
        (["dlq", "list", "--older-than", "soon"], "'soon' is no duration; write 30s, 10m, 2h, 1d or 1h30m"),
        (["dlq", "list", "--reason", "bad"], "'bad' is not one of 'undecodable'"),
        (["publish"], "name a capability and a payload, or a file with --from"),
        (["publish", "a", "{"], "'{' is not JSON"),
        (["publish", "a", "[1]"], "'[1]' is no JSON object"),
        (["publish", "a", "@nothing.json"], "'nothing.json' cannot be read: No such file or directory"),
        (["publish", "a", "{}", "--intent", "b"], "a task has a capability or an intent, not both"),
        (["publish", "a", "--from", "b"], "with --from the tasks and all their fields are in the file"),
        (["publish", "a", "--lines"], "--lines says how --stream prints: give both"),
        (["publish", "--from", "b", "--stream"], "--stream is for one task: with --from use --wait"),
        (["publish", "--from", "nothing.jsonl"], "'nothing.jsonl' cannot be read"),
        (["publish", "a", "--metadata", "b"], "'b' is not key=value"),
    ],
)
def test_wrong_usage_is_status_2_and_says_what_is_wrong(
    call: Call, arguments: list[str], message: str
) -> None:
    done = call(*arguments)

    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Usage: reach" in done.stderr


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from reach_worker.cli.program import reach; reach(['--help'], standalone_mode=False);"
        "print(sorted({'aio_pika', 'aiormq', 'uvloop', 'aiosqlite', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"
