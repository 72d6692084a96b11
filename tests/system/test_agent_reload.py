"""``reach agent --reload``: an agent that is being written, and its life around the tasks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.processes import Processes, command

pytestmark = pytest.mark.system

CODE = """\
from collections.abc import AsyncIterator
from pydantic import BaseModel
from reach_worker import Agent, Context

class In(BaseModel):
    text: str

class Out(BaseModel):
    text: str
    version: str

agent = Agent("quick", version="VERSION")

@agent.lifespan
async def version() -> AsyncIterator[str]:
    print("opened VERSION", flush=True)
    yield "VERSION"
    print("closed VERSION", flush=True)

@agent.capability("text.echo")
async def echo(payload: In, ctx: Context) -> Out:
    return Out(text=payload.text, version=ctx.resources)
"""


def write(folder: Path, version: str) -> None:
    (folder / "being_written.py").write_text(CODE.replace("VERSION", version))


def test_a_change_starts_it_again_and_a_mistake_is_shown_and_waited_out(
    processes: Processes, tmp_path: Path
) -> None:
    write(tmp_path, "1")
    processes.router()
    agent = processes.start("agent", "being_written:agent", "--reload")
    agent.wait_for(r"agent quick instance \S+ is up")

    write(tmp_path, "2")
    agent.wait_for(r"^changed: \S+being_written\.py; starting the worker again")
    agent.wait_for(r"(?s)closed 1.*opened 2.*is up")
    answer = processes.reach("publish", "text.echo", '{"text": "a"}', "--wait")
    assert answer.json() == {"text": "a", "version": "2"}

    (tmp_path / "being_written.py").write_text("def f(:\n")
    agent.wait_for(r"being_written\.py:1:7: invalid syntax")
    agent.wait_for(r"^the worker has ended with status 2; waiting for a change")
    assert "closed 2" in agent.log()
    assert "change detected" not in agent.log()  # said once, and in our words

    write(tmp_path, "3")
    agent.wait_for(r"(?s)opened 3.*is up")
    assert agent.stop() == 0
    assert "closed 3" in agent.log()


def test_the_worker_does_not_outlive_a_parent_that_is_killed(processes: Processes, tmp_path: Path) -> None:
    write(tmp_path, "1")
    agent = processes.start("agent", "being_written", "--reload-dir", ".")
    agent.wait_for(r"agent quick instance \S+ is up")

    agent.kill()

    agent.wait_until(lambda: "closed 1" in agent.log(), "the worker's own end")


def test_a_second_signal_leaves_at_once(processes: Processes, tmp_path: Path) -> None:
    hangs = CODE.replace('    print("closed VERSION", flush=True)', "    await asyncio.Event().wait()")
    (tmp_path / "being_written.py").write_text(f"import asyncio\n{hangs}")
    agent = processes.start("agent", "being_written", "--reload")
    agent.wait_for(r"agent quick instance \S+ is up")

    agent.signal(signal.SIGINT)
    agent.wait_for("stopping: no new work")
    agent.signal(signal.SIGINT)

    assert agent.wait_end(5.0) == 0
    assert "leaving at once" in agent.log()


def test_a_start_up_that_fails_ends_the_process_with_its_reason(processes: Processes, tmp_path: Path) -> None:
    broken = CODE.replace(
        '    print("opened VERSION", flush=True)', '    raise ConnectionError("no database")'
    )
    (tmp_path / "being_written.py").write_text(broken)

    done = processes.reach("agent", "being_written:agent")

    assert done.status == 1
    assert done.err.rstrip().endswith(
        "being_written.py:16: the start-up failed in version: ConnectionError: no database"
    )
    assert "is up" not in done.err


def test_without_the_library_it_says_what_to_install(processes: Processes, tmp_path: Path) -> None:
    write(tmp_path, "1")
    (tmp_path / "watchfiles.py").write_text("raise ImportError\n")
    done = subprocess.run(
        command(["agent", "being_written:agent", "--reload"]),
        cwd=tmp_path,
        env={**processes.environment, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "Error: --reload needs the library watchfiles (pip install 'reach-worker[reload]')\n",
    )
