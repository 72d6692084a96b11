"""Whatever dies, in whatever order, a task that was given to a worker without any of our code has an end."""

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reach_worker.core.dispatch import OUTCOME
from reach_worker.core.duplicates import TaskState
from reach_worker.core.recovery import TimeoutPolicy
from reach_worker.testing import Fate
from tests.services.foreign_worker import ForeignWorker, declared
from tests.services.stage import Stage, rules

TASKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "another": {},
    "harmful": {"side_effects": True},
}
EVENTS = st.one_of(
    st.tuples(st.just("reply"), st.sampled_from([None, "failed", "rate_limited", "released", "bad_request"])),
    st.tuples(st.sampled_from(["forget", "twice", "die", "kill", "session", "turn"])),
    st.tuples(st.just("time"), st.sampled_from([1.0, 9.0, 16.0, 45.0])),
    st.tuples(
        st.just("fate"),
        st.sampled_from([Fate.REFUSED, Fate.LOST, Fate.STORED]),
        st.sampled_from(["retry", "agent", "outcomes"]),
    ),
)


async def happen(stage: Stage, worker: ForeignWorker, event: tuple[Any, ...]) -> None:
    worker.take()
    match event:
        case ("reply", word) if worker.held:
            await worker.reply(worker.held[0], b"1", {OUTCOME: word} if word else None)
        case ("twice",) if worker.held:
            await worker.send(worker.held[0], b"1")
        case ("forget",) if worker.held:
            await worker.forget(worker.held[0])
        case ("die",):
            worker.die()
            worker.start()
        case ("kill",):
            router = stage.routers[0]
            stage.kill(router)
            await stage.router(router.desk.router_id, [declared(max_concurrency=2)], settled=False)
        case ("session",):
            stage.routers[0].bus.end_session()
        case ("fate", fate, queue):
            stage.routers[0].bus.fail_next(fate, to=queue)
        case ("time", seconds):
            await stage.pass_time(seconds, step=1.5)
        case _:
            await stage.settle(rounds=2)


async def play(routers: int, events: list[tuple[Any, ...]]) -> Stage:
    """What happens, and then a worker that does all it gets, until everything comes to rest."""
    stage = Stage(rules(timeouts=TimeoutPolicy(pickup_s=10, attempt_ms=3_000, backstop_s=3)))
    for number in range(routers):
        await stage.router(f"r{number + 1}", [declared(max_concurrency=2)])
    worker = ForeignWorker(stage.broker, prefetch=2)
    worker.start()
    await stage.pass_time(8)
    for task_id, task in TASKS.items():
        stage.publish(task_id, **task)
    await stage.settle(rounds=2)
    for event in events:
        await happen(stage, worker, event)
    for _ in range(200):
        await stage.pass_time(3, step=1.5)
        worker.take()
        for held in list(worker.held):
            await worker.reply(held, b"1")
        if all(stage.ends(task_id) for task_id in TASKS) and stage.at_rest():
            break
    return stage


@pytest.mark.parametrize("routers", [1, 2])
@settings(
    max_examples=30,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),  # the same ones in CI every time; new ones everywhere else
)
@given(st.lists(EVENTS, max_size=12))
async def test_every_task_has_its_end_and_its_answer(routers: int, events: list[tuple[Any, ...]]) -> None:
    stage = await play(routers, events)
    for task_id in TASKS:
        ends = {end.state for end in stage.ends(task_id)}
        assert ends <= {TaskState.SUCCEEDED, TaskState.DEAD_LETTER}, task_id
        assert ends, task_id
        assert [answer for answer in stage.answers() if answer["task_id"] == task_id], task_id
    assert stage.unacknowledged() == 0
    assert set(stage.ready()) <= {"caller", "dlq"}
