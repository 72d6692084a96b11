"""The broker's own tool, played by shell scripts: what it says, and every way in which it does not."""

import asyncio
from pathlib import Path

import pytest

from reach_worker.cli.broker_ctl import Told, ask

WELL = """
case "$2" in
    list_connections) echo '[{"connection_name","reach doctor 77"}]' ;;
    eval) echo '{ok,900000}' ;;
    list_queues) echo '[{"name":"p.intake","policy":"ops"},{"name":"p.dlq","policy":""},{"name":"x"}]' ;;
    list_policies) echo '[{"name":"ops","definition":"{\\"expires\\":5}"},{"name":"new","definition":{"a":1}}]' ;;
    list_bindings) echo '[{"source_name":"p.tasks","destination_name":"p.intake"}]' ;;
esac
"""


def said(folder: Path, script: str, connection: str = "doctor 77") -> Told:
    tool = folder / "tool"
    tool.write_text(f"#!/bin/sh\n{script}")
    tool.chmod(0o755)
    return asyncio.run(ask([str(tool)], "/", connection))


def test_what_it_says(tmp_path: Path) -> None:
    told = said(tmp_path, WELL)

    assert told == Told(900.0, {"p.intake": ("ops", {"expires": 5})}, {("p.tasks", "p.intake")})


def test_a_broker_without_a_timeout(tmp_path: Path) -> None:
    told = said(tmp_path, WELL.replace("{ok,900000}", "{ok,undefined}"))

    assert (told.consumer_timeout_s, told.trouble) == (None, None)


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("echo 'Error: unable to connect to node rabbit@x' >&2; exit 69", "unable to connect to node"),
        ("exit 3", "it ended with status 3"),
        ("echo 'somebody else'", "speaks of another broker"),
        (WELL.replace('echo \'[{"name":"ops"', "echo '{{{{'; echo '"), "tool: "),
    ],
)
def test_what_it_does_not_say(tmp_path: Path, script: str, trouble: str) -> None:
    told = said(tmp_path, script)

    assert told.trouble is not None
    assert trouble in told.trouble
    assert (told.consumer_timeout_s, told.policies) == (None, {})


def test_it_is_not_there(tmp_path: Path) -> None:
    nowhere = asyncio.run(ask([str(tmp_path / "nowhere")], "/", "doctor 77")).trouble
    assert nowhere is not None
    assert "No such file" in nowhere
    unasked = asyncio.run(ask([], "/", "doctor 77")).trouble
    assert unasked == "there is no rabbitmqctl here, or it was not to be asked"
