"""What moves from the router's window to a lane, so that nothing holds up anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.window import Held, to_spill

HOLD_S = 30.0
NOW = 1000.0


def held(*capabilities: str, since: float = NOW) -> list[Held]:
    return [Held(f"{number}", capability, since) for number, capability in enumerate(capabilities)]


def spilled(tasks: list[Held], free: dict[str, int], *, window: int = 20, now: float = NOW) -> list[str]:
    return to_spill(tasks, free, window=window, hold_s=HOLD_S, now=now)


def test_a_fleet_that_keeps_up_never_pays_the_extra_hop() -> None:
    assert spilled(held(*"a" * 9), {"a": 0, "b": 5}) == []


def test_a_half_full_window_makes_room_for_others() -> None:
    """Twenty places: two of each capability stay, the oldest go."""
    assert spilled(held(*"a" * 10), {"a": 0, "b": 5}) == [str(number) for number in range(8)]


def test_what_was_delivered_before_goes_to_the_lane_where_nothing_counts() -> None:
    tasks = [Held("0", "a", NOW), Held("1", "a", NOW, again=True), Held("2", "b", NOW)]

    assert spilled(tasks, {"a": 0, "b": 0}) == ["1"]


def test_where_nobody_else_could_work_there_is_nothing_to_hold_up() -> None:
    assert spilled(held(*"a" * 20), {"a": 0, "b": 0}) == []
    assert spilled(held(*"a" * 20), {}) == []


def test_each_capability_keeps_a_tenth_of_the_window() -> None:
    tasks = held(*"aabbbbaaaabb")

    assert spilled(tasks, {"a": 0, "b": 0, "c": 1}) == ["0", "1", "2", "3", "4", "5", "6", "7"]


def test_what_none_of_the_free_agents_may_have_makes_room_too() -> None:
    """All that could be bound is bound: the free slots of their own capability are of no use to these."""
    assert spilled(held(*"a" * 10), {"a": 5}) == [str(number) for number in range(8)]


def test_a_capability_without_an_entry_has_no_slots() -> None:
    assert len(spilled(held(*"x" * 10), {"a": 1})) == 8


@pytest.mark.parametrize(("age", "moves"), [(29.9, []), (30.0, ["0"]), (59.0, ["0"])])
def test_nothing_is_held_for_long(age: float, moves: list[str]) -> None:
    assert spilled(held("a", since=NOW - age), {"a": 0}) == moves


def test_what_was_held_for_long_leaves_first_and_makes_room() -> None:
    """Eleven of twenty: but two leave anyhow, and nine are not half of the window."""
    tasks = [*held("a", "a", since=NOW - 31), *(Held(f"n{number}", "a", NOW) for number in range(9))]

    assert spilled(tasks, {"b": 1}) == ["0", "1"]


def test_what_leaves_anyhow_is_not_told_twice() -> None:
    tasks = [*held("a", since=NOW - HOLD_S), *(Held(f"n{number}", "a", NOW) for number in range(10))]

    assert spilled(tasks, {"b": 1}) == ["0", *(f"n{number}" for number in range(8))]


def test_the_smallest_window_keeps_one() -> None:
    assert spilled(held("a"), {"b": 1}, window=1) == []
    assert spilled(held("a", "a", "b"), {"b": 1}, window=1) == ["0"]


TASKS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 60)), max_size=60).map(
    lambda found: [
        Held(f"{number}", capability, NOW - age)
        for number, (capability, age) in enumerate(sorted(found, key=lambda one: -one[1]))
    ]
)
FREE = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))


@given(TASKS, FREE, st.integers(1, 60))
def test_whatever_waits(tasks: list[Held], free: dict[str, int], window: int) -> None:
    moved = spilled(tasks, free, window=window)
    order = [task.task_id for task in tasks]
    left = [task for task in tasks if task.task_id not in moved]

    assert moved == sorted(moved, key=order.index)
    assert len(moved) == len(set(moved))
    assert all(NOW - task.since < HOLD_S for task in left)
    if any(free.values()):
        keep = max(1, window // 10)
        others = [sum(1 for task in left if task.capability == capability) for capability in "abc"]
        assert len(left) < max(1, window // 2) or all(count <= keep for count in others)
