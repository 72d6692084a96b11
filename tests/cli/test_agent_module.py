"""Naming an agent as ``module:name``: what can be wrong with it, in words."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reach_worker.cli.agent_module import agent_at
from reach_worker.errors import BadInput
from tests.cli.conftest import Call

AGENTS = """\
from reach_worker import Agent, capability

log_analyzer = Agent("log-analyzer")

class Echo(Agent):
    def __init__(self):
        super().__init__("echo")

    @capability("text.echo")
    def echo(self, payload):
        return payload

class Greedy(Agent):
    def __init__(self, more):
        super().__init__("greedy")

number = 5
"""


@pytest.fixture
def module(folder: Path) -> Iterator[str]:
    """A module of the folder, which is forgotten afterwards."""
    (folder / "their_agents.py").write_text(AGENTS)
    path = list(sys.path)
    yield "their_agents"
    sys.path[:] = path
    for name in ("their_agents", "broken", "only"):
        sys.modules.pop(name, None)


def refusal(place: str) -> str:
    with pytest.raises(BadInput) as caught:
        agent_at(place)
    return str(caught.value)


def test_an_agent_and_a_subclass_of_agent_are_found(module: str) -> None:
    assert agent_at(f"{module}:log_analyzer") is sys.modules[module].log_analyzer
    assert agent_at(f"{module}:Echo").manifest.id == "echo"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            "their_agents:log_analyser",
            "the module their_agents has no 'log_analyser' (did you mean log_analyzer?)",
        ),
        (
            "their_agents:xyzzy",
            "the module their_agents has no 'xyzzy' (agents in it: log_analyzer, Echo, Greedy)",
        ),
        ("their_agents:number", "their_agents:number is no agent but 'int' (it must be an Agent,"),
        ("their_agents:Greedy", "their_agents:Greedy cannot be made without arguments: "),
        (
            "their_agents",
            "the module their_agents holds 3 agents, name one (one of their_agents:log_analyzer, ",
        ),
        ("their_agentz:x", "there is no module 'their_agentz' (it is looked for in "),
        ("no_package.agents:x", "there is no module 'no_package'"),
        ("their-agents:x", "'their-agents' is no name of a module (write it as an import does: "),
        ("their_agents.py:x", "there is no module 'their_agents.py'"),
        ("", "'' is no name of a module"),
    ],
)
@pytest.mark.usefixtures("module")
def test_what_is_not_there_is_said_with_what_is_near(place: str, words: str) -> None:
    assert words in refusal(place)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "import no_such_library\n",
            "importing broken failed: ModuleNotFoundError: No module named 'no_such_library'",
        ),
        ("x = 1\ny = x / 0\n", "broken.py:2: importing broken failed: ZeroDivisionError: division by zero"),
        ("def f(:\n", "broken.py:1:7: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "importing broken failed: SystemExit: 3"),
        ("from reach_worker import Agent\na = Agent()\n", "an agent needs an id or a manifest"),
        (
            "from reach_worker import Agent\na = Agent(manifest='nothing.yaml')\n",
            "nothing.yaml: the manifest cannot be read",
        ),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_module_that_cannot_be_imported_says_where(folder: Path, text: str, words: str) -> None:
    (folder / "broken.py").write_text(text)

    assert words in refusal("broken:a")


@pytest.mark.usefixtures("module")
def test_the_only_agent_needs_no_name(folder: Path) -> None:
    (folder / "only.py").write_text("from reach_worker import Agent\nmine = Agent('mine', version='3')\n")

    assert agent_at("only").handlers == {}


@pytest.mark.usefixtures("module")
def test_the_command_is_wrong_usage(call: Call) -> None:
    done = call("agent", "their_agents:log_analyser")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: the module their_agents has no 'log_analyser'")
