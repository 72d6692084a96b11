"""Which of the tasks that wait in a router's window move to their capability's lane on the broker."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """A task in the window; ``since`` in monotonic seconds."""

    task_id: str
    capability: str
    since: float


def to_spill(
    held: Sequence[Held], free: Mapping[str, int], *, window: int, hold_s: float, now: float
) -> list[str]:
    """Ids of the tasks to move, oldest first.

    Two reasons: a task was held for ``hold_s`` (no delivery is held longer than a minute), or the window is half full and
    others could work: then what waits for a capability without a free slot makes room, all but a tenth of the window.
    A fleet that keeps up never pays the extra hop.
    """
    spilled = [task.task_id for task in held if now - task.since >= hold_s]
    crowded = len(held) - len(spilled) >= max(1, window // 2)
    others_could_work = any(count > 0 for count in free.values())
    if not (crowded and others_could_work):
        return spilled
    gone = set(spilled)
    waiting = Counter(task.capability for task in held if task.task_id not in gone)
    keep = max(1, window // 10)
    for task in held:
        if task.task_id in gone or free.get(task.capability, 0) > 0 or waiting[task.capability] <= keep:
            continue
        spilled.append(task.task_id)
        waiting[task.capability] -= 1
    return spilled
