"""The README's tour, run as it stands: every command, and what it is said to print."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path

import pytest

from reach_worker.agent.life import CLOSING_S
from reach_worker.bus.topology import private
from reach_worker.calling.client import TIMEOUT_S, ReachClient
from reach_worker.calling.order import EARLIER_S
from reach_worker.calling.streaming import PREFETCH
from reach_worker.chaos.kinds import Kind
from reach_worker.chaos.scale import FULL
from reach_worker.core.group import MOST_LEGS
from reach_worker.core.long_run import LEASE_S
from reach_worker.core.manifest import load_manifest
from reach_worker.core.policy import PRESETS
from reach_worker.core.tags import TagTable
from reach_worker.settings import Settings
from tests.system.processes import Processes
from tests.tooling.observing import ROOT

README = (ROOT / "README.md").read_text("utf-8")
SET_UP = {
    "scripts/run",
    "scripts/test",
    "scripts/setup",
    "export REACH_AMQP_URL=$(scripts/broker start)",
    ". .venv/bin/activate",
    "scripts/broker stop",
    "scripts/chaos",
    "scripts/chaos --short --json",
    "scripts/chaos --seed 7",
    "scripts/chaos --minutes 60",
}
"""What other tests run (``tooling``, ``demo``, ``system/test_chaos.py``): broker and environment are there already."""


CALLING = {
    "calling.py": [
        "{'text': 'HELLO'}",
        "payload_refused shouter: payload/txt: no field is called 'txt' …",
        "{'text': 'LATER'}",
        "{'text': 'SOME'}",
        "{'text': 'WORDS'}",
        "Started(agent='speller', attempt=1)",
        "c",
        "all of it: abc",
        "Cancellation(cancelled=True, …",
        "task … was cancelled",
        "task …: no answer within 1 s; it is cancelled",
    ],
    "calling_plain.py": [
        "{'text': 'PLAINLY'}",
        "[{'text': 'ONE'}, {'text': 'TWO'}]",
        "Result(value='abc', …",
    ],
}
"""What the programs of the chapter on calling print."""


@dataclass
class Shown:
    """A command of the README and the lines that it is said to print."""

    command: str
    output: list[str] = field(default_factory=list)


def blocks(language: str) -> list[str]:
    """The fenced blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def tour() -> list[Shown]:
    """All commands of the README, in order."""
    shown: list[Shown] = []
    for line in "".join(blocks("console")).splitlines():
        if line.startswith("$ "):
            shown.append(Shown(line[2:]))
        else:
            shown[-1].output.append(line)
    return shown


def write_files(folder: Path, prefix: str) -> None:
    """The Python blocks that name their file, under the test's own prefix."""
    for block in blocks("python"):
        name = re.match(r"# (\S+\.py)\n", block)
        if name:
            (folder / name[1]).write_text(block.replace("reach.v1", prefix))


def said(line: str, printed: str) -> bool:
    """Whether a line was printed; ``…`` stands for anything."""
    pattern = ".*".join(re.escape(part.strip()) for part in line.split("…"))
    return re.search(rf"^\s*{pattern}", printed, re.MULTILINE) is not None


@pytest.mark.system
@pytest.mark.timeout(300)  # some forty commands, each a process of its own
def test_tour(processes: Processes, prefix: str, tmp_path: Path) -> None:
    write_files(tmp_path, prefix)
    commands = [shown for shown in tour() if shown.command not in SET_UP]
    assert [shown.command for shown in commands[:2]] == ["reach router &", "reach agent shouter:agent &"]
    processes.router(REACH_ROUTING__PRESET="adaptive")
    processes.agent("shouter:agent")
    for shown in commands[2:]:
        if shown.command.startswith("kill "):
            continue
        if shown.command.endswith(" &"):
            processes.start(*shown.command.split()[1:-1]).wait_for(r"agent \S+ instance \S+ is up")
            continue
        result = subprocess.run(  # a command as a person types it
            ["bash", "-c", shown.command.replace("reach ", f"{sys.executable} -m reach_worker ", 1)],
            cwd=tmp_path,
            env=dict(processes.environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        printed = result.stdout + result.stderr
        assert "Traceback" not in printed
        assert result.returncode in (0, 1), f"{shown.command}\nis no command, it says:\n{printed}"
        for line in shown.output:
            assert said(line, printed), f"{shown.command}\nshould print {line!r}, printed:\n{printed}"
    answer = run_example("publish_with_pika.py", processes)
    assert "mine-1" in answer
    assert "FROM PIKA" in answer
    for example, lines in CALLING.items():
        printed = run_example(example, processes)
        for line in lines:
            assert said(line, printed), f"{example}\nshould print {line!r}, printed:\n{printed}"


def run_example(name: str, processes: Processes) -> str:
    """What one of the README's programs prints."""
    done = subprocess.run(
        [sys.executable, name],
        cwd=processes.folder,
        env=dict(processes.environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "plugins",
    [
        pytest.param(["-p", "no:asyncio"], id="bare"),
        pytest.param(
            ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"], id="asyncio"
        ),
    ],
)
def test_the_tests_of_an_agent_pass_as_they_stand(tmp_path: Path, plugins: list[str]) -> None:
    write_files(tmp_path, "reach.v1")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "-W", "error", "test_shouter.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^3 passed", ran.stdout, re.MULTILINE), ran.stdout


def test_manifest_example_is_valid() -> None:
    (example,) = [block for block in blocks("yaml") if block.startswith("# agents/")]
    manifest = load_manifest(example, file="README.md", tags=TagTable({}))
    assert manifest.id == "log-analyzer"


def settings_rows() -> list[tuple[str, list[str], list[str]]]:
    """The rows of the table of settings: section, names, and what it says of the default of each."""
    table = re.findall(
        r"^\| `(\w+)` \| (.*?) \| (.*?) \|$",
        README.split("## Configuration")[1].split("## ")[0],
        re.MULTILINE,
    )
    return [
        (
            section,
            re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", names)),
            re.sub(r" \(.*", "", told).split(", "),
        )
        for section, names, told in table
    ]


def test_settings_table_names_real_settings() -> None:
    assert {section for section, _, _ in settings_rows()} == set(Settings.model_fields)
    for section, names, _ in settings_rows():
        known = type(getattr(Settings(), section)).model_fields
        for name in names:
            assert name in known, f"{section}.{name}"


def test_settings_table_tells_their_defaults() -> None:
    routing = Settings().routing
    of_the_preset = {"explore": PRESETS[routing.preset].explore}
    for section, names, told in settings_rows():
        for name, default in zip(names, told, strict=True):
            found = getattr(getattr(Settings(), section), name)
            assert meant(default) == plain(found or of_the_preset.get(name)), f"{section}.{name}"


def meant(told: str) -> object:
    """What a cell of the table says a default is."""
    if told in ("–", "no limit"):
        return None
    number, _, unit = told.partition(" ")
    if re.fullmatch(r"[\d.]+", number):
        return float(number) * {"": 1, "KiB": 1024, "MiB": 1024**2}[unit]
    return told.strip("`")


def plain(default: object) -> object:
    """A default as the table can say it: of several the first."""
    first = default[0] if isinstance(default, tuple) else default
    return str(first) if isinstance(first, Path) else first or None


@pytest.mark.parametrize(
    "sentence",
    [
        f"{FULL.tasks:,} tasks of {len(Kind)} kinds",
        f"while {FULL.faults} faults happen",
        f"can work gets it, {MOST_LEGS} at most",
        f"holds {PREFETCH} messages here and {private('').arguments['x-max-length']:,} on the broker",
        f"in {CLOSING_S:g} s together",
        f"After `timeout` seconds ({TIMEOUT_S:g};",
        f"is up to {EARLIER_S:g} s earlier",
        f"`concurrency` ({signature(ReachClient.map).parameters['concurrency'].default}) at once",
        f"comes back to the routers every {LEASE_S:g} s",
        f"{Settings().handoff.hops} hops (`handoff.hops`)",
        f"may make {Settings().calls.max} calls and spend {Settings().calls.seconds:g} s in them",
        f"sends a heartbeat every {Settings().presence.heartbeat_s:g} s",
        f"{Settings().retry.budget_share * 100:g} % of recent first attempts",
        f"always {Settings().retry.budget_floor_per_min:g} a minute",
        f"After {Settings().timeouts.min_successes} successes",
        f"{Settings().timeouts.factor:g} times the agent's 99th percentile",
        f"at least {Settings().timeouts.floor_ms / 1000:g} s;",
    ],
)
def test_numbers_in_its_sentences_are_those_of_the_code(sentence: str) -> None:
    assert sentence in " ".join(README.split())
