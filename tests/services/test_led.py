"""A group as far as it has come: what is kept of its legs' ends."""

from typing import Any

import orjson
import pytest

from reach_worker.core.answer import of_group, succeeded
from reach_worker.core.envelope import Envelope
from reach_worker.core.group import Gathered, Leg, LegEnd, Round, aggregate, leg_end, room
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.task import Refusal, Task, task_from
from reach_worker.services.router.led import Group

A, B, C = Leg("t~0.1.a", "a"), Leg("t~0.1.b", "b"), Leg("t~0.1.c", "c")
ENVELOPE = Envelope("t", "f", "text.echo", "ann", 5)


def fanout(way: str) -> Task:
    first_n = {"first_n": 9} if way == "first_n" else {}
    task = task_from({"capability": "c", "mode": "fanout", "aggregate": way, **first_n})
    assert not isinstance(task, Refusal)
    return task


def ended(leg: Leg, result: Any) -> LegEnd:
    end = leg_end(succeeded(ENVELOPE, leg.agent_id, 1, orjson.dumps(result)), leg)
    assert end is not None
    return end


@pytest.mark.parametrize("way", ["all", "vote", "first_n"])
def test_an_answer_is_never_larger_than_twice_a_task(way: str) -> None:
    task = fanout(way)
    results = {leg: "x" * size for leg, size in ((A, 3_000), (B, 40_000), (C, 22_000))}
    group = Group(ENVELOPE, task, b"", Round(1, "r1", 9, tuple(results)), room(task, 64_000), 1)
    for leg, result in results.items():
        group.take(leg, ended(leg, result))
    found = aggregate(task, Gathered(tuple(group.ends.values()), ()))
    assert found is not None
    assert 2 * 64_000 > len(of_group(ENVELOPE, found)) > 2 * 22_000
    told = {one["agent"]: one["why"] for one in found["missing"]}
    assert told
    assert all("too many beside the others: `reach fetch t~0.1." in why for why in told.values())
    assert {one["agent"] for one in found["answers"]} | set(told) == {"a", "b", "c"}


def test_the_first_end_of_a_leg_counts_and_takes_room_once() -> None:
    group = Group(ENVELOPE, fanout("all"), b"", Round(1, "r1", 9, (A, B)), 150, 1)
    group.take(A, ended(A, 1))
    left = group.room
    group.take(A, ended(A, 2))
    group.take(B, LegEnd("b", OutcomeClass.FAILED, "broken"))
    assert group.ends[A.task_id].result == 1
    assert (group.room, left < 150) == (left, True)
