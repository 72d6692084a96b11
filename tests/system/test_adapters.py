"""The README's adapters, run as they stand: a file each, a router, and what they reach."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.adapters import load_agent
from reach_worker.adapters.file_schema import agent_file_json_schema
from reach_worker.bus import topology
from reach_worker.core.names import Names
from reach_worker.core.yaml_text import parse
from tests.system.processes import Processes
from tests.system.test_readme import blocks
from tests.tooling.observing import wait_until

pytestmark = pytest.mark.system
ENVIRON = {
    "WEATHER_URL": "http://127.0.0.1:1",
    "WEATHER_KEY": "weather-key-1",
    "CHAT_URL": "http://127.0.0.1:1/v1",
    "CHAT_KEY": "chat-key-1",
    "CODER": "coder",
}
CODER = """#!/bin/sh
echo "asked: $*"
[ "$3" = "take long" ] && echo $$ > "$PID_FILE" && sleep 300
exit 0
"""
ADAPTERS = ("weather", "summarizer", "coder", "adder")


def example(name: str) -> str:
    """The README's file of that name."""
    (found,) = [block for block in blocks("yaml") if block.startswith(f"# {name}.yaml\n")]
    return found


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_examples_are_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.yaml"
    file.write_text(example(name))
    assert load_agent(file, ENVIRON).manifest.id == name
    schema = jsonschema_rs.validator_for(agent_file_json_schema())
    assert [error.message for error in schema.iter_errors(parse(example(name)).data)] == []


@contextmanager
def serving(handler: Any) -> Iterator[str]:
    """A web server in a thread; its address."""
    server: HTTPServer = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Model(BaseHTTPRequestHandler):
    """A model that always says the same, as a stream."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for text in ("All ", "is well."):
            self.wfile.write(
                b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n' % text.encode()
            )
        self.wfile.write(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n')
        self.wfile.write(b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}\n\n')
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def tidy(channel: BlockingChannel, prefix: str) -> Iterator[None]:
    """What these agents have on the broker is deleted in the end."""
    yield
    capabilities = ["weather.now", "text.summarize", "code.change", "math.add"]
    made = topology.complete(Names(prefix), router_ids=[], agent_ids=[*ADAPTERS], capabilities=capabilities)
    for queue in made.queues:
        channel.queue_delete(queue.name)
    channel.queue_delete(f"{prefix}-old.adder")


@pytest.fixture
def folder(processes: Processes, prefix: str) -> Path:
    """The examples as files, and a coder that is none."""
    for name in ADAPTERS:
        text = example(name).replace("old.adder", f"{prefix}-old.adder")
        (processes.folder / f"{name}.yaml").write_text(text)
    coder = processes.folder / "a-coder"
    coder.write_text(CODER)
    coder.chmod(0o755)
    return processes.folder


@pytest.mark.usefixtures("tidy")
def test_what_exists_is_reached_from_the_command_line(
    processes: Processes, folder: Path, prefix: str
) -> None:
    (folder / "paris.json").write_text('{"now": "fair"}')
    (code,) = [block for block in blocks("python") if block.startswith("# old_adder.py")]
    (folder / "old_adder.py").write_text(code.replace("old.adder", f"{prefix}-old.adder"))
    worker = subprocess.Popen([sys.executable, "old_adder.py"], cwd=folder, env=dict(processes.environment))
    try:
        with (
            serving(partial(SimpleHTTPRequestHandler, directory=str(folder))) as weather,
            serving(Model) as model,
        ):
            environ = {
                **ENVIRON,
                "WEATHER_URL": weather,
                "CHAT_URL": f"{model}/v1",
                "CODER": str(folder / "a-coder"),
            }
            processes.router()
            agents = [processes.agent(f"{name}.yaml", **environ) for name in ADAPTERS]
            asked = partial(answer, processes)
            assert asked("weather.now", '{"city": "paris"}') == "fair"
            assert asked("code.change", '{"instruction": "-x"}') == {"text": "asked: --print -- -x\n"}
            assert asked("math.add", '{"numbers": [1, 2, 3]}') == 6
            said = asked("text.summarize", '{"text": "long"}')
            assert (said["text"], said["usage"]["tokens_out"]) == ("All is well.", 3)
            assert said["usage"]["estimated"] is False
            assert [agent.stop() for agent in agents] == [0] * 4
            assert not any(key in agent.log() for agent in agents for key in ("weather-key-1", "chat-key-1"))
    finally:
        worker.kill()
        worker.wait()


def answer(processes: Processes, capability: str, payload: str) -> Any:
    done = processes.reach("publish", capability, payload, "--wait")
    assert done.status == 0, done.err
    return done.json()


@pytest.mark.usefixtures("tidy")
def test_an_agent_dies_and_its_program_with_it(processes: Processes, folder: Path) -> None:
    mark = folder / "pid"
    processes.router()
    agent = processes.agent("coder.yaml", CODER=str(folder / "a-coder"), PID_FILE=str(mark))
    processes.reach("publish", "code.change", '{"instruction": "take long"}')
    agent.wait_until(lambda: mark.exists() and mark.read_text() != "", "the program runs")
    pid = int(mark.read_text())
    os.kill(pid, 0)
    agent.kill()
    wait_until(lambda: not runs(pid))


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_that_is_not_there_is_told_at_the_start(processes: Processes, folder: Path) -> None:
    assert folder.is_dir()
    agent = processes.start("agent", "coder.yaml", CODER="no-such-coder")
    agent.wait_for(r"WARNING +coder\.yaml: there is no program")
    agent.kill()


def test_a_manifest_goes_over_what_the_file_declares(processes: Processes, folder: Path) -> None:
    (folder / "more.yaml").write_text("max_concurrency: nonsense\n")
    done = processes.reach("agent", "coder.yaml", "--manifest", "more.yaml", CODER="sh")
    assert done.status != 0
    assert "more.yaml:1:1: /max_concurrency" in done.err


def test_a_variable_that_is_missing_is_told_with_its_place(processes: Processes, folder: Path) -> None:
    assert folder.is_dir()
    done = processes.reach("agent", "weather.yaml", WEATHER_URL="http://h")
    assert done.status != 0
    assert re.search(
        r"weather\.yaml:13:13: /adapter/headers/Authorization: the environment has no WEATHER_KEY", done.err
    )
