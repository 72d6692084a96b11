"""Agents that all do the same work, each in processes of its own, and write down what they began.

What a task does is what its payload says: ``hold`` seconds pass; ``until``, a path, is waited for, also beyond the end
of its time where it is ``deaf``; ``fail`` is the number of attempts that raise, in the end, or ``fail_at_once``; ``die``
is the number of attempts that take the process along, in the ``way`` that it names.
"""

import ctypes
import os
import resource
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from reach_worker import Agent, Context

NOTES: Final = "CREW_NOTES"
"""The variable that names the file where each run leaves a line: agent, task, attempt."""
BROKEN: Final = "CREW_BROKEN"
"""The variable that, set to anything, makes every run of a process fail."""

BREAKS: Final = "CREW_BREAKS"
"""The variable that names a file: once it is there, every run of the process fails."""

WORK: Final = "crew.work"
ONCE: Final = "crew.once"
"""As ``crew.work``, with side effects."""
LONG: Final = "crew.long"
"""As ``crew.work``, with two minutes of time."""
HOG: Final = "crew.hog"
"""Blocks the event loop for ``hold`` seconds."""
ONLY: Final = "crew.only"
"""As ``crew.work``; only the first agent has it."""


def _run_out_of_memory() -> None:
    """Where the system refuses memory, in place of killing whoever takes it."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, limits[1]))
    try:
        bytearray(1 << 31)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


WAYS: Final[Mapping[str, Callable[[], object]]] = {
    "kill": lambda: signal.raise_signal(signal.SIGKILL),  # as the system does where memory runs out
    "exit": lambda: os._exit(3),
    "segv": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "memory": _run_out_of_memory,
}
"""How a task can take its process along; the last one takes only itself."""


def _work(payload: Mapping[str, Any], context: Context, agent_id: str) -> dict[str, Any]:
    _note(f"{agent_id} {context.task_id} {context.attempt}")
    if context.attempt <= payload.get("die", 0):
        WAYS[payload.get("way", "kill")]()
    if context.attempt <= payload.get("fail_at_once", 0):
        raise RuntimeError("as the task wanted it, at once")
    gate, deaf = payload.get("until"), payload.get("deaf", False)
    while gate and not Path(gate).exists() and (not context.cancelled.wait(0.01) or deaf):
        pass
    context.cancelled.wait(payload.get("hold", 0))
    broken = os.environ.get(BROKEN) or Path(os.environ.get(BREAKS, "/dev/null/no")).exists()
    if broken or context.attempt <= payload.get("fail", 0):
        raise RuntimeError("as the task wanted it")
    return {"by": agent_id, "echo": payload.get("echo")}


def _note(line: str) -> None:
    if path := os.environ.get(NOTES):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{line}\n".encode())
        os.close(file)


def begun(notes: Path) -> list[tuple[str, str]]:
    """Agent and task of every run, in the order in which they began."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [(line.split()[0], line.split()[1]) for line in lines]


def runs(notes: Path) -> Counter[str]:
    """How often each task was begun."""
    return Counter(task_id for _, task_id in begun(notes))


def _member(agent_id: str, *more: str) -> Agent:
    agent = Agent(agent_id, max_concurrency=4)
    for capability_id in (WORK, ONCE, LONG, *more):
        time_ms = 120_000 if capability_id == LONG else 20_000

        @agent.capability(capability_id, side_effects=capability_id == ONCE, timeout_ms=time_ms)
        def run(payload: Mapping[str, Any], context: Context) -> dict[str, Any]:
            return _work(payload, context, agent_id)

    @agent.capability(HOG, timeout_ms=20_000)
    async def hog(payload: Mapping[str, Any], context: Context) -> None:
        _note(f"{agent_id} {context.task_id} {context.attempt}")
        threading.Event().wait(payload["hold"])

    return agent


one, two, three, four = MEMBERS = tuple(
    _member(agent_id, *more) for agent_id, *more in (("crew-1", ONLY), ("crew-2",), ("crew-3",), ("crew-4",))
)
CREW: Final = {
    agent.manifest.id: f"tests.system.crew:{name}"
    for agent, name in zip(MEMBERS, ("one", "two", "three", "four"), strict=True)
}
"""Where ``reach agent`` finds each."""
