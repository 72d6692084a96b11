"""Where it was measured: figures of two machines, or of a busy and an idle one, are not to be compared."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from reach_worker.bus.rabbit import BusSettings, RabbitBus
from reach_worker.bus.topology import Topology
from reach_worker.clock import SystemClock

LIBRARIES: Final = ("aiormq", "aio-pika", "uvloop", "aiosqlite", "orjson", "pydantic")
PEERS: Final = ("celery", "dramatiq", "faststream", "taskiq")


async def environment(url: str | None) -> dict[str, Any]:
    """Machine, load at the start, versions; the broker's where there is one."""
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu_name(),
        "load_1_min": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "rabbitmq": await _broker(url) if url else None,
        "libraries": {name: found for name in (*LIBRARIES, *PEERS) if (found := _version(name))},
    }


async def _broker(url: str) -> str:
    settings = BusSettings((url,), "bench", waits=False)
    async with RabbitBus(settings, SystemClock(), Topology((), (), ())).running() as bus:
        return bus.server_version


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
