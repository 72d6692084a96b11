"""How a peer's process talks with the bench: a thread answers for it, whatever loop the peer runs."""

import os
import signal
import sys
import threading
from dataclasses import asdict

from reach_worker.bench.live.lines import say
from reach_worker.bench.live.usage import Usage


def answer_in_background() -> None:
    """Answer ``usage`` from now on; when the standard input ends, the process does."""
    threading.Thread(target=_answer, name="bench", daemon=True).start()
    say("up", **asdict(Usage.own()))


def _answer() -> None:
    for _ in sys.stdin:
        say("usage", **asdict(Usage.own()))
    os.kill(os.getpid(), signal.SIGTERM)
