"""The project's own processes, started as people start them, and watched from outside."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from tenacity import RetryError

from tests.tooling.observing import ROOT, wait_until

LIMIT_S = 30.0
"""No wait is longer, on a busy machine either."""


@dataclass
class Running:
    """A process that runs beside the test. What it writes, on either stream, is in its log."""

    name: str
    process: "subprocess.Popen[bytes]"
    log_file: Path

    def log(self) -> str:
        """What it wrote so far."""
        return self.log_file.read_text("utf-8", "replace")

    def wait_for(self, pattern: str, limit: float = LIMIT_S) -> "re.Match[str]":
        """Wait until a line of the log matches; the match. Fails at once where the process has ended before."""
        matches: list[re.Match[str]] = []

        def seen() -> bool:
            ended = self.process.poll() is not None
            matches.extend(re.finditer(pattern, self.log(), re.MULTILINE))
            assert matches or not ended, f"{self.name} ended with {self.process.returncode}:\n{self.log()}"
            return bool(matches)

        self.wait_until(seen, f"{pattern!r} in its log", limit)
        return matches[0]

    def wait_until(self, met: Callable[[], bool], what: str, limit: float = LIMIT_S) -> None:
        """Wait for a condition; a time-out shows the log."""
        try:
            wait_until(met, limit)
        except RetryError:
            raise AssertionError(f"{self.name}: not within {limit:g} s: {what}\n{self.log()}") from None

    def wait_end(self, limit: float = LIMIT_S) -> int:
        """Wait until it has ended; its exit status."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {limit:g} s\n{self.log()}") from None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self, limit: float = LIMIT_S) -> int:
        """SIGTERM; its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait_end(limit)

    def kill(self) -> None:
        """SIGKILL, as in an accident."""
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """The one document on standard output."""
        return orjson.loads(self.out)

    def json_lines(self) -> list[Any]:
        """The documents on standard output, one a line."""
        return [orjson.loads(line) for line in self.out.splitlines()]


@dataclass
class Processes:
    """Starts ``reach`` in a folder of the test's own. ``environment``: what all of its processes are given."""

    folder: Path
    environment: Mapping[str, str]
    running: list[Running] = field(default_factory=list)

    def start(self, *arguments: str, **more: str) -> Running:
        """A process that goes on beside the test: ``start("router")``. ``more`` goes over the environment."""
        return self._start(arguments, subprocess.DEVNULL, more)

    def start_asking(self, *arguments: str, **more: str) -> Running:
        """A process that may ask something, and waits for an answer that does not come."""
        return self._start(arguments, subprocess.PIPE, more)

    def _start(self, arguments: Sequence[str], stdin: int, more: Mapping[str, str]) -> Running:
        name = "-".join(re.sub(r"\W+", "-", argument) for argument in arguments)
        log_file = self.folder / f"{len(self.running)}-{name[:60]}.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                command(arguments),
                cwd=self.folder,
                env={**self.environment, **more},
                stdin=stdin,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        started = Running(" ".join(arguments), process, log_file)
        self.running.append(started)
        return started

    def router(self, **more: str) -> Running:
        """A router that takes tasks."""
        router = self.start("router", **more)
        router.wait_for(r"router \S+ is up")
        return router

    def agent(self, place: str, **more: str) -> Running:
        """A worker of an agent that takes tasks."""
        agent = self.start("agent", place, **more)
        agent.wait_for(r"agent \S+ instance \S+ is up")
        return agent

    def reach(self, *arguments: str, stdin: str | bytes = b"", limit: float = LIMIT_S, **more: str) -> Done:
        """A command that ends by itself. It must not show a traceback, whatever happens."""
        done = subprocess.run(
            command(arguments),
            cwd=self.folder,
            env={**self.environment, **more},
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=limit,
            check=False,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in out + err, out + err
        return Done(done.returncode, out, err)

    def close(self) -> None:
        """End whatever still runs."""
        for each in self.running:
            each.process.kill()
        for each in self.running:
            each.process.wait()
            if each.process.stdin is not None:
                each.process.stdin.close()


def command(arguments: Sequence[str]) -> list[str]:
    """The command line of ``reach`` with the Python that runs the tests."""
    return [sys.executable, "-m", "reach_worker", *arguments]


def environment(**settings: str) -> dict[str, str]:
    """The environment without settings of ours, and with these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REACH_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **settings}
