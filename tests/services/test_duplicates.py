"""The same task id again: run once, and every publisher gets the one answer."""

from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.recovery import IdempotencyPolicy
from tests.services.scripted import Reply, always, succeed
from tests.services.stage import Stage, rules


async def test_a_second_publisher_while_it_waits() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("busy")
    stage.publish("t1", correlation_id="first")
    await stage.settle()
    stage.publish("t1", correlation_id="second")
    await stage.settle()
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.settle()
    told = [d.correlation_id for d in stage.broker.messages("caller")]
    assert sorted(filter(None, told)) == ["busy", "first", "second"]
    assert agent.ran["t1"] == 1
    assert len(stage.ends("t1")) == 1


async def test_a_second_publisher_while_it_is_in_flight() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1", correlation_id="first")
    await stage.settle()
    stage.publish("t1", correlation_id="second")
    stage.publish("t1", correlation_id="third")
    await stage.settle()
    await agent.end(agent.held[0])
    await stage.settle()
    bodies = {d.correlation_id: d.body for d in stage.broker.messages("caller")}
    assert set(bodies) == {"first", "second", "third"}
    assert len(set(bodies.values())) == 1
    assert agent.ran["t1"] == 1


async def test_two_at_once_in_one_turn() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    stage.publish("t1", correlation_id="first")
    stage.publish("t1", correlation_id="second")
    await stage.settle()
    assert agent.ran["t1"] == 1
    assert len(stage.answers()) == 2
    assert len(stage.ends("t1")) == 1


async def test_a_second_publisher_in_the_very_turn_in_which_it_ends() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1", correlation_id="first")
    await stage.settle()
    await agent.end(agent.held[0])
    stage.publish("t1", correlation_id="second")
    await stage.settle()
    assert {d.correlation_id for d in stage.broker.messages("caller")} == {"first", "second"}


async def test_within_the_window_after_the_end_the_stored_answer_comes() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    stage.publish("t1", correlation_id="first")
    await stage.settle()
    await stage.pass_time(55)
    stage.publish("t1", correlation_id="second")
    await stage.settle()
    first, second = stage.broker.messages("caller")
    assert (second.correlation_id, second.body) == ("second", first.body)
    assert agent.ran["t1"] == 1
    assert len(stage.ends("t1")) == 1


async def test_after_the_window_it_runs_again() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    stage.publish("t1")
    await stage.pass_time(62)
    stage.publish("t1")
    await stage.settle()
    assert agent.ran["t1"] == 2
    assert [end.life for end in stage.ends("t1")] == [0, 1]


async def test_a_long_task_is_remembered_longer() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None, capability_timeout_ms=600_000)
    stage.publish("t1")
    await stage.pass_time(70)
    await agent.end(agent.held[0])
    await stage.pass_time(200)
    stage.publish("t1")
    await stage.settle()
    assert agent.ran["t1"] == 1
    assert len(stage.answers()) == 2


async def test_a_dead_letter_is_remembered_too() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.BAD_REQUEST, "no"))
    stage.publish("t1")
    await stage.settle()
    stage.publish("t1")
    await stage.settle()
    assert agent.ran["t1"] == 1
    assert [answer["reason"] for answer in stage.answers()] == ["bad_request"] * 2
    assert len(stage.letters()) == 1


async def test_two_that_end_at_once_in_one_turn_end_once() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    for name in ("first", "second"):
        stage.publish("t1", "no.such", correlation_id=name)
        stage.publish("t2", correlation_id=name, requires=[], domain="nowhere", payload={})
        stage.publish("t3", correlation_id=name, deadline_ms=1)
    stage.clock.advance(2)
    await stage.pass_time(3)
    assert len(stage.broker.messages(stage.names.unmatched)) == 2
    assert len(stage.letters()) <= 1
    assert len(stage.ends("t3")) == 1
    told = [
        (d.correlation_id, answer["task_id"])
        for d, answer in zip(stage.broker.messages("caller"), stage.answers(), strict=True)
    ]
    assert ("first", "t3") in told
    assert ("second", "t3") in told


async def test_somebody_who_wants_no_answer_is_only_counted() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    stage.publish("t1", reply_to=None)
    stage.publish("t1", reply_to=None)
    await stage.settle()
    assert agent.ran["t1"] == 1
    assert not stage.answers()
    assert stage.r1.desk.counts.duplicates == 1


async def test_the_same_publisher_that_published_twice_is_answered_once() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    stage.publish("t1")
    stage.publish("t1")
    await stage.settle()
    assert len(stage.answers()) == 1


async def test_a_duplicate_on_its_retry_waits_for_the_end() -> None:
    stage = Stage()
    await stage.router()
    replies = [Reply(OutcomeClass.FAILED)]
    agent = await stage.agent("a", script=lambda _: replies.pop() if replies else Reply())
    stage.publish("t1", correlation_id="first")
    await stage.settle()
    stage.publish("t1", correlation_id="second")
    await stage.settle()
    assert agent.ran["t1"] == 1
    await stage.pass_time(5)
    assert agent.ran["t1"] == 2
    assert {d.correlation_id for d in stage.broker.messages("caller")} == {"first", "second"}


async def test_no_window_no_memory() -> None:
    stage = Stage(policies=rules(idempotency=IdempotencyPolicy(window_s=0)))
    await stage.router()
    agent = await stage.agent("a")
    for _ in range(3):
        stage.publish("t1")
        await stage.settle()
    assert agent.ran["t1"] == 3


async def test_a_stranger_with_the_id_of_another_task_gets_its_own() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    stage.broker.send_task(b"not a task", message_id="t1")
    await stage.settle()
    assert stage.letter().task_id != "t1"
    await agent.end(agent.held[0])
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"
