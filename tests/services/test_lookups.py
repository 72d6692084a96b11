"""A router that is asked for a task by its id says where it is, and how it ended: to whom it may."""

from typing import Any

import orjson

from reach_worker.core.cancel import cancel_body
from reach_worker.core.lookup import FETCH, Found, found_from
from reach_worker.core.message import Message
from reach_worker.core.outcome import OutcomeClass
from reach_worker.services.router.lookups import AT_ONCE
from reach_worker.testing import MemoryBus
from tests.services.scripted import always, hold, succeed
from tests.services.stage import Stage

ASKER = "answers.1"


async def ask(stage: Stage, *task_ids: str, user_id: str | None = None, **given: Any) -> list[Found]:
    """Ask for tasks, as a client does; what the routers answer in their next turn."""
    stage.broker.declare_private(ASKER)
    before = len(stage.broker.messages(ASKER))
    bus = MemoryBus(stage.broker)
    bus.connect()
    fields = {"reply_to": ASKER, "correlation_id": "q1", **given}
    await bus.publish(
        [
            Message(FETCH, cancel_body(each), {}, stage.names.events, user_id=user_id, **fields)
            for each in task_ids
        ]
    )
    bus.disconnect()
    await stage.settle(rounds=1)
    told = stage.broker.messages(ASKER)[before:]
    assert {each.correlation_id for each in told} <= {"q1"}
    return [found_from(orjson.loads(each.body)) for each in told]


async def test_a_task_that_is_over_is_told_with_its_answer() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=succeed)
    stage.publish("t1")
    await stage.settle()
    (found,) = await ask(stage, "t1")
    assert found == Found("t1", known=True, state="succeeded", answer=stage.answer("t1"))


async def test_so_is_one_that_failed() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.BAD_REQUEST, "no"))
    stage.publish("t1")
    await stage.settle()
    (found,) = await ask(stage, "t1")
    assert (found.state, found.answer) == ("dead_letter", stage.answer("t1"))


async def test_one_that_is_out_or_waits_is_under_way_and_one_that_nobody_published_is_not_known() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=hold)
    stage.publish("t1")
    stage.publish("t2")
    await stage.settle()
    found = await ask(stage, "t1", "t2", "t3")
    assert [(each.known, each.state) for each in found] == [
        (True, "under_way"),
        (True, "under_way"),
        (False, ""),
    ]


async def test_one_that_no_agent_may_take_is_unmatched() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    stage.publish("t1", "text.other")
    await stage.settle()
    (found,) = await ask(stage, "t1")
    assert (found.state, found.answer) == ("unmatched", None)


async def test_another_process_of_the_router_answers_from_the_store() -> None:
    stage = Stage()
    first = await stage.router()
    await stage.agent("a", script=succeed)
    stage.publish("t1", user_id="ann")
    await stage.settle()
    stage.kill(first)
    await stage.router()
    (found,) = await ask(stage, "t1", user_id="ann")
    assert found.answer == stage.answer("t1")
    (found,) = await ask(stage, "t1", user_id="bob")
    assert found == Found("t1")


async def test_a_task_is_told_to_its_caller_only() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=lambda work: None if work.task_id == "held" else succeed(work))
    stage.publish("done", user_id="ann")
    stage.publish("held", user_id="ann")
    await stage.settle()
    assert [each.state for each in await ask(stage, "done", "held", user_id="ann")] == [
        "succeeded",
        "under_way",
    ]
    for stranger in ("bob", None):
        assert await ask(stage, "done", "held", user_id=stranger) == [Found("done"), Found("held")]


async def test_while_the_store_is_away_a_router_answers_from_memory() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=lambda work: None if work.task_id == "held" else succeed(work))
    stage.publish("done")
    stage.publish("held")
    await stage.settle()
    stage.store.away = True
    assert [each.state for each in await ask(stage, "done", "held")] == ["succeeded", "under_way"]


async def test_nothing_is_written_into_a_queue_of_ours_nor_told_to_nobody() -> None:
    stage = Stage()
    await stage.router()
    assert await ask(stage, "t1", reply_to=stage.names.dlq) == []
    assert await ask(stage, "t1", reply_to=None) == []
    assert stage.broker.messages(stage.names.dlq) == []


async def test_a_crowd_is_answered_turn_by_turn() -> None:
    stage = Stage()
    await stage.router()
    ids = [f"t{number}" for number in range(AT_ONCE + 5)]
    assert len(await ask(stage, *ids)) == AT_ONCE
    await stage.settle(rounds=1)
    assert len(stage.broker.messages(ASKER)) == len(ids)
