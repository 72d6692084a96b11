"""How much memory the routers use, as the system sees it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reach_worker.chaos.crew import Crew
from reach_worker.chaos.scale import ROUTERS
from reach_worker.chaos.sums import slope
from reach_worker.ports import Clock

EACH_S: Final = 1.0
LEAST_S: Final = 60.0
"""A process that lived shorter says nothing."""
WARM_UP_S: Final = 20.0
"""So long a process grows into its work; that is not looked at."""
_MB: Final = 1024.0


@dataclass(slots=True)
class Memory:
    """Samples of each router process: seconds (monotonic) and megabytes."""

    samples: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    async def watch(self, crew: Crew, clock: Clock) -> None:
        """Take samples for ever."""
        while True:
            for name in ROUTERS:
                pid = crew.pid(name)
                rss = None if pid is None else rss_mb(pid)
                if pid is not None and rss is not None:
                    self.samples.setdefault(pid, []).append((clock.monotonic(), rss))
            await clock.sleep(EACH_S)

    def slope_mb_per_min(self) -> float:
        """How fast the router process that lived longest grew, 0.0 if none lived for a minute."""
        longest = max(self.samples.values(), key=_lived, default=[])
        if _lived(longest) < LEAST_S:
            return 0.0
        warm = longest[0][0] + WARM_UP_S
        return slope([(at, rss) for at, rss in longest if at >= warm]) * 60


def _lived(samples: list[tuple[float, float]]) -> float:
    return samples[-1][0] - samples[0][0] if samples else 0.0


def rss_mb(pid: int) -> float | None:
    """The resident memory of a process in megabytes; ``None`` where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), None)
    return None if line is None else int(line.split()[1]) / _MB
