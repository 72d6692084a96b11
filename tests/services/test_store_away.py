"""The store enriches a turn, it is no condition for it: locked, slow or full, it never stops an ordinary task."""

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import OutcomeSeen
from reach_worker.testing import Fate
from tests.services.scripted import Reply
from tests.services.stage import Stage


async def test_ordinary_tasks_go_on_and_what_happened_is_known_later() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", slots=2)
    stage.store.away = True
    for number in range(10):
        stage.publish(f"t{number}")
    await stage.pass_time(2)
    assert [stage.answer(f"t{number}")["status"] for number in range(10)] == ["succeeded"] * 10
    stage.store.away = False
    known = await stage.store.known_tasks([f"t{number}" for number in range(10)])
    assert {task.state for task in known.values()} == {TaskState.SUCCEEDED}
    assert agent.ran.total() == 10


async def test_retries_and_dead_letters_too() -> None:
    stage = Stage()
    await stage.router()
    replies = [Reply(OutcomeClass.FAILED)]
    await stage.agent("a", script=lambda _: replies.pop() if replies else Reply())
    stage.store.away = True
    stage.publish("t1")
    stage.publish("t2", "text.ecko")
    stage.broker.send_task(b"junk", message_id="t3")
    await stage.pass_time(5)
    assert stage.answer("t1")["attempt"] == 2
    assert stage.answer("t2")["status"] == "unmatched"
    assert stage.letter().task_id == "t3"


async def test_duplicates_are_told_from_memory() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.store.away = True
    stage.publish("t1", correlation_id="first")
    await stage.settle()
    stage.publish("t1", correlation_id="second")
    await stage.settle()
    await agent.end(agent.held[0])
    await stage.settle()
    stage.publish("t1", correlation_id="third")
    await stage.settle()
    assert {d.correlation_id for d in stage.broker.messages("caller")} == {"first", "second", "third"}
    assert agent.ran["t1"] == 1


async def test_a_session_that_ends_meanwhile_costs_nothing() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", slots=3, script=lambda _: None)
    stage.store.away = True
    for number in range(6):
        stage.publish(f"t{number}")
    await stage.settle()
    r1.bus.end_session()
    await stage.settle()
    agent.script = lambda _: Reply()
    for work in list(agent.held):
        await agent.end(work)
    await stage.pass_time(5)
    assert len(stage.answers()) == 6
    assert set(agent.ran.values()) == {1}
    stage.store.away = False
    assert len(stage.rows(OutcomeSeen)) == 6


async def test_a_router_that_starts_without_its_store_still_works() -> None:
    stage = Stage()
    stage.store.away = True
    await stage.router()
    await stage.agent("a")
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_a_store_that_was_behind_does_not_swallow_the_only_copy() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    stage.store.away = True
    await agent.end(agent.held[0], Reply(OutcomeClass.FAILED))
    await stage.settle()
    rows = list(stage.store.rows)
    stage.store.rows = [row for row in rows if not isinstance(row, OutcomeSeen)]
    stage.store.away = False
    r1.desk.hands.settled.clear()
    agent.script = lambda _: Reply()
    await stage.pass_time(5)
    assert stage.answer("t1")["attempt"] == 2


async def test_what_was_sent_on_is_told_from_memory_too() -> None:
    stage = Stage()
    await stage.router()
    replies = [Reply(OutcomeClass.TIMEOUT)]
    agent = await stage.agent("a", script=lambda _: replies.pop() if replies else Reply())
    stage.store.away = True
    stage.publish("t1", correlation_id="first")
    stage.publish("lost", "text.ecko", correlation_id="first")
    await stage.settle()
    assert agent.ran["t1"] == 1
    for name in ("t1", "lost"):
        stage.publish(name, "text.echo" if name == "t1" else "text.ecko", correlation_id="second")
    await stage.settle()
    stage.store.away = False
    await stage.pass_time(5)
    assert agent.ran["t1"] == 2
    told = [d.correlation_id for d in stage.broker.messages("caller")]
    assert sorted(filter(None, told)) == ["first", "first", "second"]
    assert len(stage.broker.messages(stage.names.unmatched)) == 1


async def test_an_outcome_counts_though_its_task_waits_here_again_and_both_publishers_are_told() -> None:
    """It has side effects, its dispatch is on record and out, and the router that gets its outcome cannot know that."""
    stage = Stage()
    first, _ = await stage.two_routers()
    agent = await stage.agent("a", script=lambda _: None, capability_side_effects=True)
    stage.broker.declare_private("other")
    first.bus.fail_next(Fate.STORED, to="agent.a")
    stage.publish("t1")
    await stage.settle(rounds=2)
    stage.store.away = True
    stage.publish("t1", reply_to="other")
    await stage.settle(rounds=2)
    (work,) = agent.held
    await agent.end(work)
    await stage.settle(rounds=2)
    stage.store.away = False
    await stage.pass_time(30)
    assert agent.ran["t1"] == 1
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.answer("t1")["status"] == "succeeded"
    assert len(stage.broker.messages("other")) == 1
    assert set(stage.ready()) == {"caller", "other"}, "nothing is left on the way"
    assert stage.unacknowledged() == 0
