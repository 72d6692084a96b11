"""``store``: how fast history is written, and how fast questions about a long one are answered."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, Final

from reach_worker import wiring
from reach_worker.bench.chance import Chance
from reach_worker.bench.live import history
from reach_worker.bench.live.figures import middle, quantile, rounded
from reach_worker.bench.live.model_rows import ROWS, model_tasks
from reach_worker.bench.live.replay import dead_letters_of
from reach_worker.bench.live.scene import Place, Scene
from reach_worker.bench.live.sizes import Sizes
from reach_worker.bench.live.usage import Usage
from reach_worker.clock import SystemClock
from reach_worker.core.dead_letter import Filter
from reach_worker.core.duplicates import TaskState
from reach_worker.errors import OurBug
from reach_worker.ports import Row
from reach_worker.store.history import StoreReader
from reach_worker.store.sqlite_store import SqliteStore

TURN: Final = 64
"""Tasks whose rows a turn of a busy router records together."""
LISTED: Final = 50

Say = Callable[[str], None]


async def run(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Rows into a new store; questions to the longest history; ``dlq list``, which asks the broker and no store."""
    rates, cpu = [], []
    for number in range(1, sizes.runs + 1):
        rows_per_s, cpu_us = await _written(place, sizes.rows_of)
        rates.append(rows_per_s)
        cpu.append(cpu_us)
        say(f"round {number}: {rows_per_s:.0f} rows/s")
    outcomes = max(sizes.outcomes)
    say(f"a history of {outcomes} outcomes")
    path = await history.made(place.history(outcomes), outcomes)
    return {
        "rows_per_s": middle(rates),
        "cpu_us_per_row": middle(cpu),
        "rows_per_task": ROWS,
        "peak_mb": rounded(Usage.own().peak_mb),
        "runs": sizes.runs,
        "outcomes": outcomes,
        "bytes_per_outcome": rounded(path.stat().st_size / outcomes),
        **await _asked(path, outcomes, sizes.questions),
        "dlq_list": await _listed(place, sizes),
    }


async def _written(place: Place, tasks: int) -> tuple[float, float]:
    """Rows per second and CPU microseconds per row, of all threads."""
    clock = SystemClock()
    source = model_tasks(clock.utc_us())
    turns = [_of_turn(list(islice(source, TURN))) for _ in range(max(1, tasks // TURN))]
    path = place.settings().store.path
    async with SqliteStore.open(path, clock=clock, wait_s=30.0) as store:
        began, used = clock.monotonic(), Usage.own().cpu_s
        for rows in turns:
            if not await store.record(rows):
                raise OurBug("the store did not take the rows of the bench in time")
        seconds, cpu_s = clock.monotonic() - began, Usage.own().cpu_s - used
    rows_in_all = sum(map(len, turns))
    return rows_in_all / seconds, cpu_s / rows_in_all * 1e6


def _of_turn(tasks: Sequence[list[Row]]) -> list[Row]:
    return [row for rows in tasks for row in rows]


async def _asked(path: Any, outcomes: int, questions: int) -> dict[str, Any]:
    """What ``reach explain`` and ``reach tasks`` ask, of tasks anywhere in the history."""
    draw = Chance("explain", outcomes).draw
    first = history.MODELS + 1
    ids = [history.task_id(first + int(draw() * (outcomes - first))) for _ in range(questions)]
    async with StoreReader.open(path) as reader:

        async def explain(task_id: str) -> None:
            if await reader.task(task_id) is None:
                raise OurBug(f"task {task_id} is not in the history of the bench")

        explained = sorted([await _ms(lambda one=one: explain(one)) for one in ids])  # type: ignore[misc] # bound now
        return {
            "explain": {
                "p50_ms": rounded(quantile(explained, 0.5)),
                "p99_ms": rounded(quantile(explained, 0.99)),
            },
            "tasks_ms": rounded(await _ms(lambda: reader.recent(LISTED))),
            "tasks_dead_letter_ms": rounded(await _ms(lambda: reader.recent(LISTED, TaskState.DEAD_LETTER))),
            "counts_ms": rounded(await _ms(reader.counts)),
        }


async def _ms(ask: Callable[[], Awaitable[object]]) -> float:
    clock = SystemClock()
    began = clock.monotonic()
    await ask()
    return (clock.monotonic() - began) * 1000


async def _listed(place: Place, sizes: Sizes) -> dict[str, float]:
    clock = SystemClock()
    scene = Scene(settings=place.settings())
    rates = []
    async with dead_letters_of(scene, sizes.letters):
        for _ in range(sizes.runs):
            async with wiring.dead_letters(scene.settings) as letters:
                began = clock.monotonic()
                found = await letters.look(Filter())
                rates.append(len(found) / (clock.monotonic() - began))
            if len(found) != sizes.letters:
                raise OurBug(f"{len(found)} of {sizes.letters} dead letters were listed")
    return {"letters": sizes.letters, "letters_per_s": middle(rates)}
