"""Asking where a task is: what is answered, and whose answer is best."""

import orjson
import pytest

from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.lookup import Found, best, found_body, found_from


def task(state: TaskState, answer: bytes | None = None) -> KnownTask:
    return KnownTask("t1", 0, state, "r1", None, 0, 0, answer)


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (None, Found("t1")),
        (task(TaskState.UNDER_WAY), Found("t1", known=True, state="under_way")),
        (task(TaskState.UNMATCHED), Found("t1", known=True, state="unmatched")),
        (
            task(TaskState.SUCCEEDED, b'{"result": 1}'),
            Found("t1", known=True, state="succeeded", answer={"result": 1}),
        ),
        (task(TaskState.DEAD_LETTER), Found("t1", known=True, state="dead_letter")),
        (task(TaskState.UNDER_WAY, b'{"of": "a life before"}'), Found("t1", known=True, state="under_way")),
    ],
)
def test_what_a_router_knows_is_read_as_it_was_written(known: KnownTask | None, found: Found) -> None:
    assert found_from(orjson.loads(found_body("t1", known))) == found


def test_what_says_nothing_reads_as_not_known() -> None:
    assert found_from({"task_id": 1, "known": "yes", "state": None, "answer": []}) == Found("")


def test_the_best_answer_is_the_one_that_knows_most() -> None:
    nothing, under_way = Found("t1"), Found("t1", known=True, state="under_way")
    over = Found("t1", known=True, state="succeeded")
    told = Found("t1", known=True, state="succeeded", answer={})
    assert best([]) is None
    assert best([nothing, under_way]) is under_way
    assert best([over, under_way, nothing]) is over
    assert best([over, told, under_way]) is told
