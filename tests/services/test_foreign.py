"""Workers that only consume a queue and reply: they are there while somebody consumes, their replies are outcomes, and
whatever dies, their tasks have one end."""

from typing import Any

import orjson
import pytest

from reach_worker.core.dispatch import MESSAGE, OUTCOME, RETRY_AFTER_MS
from reach_worker.core.duplicates import TaskState
from reach_worker.core.foreign import BY_CONSUMERS, WAIT_AT_MOST_S
from reach_worker.core.long_run import LEASE_S
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.presence import PresenceState
from reach_worker.core.recovery import TimeoutPolicy
from reach_worker.testing import Fate
from tests.services.foreign_worker import ForeignWorker, declared
from tests.services.stage import OnStage, Stage, rules

TIMEOUTS = TimeoutPolicy()
LONGEST_S = TIMEOUTS.pickup_s + TIMEOUTS.attempt_ms / 1000 + 2 * TIMEOUTS.backstop_s


def state(router: OnStage, agent_id: str = "old") -> PresenceState:
    return router.desk.fleet.agents[agent_id].roster.state()


async def there(stage: Stage, *, workers: int = 1, prefetch: int = 1, **fields: Any) -> list[ForeignWorker]:
    """A router that knows the manifest, and workers that consume."""
    await stage.router(manifests=[declared(**fields)])
    made = [ForeignWorker(stage.broker, prefetch=prefetch) for _ in range(workers)]
    for worker in made:
        worker.start()
    await stage.pass_time(4)
    return made


async def given(stage: Stage, **task: Any) -> tuple[ForeignWorker, Delivery]:
    """The one worker has the task ``t1``."""
    (worker,) = await there(
        stage, **{name: task.pop(name) for name in list(task) if name.startswith("capability_")}
    )
    stage.publish("t1", **task)
    await stage.settle()
    (came,) = worker.take()
    return worker, came


async def again(stage: Stage) -> OnStage:
    """The router is killed, and started anew."""
    stage.kill(stage.r1)
    return await stage.router(manifests=[declared()])


def kinds(stage: Stage) -> list[OutcomeClass]:
    return [row.outcome for row in stage.outcomes("t1")]


# -- is it there?


async def test_it_is_there_while_somebody_consumes() -> None:
    stage = Stage()
    router = await stage.router(manifests=[declared(max_concurrency=3)])
    assert state(router) is PresenceState.PENDING
    worker = ForeignWorker(stage.broker)
    worker.start()
    await stage.pass_time(4)
    agent = router.desk.fleet.agents["old"]
    assert (state(router), agent.roster.slots()) == (PresenceState.ACTIVE, 3)
    worker.die()
    await stage.pass_time(5)
    assert state(router) is PresenceState.ACTIVE
    await stage.pass_time(5)
    assert state(router) is PresenceState.SUSPECT
    await stage.pass_time(25)
    assert state(router) is PresenceState.SUSPECT
    await stage.pass_time(7)
    assert state(router) is PresenceState.DEAD
    worker.start()
    await stage.pass_time(4)
    assert state(router) is PresenceState.ACTIVE


async def test_two_routers_share_its_slots() -> None:
    stage = Stage()
    for router_id in ("r1", "r2"):
        await stage.router(router_id, [declared(max_concurrency=4)])
    ForeignWorker(stage.broker, prefetch=10).start()
    await stage.pass_time(8)
    agents = [router.desk.fleet.agents["old"] for router in stage.routers]
    limits = [router.desk.fleet.limit(agent) for router, agent in zip(stage.routers, agents, strict=True)]
    assert limits == [2, 2]


async def test_a_queue_that_is_gone_is_declared() -> None:
    stage = Stage()
    await stage.router(manifests=[declared()])
    stage.broker.delete_queue(stage.names.agent("old"))
    await stage.pass_time(4)
    assert stage.names.agent("old") in stage.broker.queues


async def test_a_hundred_of_them_are_all_looked_at() -> None:
    stage = Stage()
    router = await stage.router(manifests=[declared(f"old-{number}") for number in range(100)])
    for number in range(100):
        ForeignWorker(stage.broker, f"old-{number}").start()
    await stage.pass_time(20)
    assert {state(router, f"old-{number}") for number in range(100)} == {PresenceState.ACTIVE}


async def test_one_that_speaks_for_itself_all_the_same_counts_once() -> None:
    stage = Stage()
    router = await stage.router()
    await stage.agent("old", slots=2, presence="consumers")
    await stage.pass_time(8)
    roster = router.desk.fleet.agents["old"].roster
    assert (list(roster.instances), roster.slots()) == (["1"], 2)
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_without_a_consumer_the_task_waits_and_says_why() -> None:
    stage = Stage()
    router = await stage.router(manifests=[declared()])
    stage.publish("t1")
    await stage.settle()
    reasons = [waiting.reason for waiting in router.desk.hands.waiting.values()]
    assert ["nobody consumes its queue" in reason for reason in reasons] == [True]


# -- what it gets, and what its reply means


async def test_it_gets_the_task_as_it_was_published_and_its_reply_is_the_result() -> None:
    stage = Stage()
    worker, task = await given(stage, payload={"text": "hi"})
    assert orjson.loads(task.body) == {"capability": "text.echo", "payload": {"text": "hi"}}
    (dispatch,) = stage.dispatches("t1")
    assert (task.correlation_id, task.reply_to) == (dispatch.dispatch_id, stage.names.outcomes("r1"))
    await worker.reply(task, b'{"said": "hi"}')
    await stage.settle()
    answer = stage.answer("t1")
    assert (answer["status"], answer["agent"], answer["result"]) == ("succeeded", "old", {"said": "hi"})
    (row,) = stage.outcomes("t1")
    assert row.instance_id == BY_CONSUMERS
    await stage.pass_time(LEASE_S + 3)
    assert stage.at_rest()


@pytest.mark.parametrize(
    ("body", "result"),
    [(b"plain text", "plain text"), (b"17", 17), (b"", ""), (b'{"error": "none"}', {"error": "none"})],
)
async def test_any_body_is_a_result(body: bytes, result: object) -> None:
    stage = Stage()
    worker, task = await given(stage)
    await worker.reply(task, body)
    await stage.settle()
    assert stage.answer("t1")["result"] == result


async def test_a_worker_that_sends_our_headers_back_may_do_so() -> None:
    stage = Stage()
    worker, task = await given(stage)
    await worker.reply(task, b'"fine"', task.headers)
    await stage.settle()
    assert stage.answer("t1")["result"] == "fine"


@pytest.mark.parametrize(
    ("headers", "kind", "message"),
    [
        ({OUTCOME: "failed", MESSAGE: "out of paper"}, OutcomeClass.FAILED, "out of paper"),
        ({OUTCOME: "failed"}, OutcomeClass.FAILED, "the reply"),
        ({OUTCOME: "unavailable"}, OutcomeClass.UNAVAILABLE, "the reply"),
        ({OUTCOME: "broken"}, OutcomeClass.FAILED, "'broken', which is no outcome class: the reply"),
        (
            {OUTCOME: "handoff"},
            OutcomeClass.FAILED,
            "a worker that only replies cannot hand a task on: the reply",
        ),
        ({OUTCOME: "rejected"}, OutcomeClass.REJECTED, "the reply"),
    ],
)
async def test_a_reply_that_says_so_is_a_failure_and_the_task_is_tried_again(
    headers: dict[str, Any], kind: OutcomeClass, message: str
) -> None:
    stage = Stage()
    worker, task = await given(stage, payload={"text": "hi"})
    await stage.agent("other", capability_cost=5)
    await worker.reply(task, b"the reply", headers)
    await stage.pass_time(5)
    first, last = stage.outcomes("t1")
    assert (first.outcome, first.agent_id, last.outcome, last.agent_id) == (
        kind, "old", OutcomeClass.SUCCEEDED, "other",
    )  # fmt: skip
    assert message in first.message
    assert stage.answer("t1")["attempt"] == 2


async def test_bad_request_is_a_dead_letter_with_the_task_as_it_was_received() -> None:
    stage = Stage()
    worker, task = await given(stage, payload={"text": "hi"})
    await worker.reply(task, b"no such text", {OUTCOME: "bad_request"})
    await stage.settle()
    letter = stage.letter()
    assert (letter.reason, orjson.loads(letter.body)["payload"]) == (
        DeadLetterReason.BAD_REQUEST,
        {"text": "hi"},
    )


async def test_rate_limited_rests_as_long_as_it_says() -> None:
    stage = Stage()
    worker, task = await given(stage)
    await worker.reply(task, b"", {OUTCOME: "rate_limited", RETRY_AFTER_MS: 20_000})
    await stage.pass_time(18)
    assert worker.take() == []
    await stage.pass_time(5)
    (task,) = worker.take()
    await worker.reply(task, b"1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_a_reply_that_comes_twice_counts_once() -> None:
    stage = Stage()
    worker, task = await given(stage)
    await worker.send(task, b"1")
    await worker.reply(task, b"2")
    await stage.pass_time(3)
    assert stage.answer("t1")["result"] == 1
    assert stage.outcomes("t1")[0].outcome is OutcomeClass.SUCCEEDED
    assert len(stage.ends("t1")) == 1
    await stage.pass_time(LEASE_S + 3)
    assert stage.at_rest()


async def test_a_reply_to_nothing_is_kept_for_a_person() -> None:
    stage = Stage()
    await stage.router(manifests=[declared()])
    worker = ForeignWorker(stage.broker)
    worker.start()
    await worker.bus.publish([Message(stage.names.outcomes("r1"), b"what?", correlation_id="nobody's")])
    await stage.pass_time(WAIT_AT_MOST_S + 5)
    letter = stage.letter()
    assert letter.is_outcome
    assert "nobody's" in letter.error
    assert stage.at_rest()


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.LOST, Fate.STORED, Fate.UNROUTABLE])
async def test_a_failure_counts_once_whatever_becomes_of_it_on_its_way(fate: Fate) -> None:
    stage = Stage()
    worker, task = await given(stage)
    await stage.agent("other", capability_cost=5)
    stage.r1.bus.fail_next(fate, to=stage.names.outcomes("r1"))
    await worker.reply(task, b"", {OUTCOME: "failed"})
    await stage.pass_time(10)
    assert [kind for kind in kinds(stage) if kind is OutcomeClass.SUCCEEDED] == [OutcomeClass.SUCCEEDED]
    assert (stage.answer("t1")["attempt"], stage.answer("t1")["agent"]) == (2, "other")
    await stage.pass_time(LEASE_S + 3)
    assert stage.at_rest()


async def test_a_success_that_comes_when_a_person_has_the_task_resolves_it() -> None:
    stage = Stage()
    worker, task = await given(stage, side_effects=True)
    await stage.pass_time(LONGEST_S + 5)
    assert stage.letter().reason is DeadLetterReason.OUTCOME_UNKNOWN
    await worker.reply(task, b"1")
    await stage.pass_time(3)
    assert [end.state for end in stage.ends("t1")] == [TaskState.DEAD_LETTER, TaskState.SUCCEEDED]
    await stage.pass_time(LEASE_S + 3)
    assert stage.unacknowledged() == 0


# -- whatever dies


async def test_no_reply_is_a_time_out() -> None:
    stage = Stage()
    worker, task = await given(stage)
    await stage.agent("other", capability_cost=5)
    await worker.forget(task)
    await stage.pass_time(LONGEST_S + 5)
    assert kinds(stage) == [OutcomeClass.TIMEOUT, OutcomeClass.SUCCEEDED]
    assert stage.answer("t1")["agent"] == "other"
    await stage.pass_time(LEASE_S + 3)
    assert stage.at_rest()


async def test_a_worker_that_is_killed_leaves_the_task_to_the_next_one() -> None:
    stage = Stage()
    worker, _ = await given(stage)
    worker.die()
    other = ForeignWorker(stage.broker)
    other.start()
    (task,) = other.take()
    assert task.redelivered
    await other.reply(task, b"1")
    await stage.settle()
    assert (stage.answer("t1")["attempt"], kinds(stage)) == (1, [OutcomeClass.SUCCEEDED])


async def test_where_no_other_worker_comes_it_goes_to_another_agent() -> None:
    stage = Stage()
    worker, _ = await given(stage)
    await stage.agent("other", capability_cost=5)
    worker.die()
    await stage.pass_time(45)
    assert kinds(stage) == [OutcomeClass.RELEASED, OutcomeClass.SUCCEEDED]
    assert stage.answer("t1")["agent"] == "other"


async def test_a_task_that_kills_every_worker_ends() -> None:
    stage = Stage(rules(timeouts=TimeoutPolicy(pickup_s=20)))
    (worker,) = await there(stage)
    stage.publish("t1")
    for _ in range(400):
        await stage.pass_time(3, step=1.5)
        if worker.take():
            worker.die()
            worker.start()
        if stage.ends("t1"):
            break
    assert stage.letter().reason in (DeadLetterReason.POISON, DeadLetterReason.ATTEMPTS_EXHAUSTED)


async def test_with_side_effects_what_may_have_run_is_for_a_person() -> None:
    stage = Stage()
    worker, _ = await given(stage, side_effects=True)
    await stage.agent("other", capability_cost=5)
    worker.die()
    await stage.pass_time(45)
    assert stage.letter().reason is DeadLetterReason.OUTCOME_UNKNOWN


async def test_with_side_effects_what_nobody_was_given_is_sent_elsewhere() -> None:
    stage = Stage()
    (worker,) = await there(stage, max_concurrency=2)
    for name in ("t1", "t2"):
        stage.publish(name, side_effects=True)
    await stage.settle()
    await stage.agent("other", slots=2, capability_cost=5)
    worker.take()
    worker.die()
    await stage.pass_time(45)
    ends = {row.task_id: row.state for row in (*stage.ends("t1"), *stage.ends("t2"))}
    assert sorted(ends.values()) == [TaskState.DEAD_LETTER, TaskState.SUCCEEDED]


# -- and the router with it


@pytest.mark.parametrize("replies", ["before it is back", "after it is back", "after the lease came by"])
async def test_a_reply_counts_though_the_router_began_anew(replies: str) -> None:
    stage = Stage()
    worker, task = await given(stage)
    if replies == "before it is back":
        stage.kill(stage.r1)
        await worker.reply(task, b'"done"')
        await stage.router(manifests=[declared()])
    else:
        await again(stage)
        await stage.pass_time(2 * LEASE_S if replies == "after the lease came by" else 0)
        await worker.reply(task, b'"done"')
    await stage.pass_time(2 * LEASE_S)
    answer = stage.answer("t1")
    assert (answer["status"], answer["result"], answer["attempt"]) == ("succeeded", "done", 1)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert worker.got == 1
    await stage.pass_time(LEASE_S + 3)
    assert stage.at_rest()
    assert stage.letters() == []


async def test_a_failure_counts_though_the_router_began_anew_and_the_task_is_tried_again() -> None:
    stage = Stage()
    worker, task = await given(stage, payload={"text": "hi"})
    stage.kill(stage.r1)
    await worker.reply(task, b"out of paper", {OUTCOME: "failed"})
    await stage.router(manifests=[declared()])
    await stage.pass_time(2 * LEASE_S)
    (task,) = worker.take()
    assert orjson.loads(task.body)["payload"] == {"text": "hi"}
    await worker.reply(task, b"1")
    await stage.settle()
    assert kinds(stage) == [OutcomeClass.FAILED, OutcomeClass.SUCCEEDED]


async def test_a_reply_that_waits_for_the_lease_counts_though_the_time_is_up_by_then() -> None:
    stage = Stage(rules(timeouts=TimeoutPolicy(pickup_s=1, attempt_ms=500, backstop_s=0.5)))
    worker, task = await given(stage)
    stage.kill(stage.r1)
    await worker.reply(task, b"1")
    await stage.router(manifests=[declared()])
    await stage.pass_time(2 * LEASE_S)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert worker.take() == []


async def test_no_reply_and_a_router_that_began_anew_is_a_time_out() -> None:
    stage = Stage()
    worker, task = await given(stage)
    await worker.forget(task)
    await again(stage)
    await stage.pass_time(LONGEST_S + 2 * LEASE_S)
    (task,) = worker.take()
    await worker.reply(task, b"1")
    await stage.settle()
    assert kinds(stage) == [OutcomeClass.TIMEOUT, OutcomeClass.SUCCEEDED]


async def test_another_router_settles_it_where_the_owner_does_not_come_back() -> None:
    stage = Stage()
    for router_id in ("r1", "r2"):
        await stage.router(router_id, [declared(max_concurrency=4)])
    worker = ForeignWorker(stage.broker, prefetch=10)
    worker.start()
    await stage.pass_time(8)
    for number in range(6):
        stage.publish(f"t{number}")
    await stage.settle()
    tasks = worker.take()
    stage.kill(stage.r1)
    for task in tasks[:2]:
        await worker.reply(task, b"1")
    for task in tasks[2:]:
        await worker.forget(task)
    for _ in range(60):
        await stage.pass_time(3)
        for task in worker.take():
            await worker.reply(task, b"1")
    assert [stage.end(f"t{number}").state for number in range(6)] == [TaskState.SUCCEEDED] * 6


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNROUTABLE, Fate.LOST, Fate.STORED])
@pytest.mark.parametrize("queue", ["retry.15000", "agent.old"])
@pytest.mark.parametrize("side_effects", [False, True])
async def test_whatever_becomes_of_dispatch_or_lease_the_task_ends_once(
    fate: Fate, queue: str, *, side_effects: bool
) -> None:
    stage = Stage()
    (worker,) = await there(stage)
    stage.r1.bus.fail_next(fate, to=queue)
    stage.publish("t1", side_effects=side_effects)
    for _ in range(30):
        await stage.pass_time(3)
        for task in worker.take():
            await worker.reply(task, b"1")
    twice = queue == "agent.old" and fate is Fate.STORED and not side_effects
    assert worker.got == (0 if queue == "agent.old" and fate is Fate.LOST and side_effects else 1 + twice)
    assert stage.ends("t1")[-1].state is (TaskState.SUCCEEDED if worker.got else TaskState.DEAD_LETTER)
    assert stage.answers()
    assert set(stage.ready()) <= {"caller", "dlq"}
    assert stage.unacknowledged() == 0
