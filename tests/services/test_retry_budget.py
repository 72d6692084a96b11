"""Retries beyond the budget wait; they spend no attempt, and new work goes on."""

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.ports import Decided, Dispatched
from tests.services.scripted import Reply, Work, always, succeed
from tests.services.stage import Stage, rules

NO_BREAKER = BreakerPolicy(streak=1_000, rate_floor=None)


def retries(stage: Stage) -> list[Dispatched]:
    return [row for row in stage.rows(Dispatched) if row.attempt > 1]


def reasons(stage: Stage, task_id: str) -> list[str]:
    decided = [row.decision for row in stage.rows(Decided) if row.task_id == task_id]
    return [decision["reason"] for decision in decided if decision["verdict"] == "wait"]


async def test_over_the_budget_a_retry_waits_and_says_so() -> None:
    stage = Stage(
        breaker=NO_BREAKER, policies=rules(retry=RetryPolicy(budget_floor_per_min=2, budget_share=0))
    )
    await stage.router()
    agent = await stage.agent("a", slots=20, script=always(OutcomeClass.FAILED, "no"))
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.pass_time(1.5, step=0.1)
    assert len(retries(stage)) == 2
    agent.script = succeed
    await stage.pass_time(200)
    assert {stage.answer(f"t{number}")["status"] for number in range(5)} == {"succeeded"}
    assert len(retries(stage)) == 7, "two of them failed once more"
    waited = [task_id for task_id in (f"t{number}" for number in range(5)) if reasons(stage, task_id)]
    assert len(waited) == 5
    assert (
        "over the retry budget (0% of recent first attempts, but always 2 a minute)"
        in reasons(stage, waited[0])[0]
    )
    assert stage.r1.desk.counts.over_budget >= 3


async def test_what_waits_for_the_budget_still_has_its_deadline() -> None:
    stage = Stage(
        breaker=NO_BREAKER, policies=rules(retry=RetryPolicy(budget_floor_per_min=0.1, budget_share=0))
    )
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t1", deadline_ms=5_000)
    await stage.pass_time(9)
    assert stage.end("t1").reason is DeadLetterReason.EXPIRED
    assert len(stage.dispatches("t1")) == 1


async def test_handing_back_and_rate_limits_ask_for_no_budget() -> None:
    stage = Stage(
        breaker=NO_BREAKER, policies=rules(retry=RetryPolicy(budget_floor_per_min=0.1, budget_share=0))
    )
    await stage.router()
    replies = iter(
        [Reply(OutcomeClass.RELEASED), Reply(OutcomeClass.RATE_LIMITED, retry_after_ms=1_000), Reply()]
    )
    await stage.agent("a", script=lambda _: next(replies))
    stage.publish("t1")
    await stage.pass_time(5)
    assert stage.answer("t1")["status"] == "succeeded"


async def test_a_rejection_asks_for_it_too() -> None:
    stage = Stage(
        breaker=NO_BREAKER, policies=rules(retry=RetryPolicy(budget_floor_per_min=0.1, budget_share=0))
    )
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.REJECTED), capability_cost=1)
    other = await stage.agent("b", script=succeed, capability_cost=5)
    stage.publish("t1")
    await stage.pass_time(2)
    assert not other.ran
    await stage.pass_time(700)
    assert stage.answer("t1")["status"] == "succeeded"


async def test_a_retry_that_has_paid_is_not_asked_again_while_it_waits_for_a_slot() -> None:
    stage = Stage(
        breaker=NO_BREAKER, policies=rules(retry=RetryPolicy(budget_floor_per_min=1, budget_share=0))
    )
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t1")
    await stage.settle()
    agent.script = lambda _: None
    stage.publish("busy")
    await stage.settle()
    await stage.pass_time(50)
    assert [delivery.headers["x-reach-paid"] for delivery in stage.lane()] == [2]
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(3)
    assert stage.answer("t1")["status"] == "succeeded"
    assert not reasons(stage, "t1")[1:], "only the lane made it wait"


async def test_an_outage_of_every_agent_for_a_minute_is_no_storm() -> None:
    """Under load: at most a fifth of extra attempts, and after it the backlog drains without a second collapse."""
    stage = Stage()
    await stage.router()
    down = True

    def script(_: Work) -> Reply:
        return Reply(OutcomeClass.UNAVAILABLE, "connection refused") if down else Reply()

    agents = [await stage.agent(name, slots=8, script=script) for name in ("a", "b", "c")]
    tasks = 0
    for second in range(180):
        down = 30 <= second < 90
        if second < 120:
            for _ in range(5):
                stage.publish(f"t{tasks}")
                tasks += 1
        await stage.pass_time(1)
    await stage.pass_time(300)
    answers = stage.answers()
    assert len(answers) == tasks
    assert {answer["status"] for answer in answers} == {"succeeded"}, "nobody spent its attempts on an outage"
    extra = sum(agent.ran.total() for agent in agents) - tasks
    assert 0 < extra <= tasks / 5
    ended = sorted(stage.end(f"t{number}").at for number in range(tasks))
    slowest_s = (ended[-1] - ended[0]) / 1e6
    assert slowest_s < 240, "the backlog is gone two minutes after the load"


async def test_an_outage_with_breakers_that_only_watch_is_held_by_the_budget() -> None:
    stage = Stage(breaker=BreakerPolicy(mode="observe"))
    await stage.router()
    agents = [await stage.agent(name, slots=8, script=always(OutcomeClass.FAILED)) for name in ("a", "b")]
    tasks = 0
    for _ in range(60):
        for _ in range(5):
            stage.publish(f"t{tasks}")
            tasks += 1
        await stage.pass_time(1)
    first = len(stage.rows(Dispatched)) - len(retries(stage))
    assert first == tasks, "new work goes on"
    assert len(retries(stage)) <= tasks / 5 + 10 * 2
    for agent in agents:
        agent.script = succeed
    await stage.pass_time(900)
    assert {answer["status"] for answer in stage.answers()} == {"succeeded"}
