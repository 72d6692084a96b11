"""A profile by CPU time that hardly slows what it looks at: the main thread's stack, sampled.

A timer that runs with the process's CPU time asks for a sample; each weighs as much CPU time as the main thread has used
since the one before. So what waits weighs nothing, and a busy machine does not show. What C functions use counts for the
Python function that called them. (A sampler in a thread of its own would see the places where the lock of the interpreter
is given up, not those where time goes; ``cProfile`` makes small functions look expensive.)
"""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import orjson

PERIOD_S: Final = 0.001


@dataclass(slots=True)
class Profile:
    """CPU seconds by function: ``own`` of its own lines, ``whole`` with all that it called."""

    own: Counter[str] = field(default_factory=Counter)
    whole: Counter[str] = field(default_factory=Counter)
    main_s: float = 0.0
    others_s: float = 0.0

    def sample(self, frame: FrameType | None, weight: float) -> None:
        """Count a stack."""
        names: list[str] = []
        while frame is not None:
            code = frame.f_code
            names.append(f"{_short(code.co_filename)}:{code.co_qualname}")
            frame = frame.f_back
        if not names:
            return
        self.own[names[0]] += weight  # type: ignore[assignment] # seconds; Counter is typed for whole numbers
        for name in set(names):
            self.whole[name] += weight  # type: ignore[assignment] # as above
        self.main_s += weight

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_bytes(
            orjson.dumps(
                {
                    "main_s": self.main_s,
                    "others_s": self.others_s,
                    "own": dict(self.own.most_common()),
                    "whole": dict(self.whole.most_common()),
                }
            )
        )


@contextmanager
def profiling_to(path: str | None) -> Iterator[None]:
    """Within the block the main thread is profiled, and the profile is written at its end; not without a path."""
    if not path:
        yield
        return
    profile = Profile()
    began, last = time.process_time(), time.thread_time()

    def sample(_number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.thread_time()
        profile.sample(frame, now - last)
        last = now

    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, PERIOD_S, PERIOD_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
        profile.others_s = time.process_time() - began - profile.main_s
        profile.write(Path(path))


def _short(filename: str) -> str:
    return "/".join(Path(filename).parts[-2:])
