"""What a process has used: CPU time of all its threads, and memory."""

import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

_STATUS: Final = Path("/proc/self/status")
_RUSAGE_UNIT: Final = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since the process began; megabytes in memory now, and at most."""

    cpu_s: float
    rss_mb: float
    peak_mb: float

    @classmethod
    def own(cls) -> Self:
        """Of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        peak = used.ru_maxrss * _RUSAGE_UNIT / 1e6
        memory = _memory()
        return cls(used.ru_utime + used.ru_stime, memory.get("VmRSS", peak), memory.get("VmHWM", peak))

    @classmethod
    def read(cls, said: dict[str, Any]) -> Self:
        """As another process said it."""
        return cls(float(said["cpu_s"]), float(said["rss_mb"]), float(said["peak_mb"]))


def _memory() -> dict[str, float]:
    """Megabytes by their names in /proc; nothing where there is none.

    ``getrusage`` would do for the peak, but on Linux it begins with the peak of the process that started this one.
    """
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines if line.startswith(("VmRSS", "VmHWM")))
    return {name: int(text.split()[0]) * 1024 / 1e6 for name, _, text in pairs}
