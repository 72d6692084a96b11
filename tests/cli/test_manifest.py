"""``reach manifest``: what it prints is a manifest, the same one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reach_worker import Agent
from reach_worker.cli.agent_module import agent_at
from reach_worker.cli.manifest import manifest_text
from reach_worker.core.manifest import load_manifest
from reach_worker.core.tags import TagTable
from reach_worker.demo.agents import AGENTS
from tests.cli.conftest import Call

CODE = """\
from pydantic import BaseModel, Field
from reach_worker import Agent, Context

class Query(BaseModel):
    sql: str = Field(min_length=1)
    like: "list[Query]" = []

agent = Agent("my-db", version="1e3", max_concurrency=4, team="no", price={"per_task": 0.5})

@agent.capability("db.query", tags=["sql"], cost=2, timeout_ms=10_000, examples=["how many: users?"])
async def query(payload: Query, ctx: Context) -> list[dict[str, int]]:
    '''Rows of the database: "all" of them.'''
    return []

@agent.capability("db.size")
def size(table: str, exact: bool = False) -> int:
    return 0
"""


@pytest.fixture
def place(folder: Path) -> Iterator[str]:
    """An agent in the folder, forgotten afterwards."""
    (folder / "db_agents.py").write_text(CODE)
    path = list(sys.path)
    yield "db_agents:agent"
    sys.path[:] = path
    sys.modules.pop("db_agents", None)


def test_what_it_prints_loads_back_equal(call: Call, place: str) -> None:
    done = call("manifest", place)

    assert (done.exit_code, done.stderr) == (0, "")
    read = load_manifest(done.stdout, file=None, tags=TagTable({}))
    meant = agent_at(place).manifest
    assert (read, read.hash) == (meant, meant.hash)
    assert done.stdout.startswith(
        "id: my-db\nversion: '1e3'\ncapabilities:\n  - id: db.query\n    description: "
    )
    assert "latency_ms" not in done.stdout


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_every_agent_of_the_demo_loads_back_equal(agent: Agent) -> None:
    read = load_manifest(manifest_text(agent.manifest), file=None, tags=TagTable({}))

    assert (read, read.hash) == (agent.manifest, agent.manifest.hash)


def test_hints_that_are_text_and_a_context_that_only_type_checkers_import(place: str, folder: Path) -> None:
    lazy = CODE.replace(
        "from reach_worker import Agent, Context",
        "from typing import TYPE_CHECKING\nfrom reach_worker import Agent\n"
        "if TYPE_CHECKING:\n    from reach_worker import Context",
    )
    (folder / "db_agents.py").write_text(f"from __future__ import annotations\n{lazy}")

    agent = agent_at(place)

    assert agent.handlers["db.query"].signature.context == "ctx"
    assert agent.handlers["db.size"].output_schema == {"type": "integer"}


def test_reach_check_takes_it(call: Call, place: str, folder: Path) -> None:
    (folder / "config" / "agents").mkdir(parents=True)
    done = call("manifest", place, "--out", "config/agents/my-db.yaml")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "config/agents/my-db.yaml: written\n"

    checked = call("check")

    assert checked.exit_code == 0, checked.stdout
    assert "no problems" in checked.stderr
    assert "agents my-db" in checked.stderr


def test_a_file_goes_over_the_code(call: Call, place: str, folder: Path) -> None:
    (folder / "over.yaml").write_text("team: theirs\ncapabilities: [{id: db.size, cost: 5}]\n")

    done = call("manifest", place, "--manifest", "over.yaml")

    read = load_manifest(done.stdout, file=None, tags=TagTable({}))
    assert read.team == "theirs"
    assert [(each.id, each.cost) for each in read.capabilities] == [("db.size", 5.0), ("db.query", 2.0)]


@pytest.mark.parametrize("command", ["manifest", "agent"])
def test_a_capability_of_the_file_that_no_function_handles(
    call: Call, place: str, folder: Path, command: str
) -> None:
    (folder / "over.yaml").write_text("capabilities:\n  - id: db.sizes\n")

    done = call(command, place, "--manifest", "over.yaml")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "Error: over.yaml:2:5: /capabilities/0/id: agent 'my-db': the manifest declares db.sizes, but no function "
        "handles it (did you mean db.size?)\n"
    )


def test_a_file_that_cannot_be_written(call: Call, place: str) -> None:
    done = call("manifest", place, "--out", "nowhere/x.yaml")

    assert (done.exit_code, done.stderr) == (
        2,
        "Error: nowhere/x.yaml: cannot be written: No such file or directory\n",
    )
