"""Which of the tasks that wait in a router's window move to their capability's lane on the broker."""

from collections import Counter
from collections.abc import Mapping, Sequence

from reach_worker.core.value import value


@value(frozen=True, slots=True)
class Held:
    """A task in the window; ``since`` in monotonic seconds.

    ``again``: its message was delivered before, and each delivery in vain counts against it.
    """

    task_id: str
    capability: str
    since: float
    again: bool = False


def to_spill(
    held: Sequence[Held], free: Mapping[str, int], *, window: int, hold_s: float, now: float
) -> list[str]:
    """Ids of the tasks to move, oldest first.

    ``held``: what is left, oldest first, when all that could be bound is. ``free``: free slots by capability.

    Three reasons: a task was held for ``hold_s`` (no delivery is held longer than a minute), its message was delivered
    before (in a lane nothing counts, so a router that dies again and again wears out nothing), or the window is half
    full and others could work: then what waits makes room, all but a tenth of the window of each capability. The oldest
    go: a lane is served before the window, so the order stays. A capability with free slots is no exception: what is
    left of it may go to none of those agents. A fleet that keeps up never pays the extra hop.
    """
    spilled = [task.task_id for task in held if task.again or now - task.since >= hold_s]
    left = [task for task in held if not task.again and now - task.since < hold_s]
    crowded = len(left) >= max(1, window // 2)
    others_could_work = any(count > 0 for count in free.values())
    if not (crowded and others_could_work):
        return spilled
    waiting = Counter(task.capability for task in left)
    keep = max(1, window // 10)
    for task in left:
        if waiting[task.capability] > keep:
            spilled.append(task.task_id)
            waiting[task.capability] -= 1
    return spilled
