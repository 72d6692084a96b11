"""Figures of a run: plain arithmetic."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from reach_worker.chaos.faults import Window


def longest_stall_s(confirmed: Mapping[str, int], ended: Mapping[str, int]) -> float:
    """The longest time without any end while a task was waiting. Times in UTC microseconds, by task."""
    moves = sorted(
        [(at, 1) for name, at in confirmed.items() if name in ended]
        + [(max(at, confirmed.get(name, at)), -1) for name, at in ended.items() if name in confirmed],
        key=lambda move: (move[0], -move[1]),
    )
    waiting, since, longest = 0, 0, 0
    for at, change in moves:
        if change > 0:
            if waiting == 0:
                since = at
        else:
            longest = max(longest, at - since)
            since = at
        waiting += change
    return longest / 1e6


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line that fits the points best (least squares), 0 where there is none."""
    count = len(points)
    if count < 2:  # noqa: PLR2004 - a line needs two
        return 0.0
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def by_kind(windows: Iterable[Window], counted: Callable[[Window], bool]) -> dict[str, int]:
    """How many there were of each kind."""
    found: dict[str, int] = {}
    for window in windows:
        if counted(window):
            found[window.kind] = found.get(window.kind, 0) + 1
    return dict(sorted(found.items()))
