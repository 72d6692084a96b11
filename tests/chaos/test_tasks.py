"""The plan of tasks."""

from collections import Counter
from itertools import pairwise

import orjson
import pytest

from reach_worker.chaos.kinds import (
    CAPABILITY,
    ENDS,
    FANOUTS,
    RACES,
    READ,
    SHARES,
    STREAMS,
    TAKEN_BACK,
    Kind,
)
from reach_worker.chaos.scale import FULL, SHORT, Scale, soak
from reach_worker.chaos.tasks import TAKEN_BACK_S, plan_tasks
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.task import Task, decode_task

SCALES = pytest.mark.parametrize("scale", [FULL, SHORT])


def test_a_seed_repeats_its_plan_and_another_has_another() -> None:
    assert plan_tasks(7, SHORT) == plan_tasks(7, SHORT)
    assert plan_tasks(7, SHORT) != plan_tasks(8, SHORT)


@SCALES
def test_every_kind_is_there_as_often_as_it_should(scale: Scale) -> None:
    counted = Counter(task.kind for task in plan_tasks(1, scale))
    assert sum(counted.values()) == scale.tasks
    assert counted[Kind.POISON] == scale.poison
    assert all(counted[kind] == max(1, scale.tasks * share // 1000) for kind, share in SHARES.items())
    assert counted[Kind.QUICK] > 0


def test_the_full_run_has_twenty_thousand_in_a_steady_stream() -> None:
    tasks = plan_tasks(1, FULL)
    assert len(tasks) == 20_000
    assert len({task.name for task in tasks}) == 20_000
    gaps = [later.at_s - earlier.at_s for earlier, later in pairwise(tasks)]
    assert max(gaps) - min(gaps) < 1e-6


def test_a_soak_goes_on_at_the_same_rate() -> None:
    assert soak(60).load_s == 3600
    assert soak(60).rate == pytest.approx(FULL.rate, rel=0.01)


def test_all_but_the_malformed_ones_are_tasks_with_their_own_id() -> None:
    for planned in plan_tasks(1, SHORT):
        task = decode_task(planned.sent, max_bytes=8 * 1024 * 1024)
        if planned.kind is Kind.MALFORMED:
            assert not isinstance(task, Task)
            assert planned.name.encode() in planned.body
        else:
            assert isinstance(task, Task)
            assert task.task_id == planned.name
            assert task.capability == CAPABILITY[planned.kind]


def test_some_are_published_twice_at_once_or_later_and_poison_never() -> None:
    twice = [task for task in plan_tasks(1, FULL) if task.again_s]
    assert any(task.again_s == (task.at_s,) for task in twice)
    assert any(task.again_s[0] > task.at_s for task in twice)
    assert not any(task.kind is Kind.POISON for task in twice)
    assert any(task.side_effects for task in twice)


def test_large_ones_are_large() -> None:
    large = [task for task in plan_tasks(1, FULL) if task.kind is Kind.LARGE]
    assert max(len(task.sent) for task in large) > 400_000
    assert max(len(task.body) for task in large) < 1_000  # until it is sent: an hour has a thousand of them
    assert all(orjson.loads(task.sent)["payload"]["text"].startswith("large large ") for task in large)


def test_some_are_taken_back_soon_after_they_came_and_may_end_so() -> None:
    taken_back = [task for task in plan_tasks(1, FULL) if task.taken_back_s is not None]
    assert {task.kind for task in taken_back} == set(TAKEN_BACK)
    low, high = TAKEN_BACK_S
    for task in taken_back:
        assert task.taken_back_s is not None
        assert low <= round(task.taken_back_s - task.at_s, 3) <= high
        assert "cancelled" in task.ends


def test_groups_and_streams_are_asked_for_and_read() -> None:
    for planned in plan_tasks(1, SHORT):
        if planned.kind in READ:
            task = decode_task(planned.sent, max_bytes=8 * 1024 * 1024)
            assert isinstance(task, Task)
            assert planned.answered
            assert task.stream is (planned.kind in STREAMS)
            expected = "race" if planned.kind in RACES else "fanout" if planned.kind in FANOUTS else "single"
            assert task.mode == expected


def test_every_kind_has_ends_that_exist() -> None:
    known = {"succeeded", "unmatched", "cancelled", *(reason.value for reason in DeadLetterReason)}
    assert ENDS.keys() == set(Kind)
    assert all(ends and ends <= known for ends in ENDS.values())
