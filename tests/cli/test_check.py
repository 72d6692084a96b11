"""``reach check`` and wrong configuration: every problem with its file, line, column and field."""

from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import MANIFEST, Call

WRONG = {
    "not YAML": ("reach.yaml", "router:\n  id: [router-1\n", "config/reach.yaml:3:1: not YAML: "),
    "a tab": ("reach.yaml", "router:\n\tid: a\n", "config/reach.yaml:2:1: not YAML: "),
    "an unknown setting": (
        "reach.yaml",
        "retry:\n  max_retrys: 3\n",
        "config/reach.yaml:2:3: /retry/max_retrys: unknown field (did you mean max_retries?)",
    ),
    "a wrong type": (
        "reach.yaml",
        "retry:\n  max_retries: many\n",
        "config/reach.yaml:2:3: /retry/max_retries: must be a whole number, not text",
    ),
    "an unknown manifest field": (
        "agents/cheap.yaml",
        MANIFEST.format(agent="cheap", cost=1) + "callable_bye: [x]\n",
        "config/agents/cheap.yaml:9:1: /callable_bye: unknown field (did you mean callable_by?)",
    ),
    "no mutually_exclusive_tags": (
        "agents/cheap.yaml",
        MANIFEST.format(agent="cheap", cost=1).replace("mutually_exclusive_tags: [secret]\n", ""),
        "config/agents/cheap.yaml:1:1: /mutually_exclusive_tags: is required",
    ),
    "two manifests with one id": (
        "agents/other.yaml",
        MANIFEST.format(agent="cheap", cost=1),
        "config/agents/other.yaml:1:1: /id: two manifests have the id 'cheap', the other is config/agents/cheap.yaml",
    ),
    "a manifest that is no YAML": (
        "agents/cheap.yaml",
        "id: {\n",
        "config/agents/cheap.yaml:2:1: not YAML: ",
    ),
    "two canonical tags": ("tags.yaml", "a: [x]\nb: [x]\n", "config/tags.yaml:2:5: /b/0: 'x' stands for"),
}


@pytest.mark.usefixtures("config")
def test_a_good_configuration_is_status_0(call: Call) -> None:
    done = call("check")

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "config/reach.yaml: no problems, no warnings; agents cheap, dear\n"


@pytest.mark.parametrize(("file", "text", "problem"), WRONG.values(), ids=WRONG)
def test_a_problem_names_its_place(call: Call, config: Path, file: str, text: str, problem: str) -> None:
    (config / file).write_text(text)

    done = call("check")

    assert done.exit_code == 1
    assert f"problem: {problem}" in done.stdout


@pytest.mark.parametrize(("file", "text", "problem"), WRONG.values(), ids=WRONG)
def test_a_command_that_needs_it_says_the_same_and_is_status_2(
    call: Call, config: Path, file: str, text: str, problem: str
) -> None:
    (config / file).write_text(text)

    done = call("decide", "text.echo", '{"text": "x"}')

    assert (done.exit_code, done.stdout) == (2, "")
    assert problem in done.stderr


@pytest.mark.parametrize("command", ["router", "agents", "tasks", "topology show", "dlq list", "explain t"])
def test_wrong_settings_stop_every_command(call: Call, config: Path, command: str) -> None:
    (config / "reach.yaml").write_text("retry:\n  max_retrys: 3\n")

    done = call(*command.split())

    assert done.exit_code == 2
    assert "did you mean max_retries?" in done.stderr


def test_all_problems_of_all_files_come_at_once(call: Call, config: Path) -> None:
    (config / "reach.yaml").write_text("retry:\n  max_retrys: 3\nrooter: {}\n")
    (config / "agents" / "cheap.yaml").write_text("id: cheap\n")
    (config / "tags.yaml").write_text("a: [x]\nb: [x]\n")

    done = call("check", "--json")

    found = orjson.loads(done.stdout)
    assert done.exit_code == 1
    assert found["ok"] is False
    assert {problem["field"] for problem in found["problems"]} == {
        "/retry/max_retrys",
        "/rooter",
        "/b/0",
        "/capabilities",
        "/mutually_exclusive_tags",
    }
    assert all(problem["file"] and problem["line"] for problem in found["problems"])


def test_warnings_are_shown_and_are_no_trouble(call: Call, config: Path) -> None:
    (config / "agents" / "dear.yaml").unlink()

    done = call("check")

    assert done.exit_code == 0
    assert "warning: config/agents/cheap.yaml:4:5: /capabilities/0/id: only agent 'cheap' has" in done.stdout
    assert "1 warning; agents cheap" in done.stderr


def test_a_wrong_variable_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACH_RETRY__MAX_RETRIES", "many")

    done = call("check")

    assert done.exit_code == 1
    assert "problem: REACH_RETRY__MAX_RETRIES: /retry/max_retries: must be a whole number" in done.stdout


def test_a_settings_file_that_is_not_there_is_wrong_usage(call: Call) -> None:
    done = call("--config", "nothing.yaml", "tasks")

    assert done.exit_code == 2
    assert done.stderr == "Error: nothing.yaml: there is no such file\n"
