"""The parts of the bench, by name, and a run of several of them."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from reach_worker.bench.live import decide, grow, latency, replay, route, store
from reach_worker.bench.live.environment import environment
from reach_worker.bench.live.scene import Place
from reach_worker.bench.live.sizes import Sizes
from reach_worker.clock import SystemClock
from reach_worker.errors import BadInput, Problem

URL: Final = "REACH_AMQP_URL"
NO_BROKER: Final = Problem(
    f"{URL} is not set, and only `decide` needs no RabbitMQ",
    hint="`scripts/bench` starts one, measures on it and stops it",
)
STOPPED: Final = 130

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that is measured."""

    what: str
    run: Callable[[Place, Sizes, Say], Awaitable[Mapping[str, Any]]]
    needs_broker: bool = True


async def _decide(_place: Place, sizes: Sizes, _say: Say) -> Mapping[str, Any]:
    return decide.run(sizes)


PARTS: Final[Mapping[str, Part]] = {
    "route": Part("complete tasks per second, beside a bare forwarder and installed peers", route.run),
    "latency": Part("from publish to answer, at shares of the rate that is held", latency.run),
    "decide": Part("decisions, in process", _decide, needs_broker=False),
    "grow": Part("with long histories, many agents, and much under way or waiting", grow.run),
    "store": Part("rows written, questions to a long history, dead letters listed", store.run),
    "replay": Part("dead letters replayed per second", replay.run),
}


async def measure(
    names: Sequence[str],
    sizes: Sizes,
    url: str | None,
    say: Say,
    told: Callable[[str, Mapping[str, Any]], None],
) -> int:
    """Run the parts one after the other; ``told`` is called with each one's figures. The exit status."""
    if not url and any(PARTS[name].needs_broker for name in names):
        raise BadInput(NO_BROKER)
    with _cancelled_by_signals():
        folder = Path(tempfile.mkdtemp(prefix="reach-bench-"))
        try:
            place = Place(url or "", folder, SystemClock().new_id)
            told("environment", await environment(url))
            for name in names:
                say(f"{name}: {PARTS[name].what}")
                told(name, await PARTS[name].run(place, sizes, partial(_say_of, name, say)))
        except asyncio.CancelledError:
            return STOPPED
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _say_of(name: str, say: Say, text: str) -> None:
    say(f"{name}: {text}")


class _cancelled_by_signals:  # noqa: N801 - a context manager, used as a function
    """Within the block a signal cancels the task, so that its processes and its folder go with it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - it runs in one
        for number in self._signals:
            self._loop.add_signal_handler(number, task.cancel)

    def __exit__(self, *_: object) -> None:
        for number in self._signals:
            self._loop.remove_signal_handler(number)
