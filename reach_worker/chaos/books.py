"""What store and queues say in the end, read from outside."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from reach_worker import wiring
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.chaos.board import Board
from reach_worker.chaos.caller import ANSWERS
from reach_worker.chaos.findings import Remains
from reach_worker.chaos.kinds import CAPABILITY, Kind
from reach_worker.chaos.scale import AGENTS, ROUTERS
from reach_worker.chaos.stage import Stage
from reach_worker.core.backoff import RUNGS_MS
from reach_worker.core.dead_letter import Filter, dead_letter_from
from reach_worker.core.duplicates import TaskState
from reach_worker.core.names import Names
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.settings import Settings
from reach_worker.store import StoreReader
from reach_worker.store.records import StoredTask

ALL: Final = 10_000_000
LOOK_S: Final = 1.0
MOST: Final = 6
STILL: Final = 2
"""Everything has come to rest when it looked so that many times in a row."""


def working_queues(names: Names) -> Iterator[str]:
    """Every queue that is empty when nobody has anything to do: rungs before what they empty themselves into."""
    yield from (names.retry(rung) for rung in RUNGS_MS)
    yield names.intake
    yield from (names.outcomes(router) for router in ROUTERS)
    yield from (names.agent(agent) for agent in AGENTS)
    yield from (names.lane(capability) for capability in sorted(set(CAPABILITY.values())))
    yield names.returns


async def until_rest(stage: Stage, board: Board, clock: Clock, limit_s: float) -> float | None:
    """Wait until every confirmed task has its end in the reach log; the seconds it took.

    ``None`` where nothing came to its end for ``limit_s``, or it went on for :data:`MOST` times that: how fast tasks end
    is the machine's affair, that they go on ending is ours.
    """
    began = moved = clock.monotonic()
    ended = still = 0
    while still < STILL:
        await clock.sleep(LOOK_S)
        now, (count, rest) = clock.monotonic(), await _ended(stage, board)
        if count > ended:
            ended, moved = count, now
        still = still + 1 if rest else 0
        if now - moved >= limit_s or now - began >= MOST * limit_s:
            return None
    return clock.monotonic() - began


async def _ended(stage: Stage, board: Board) -> tuple[int, bool]:
    """How many tasks have their end, legs and calls too, and whether all have."""
    try:
        async with StoreReader.open(stage.data / "reach.db") as reader:
            tasks = (await reader.counts()).tasks
            count = sum(tasks.values()) - tasks[TaskState.UNDER_WAY]
            if tasks[TaskState.UNDER_WAY]:
                return count, False
            known = {task.task_id for task in await reader.recent(ALL)}
    except OutsideWorld:
        return 0, False
    return count, all(
        name in known for name in board.confirmed if board.tasks[name].kind is not Kind.MALFORMED
    )


async def under_way_since(stage: Stage, at_us: int) -> bool:
    """Whether a task that came before that time has no end yet; also where the store does not say."""
    try:
        async with StoreReader.open(stage.data / "reach.db") as reader:
            under_way = await reader.recent(ALL, TaskState.UNDER_WAY)
    except OutsideWorld:
        return True
    return any(task.first_seen <= at_us for task in under_way)


async def read_remains(stage: Stage, settings: Settings, board: Board) -> tuple[Remains, int]:
    """Where every task is; and how many lives the reach log has with more than one end."""
    async with StoreReader.open(stage.data / "reach.db") as reader:
        stored = await reader.recent(ALL)
        doubled_ends = (await reader.counts()).doubled_ends
    logged = {task.task_id: _said(task) for task in stored}
    parts: dict[str, dict[str, str]] = {}
    for task in stored:
        if task.flow_id in board.tasks and task.task_id != task.flow_id:
            parts.setdefault(task.flow_id, {})[task.task_id] = _said(task)[0]
    letters: dict[str, list[str]] = {}
    unread = []
    async with wiring.dead_letters(settings) as found:
        async for item in found.walk(Filter()):
            letter = item.letter
            letters.setdefault(letter.task_id, []).append(letter.reason.value)
            if letter.task_id not in logged or letter.task_id not in board.tasks:
                unread.append((letter.reason.value, letter.body))
    async with wiring.dead_letters(settings, unmatched=True) as found:
        parked = Counter([item.letter.task_id async for item in found.walk(Filter())])
    left = await _left(stage, settings)
    return Remains(logged, letters, unread, parked, left, parts), doubled_ends


def _said(task: StoredTask) -> tuple[str, int | None]:
    if task.state is TaskState.DEAD_LETTER:
        return (task.reason.value if task.reason else "dead_letter"), task.ended_at
    return task.state.value, task.ended_at


async def _left(stage: Stage, settings: Settings) -> dict[str, list[str]]:
    """The tasks in all queues where nothing should be left, with the names of those queues."""
    found: dict[str, list[str]] = {}
    async with wiring.visiting_bus(settings, "chaos books") as bus:
        for queue in working_queues(stage.names):
            for task_id in await _ids_in(bus, queue):
                found.setdefault(task_id, []).append(queue)
    return found


async def _ids_in(bus: RabbitBus, queue: str) -> list[str]:
    depth = await bus.depth(queue)
    if depth is None or queue == ANSWERS:
        return []
    deliveries, _ = await bus.get(queue, depth[0]) if depth[0] else ([], 0)
    return [dead_letter_from(delivery).task_id for delivery in deliveries]
