"""A router that is asked says how it is: what waits and why, who works, how its store is."""

import pytest

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.message import Message
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.status import QUESTION, AgentNow, Report, Waits, report_from
from reach_worker.services.router.bind import NOT_RECORDED
from reach_worker.services.router.status import AT_ONCE
from reach_worker.testing import MemoryBus
from tests.services.scripted import Reply, always, hold, manifest, succeed
from tests.services.stage import Stage, rules

ASKER = "reach-listens.mailbox.1"


async def ask(stage: Stage, reply_to: str | None = ASKER, times: int = 1) -> None:
    """Put the question, as a command does."""
    bus = MemoryBus(stage.broker)
    bus.connect()
    question = Message(
        QUESTION, b"", {}, stage.names.events, reply_to=reply_to, persistent=False, mandatory=False
    )
    await bus.publish([question] * times)
    bus.disconnect()


async def answers(stage: Stage) -> list[Report]:
    """What the routers answer."""
    stage.broker.declare_private(ASKER)
    before = len(stage.broker.messages(ASKER))
    await ask(stage)
    await stage.settle(rounds=1)
    reports = [report_from(each.body) for each in stage.broker.messages(ASKER)[before:]]
    assert all(isinstance(each, Report) for each in reports), reports
    return [each for each in reports if isinstance(each, Report)]


async def answer(stage: Stage) -> Report:
    (report,) = await answers(stage)
    return report


async def waits(stage: Stage) -> Waits:
    """Of the one capability that waits."""
    (found,) = (await answer(stage)).waits
    return found


async def test_each_router_answers_in_its_next_turn() -> None:
    stage = Stage()
    await stage.router("r1")
    await stage.router("r2")
    await stage.agent("a", slots=2, script=hold)
    stage.publish("t1")
    await stage.settle()
    found = await answers(stage)
    assert sorted(each.router for each in found) == ["r1", "r2"]
    assert [each.unready for each in found] == ["", ""]
    assert sum(each.in_flight for each in found) == 1
    assert sum(each.counts["dispatched"] for each in found) == 1
    (busy,) = [each for each in found if each.in_flight]
    assert busy.agents == (AgentNow("a", 1, 1, "active", "closed"),)
    assert busy.session == 1
    assert busy.session_s is not None
    assert busy.session_s > 0


async def test_nobody_is_told_unasked_and_one_who_has_gone_is_no_trouble() -> None:
    stage = Stage()
    await stage.router()
    stage.broker.declare_private(ASKER)
    await stage.pass_time(10)
    assert stage.broker.messages(ASKER) == []
    stage.broker.delete_queue(ASKER)
    await ask(stage)
    await stage.settle()
    stage.publish("t1", "text.ecko")
    await stage.agent("a")
    stage.publish("t2")
    await stage.settle()
    assert stage.answer("t2")["status"] == "succeeded"


@pytest.mark.parametrize("address", [None, "", "caller", "reach-listens", "reach.v1.intake", "reach.v1.dlq"])
async def test_a_stranger_is_not_answered_and_nothing_of_ours_is_written_into(address: str | None) -> None:
    stage = Stage()
    await stage.router()
    before = dict(stage.ready())
    await ask(stage, address and address.replace("reach.v1", stage.names.prefix))
    await stage.settle()
    assert dict(stage.ready()) == before


async def test_who_asks_again_and_again_gets_one_report_a_turn() -> None:
    stage = Stage()
    r1 = await stage.router()
    stage.broker.declare_private(ASKER)
    await ask(stage, times=50)
    for number in range(2 * AT_ONCE):
        await ask(stage, f"reach-listens.mailbox.x{number}")
    r1.bus.journal.clear()
    await stage.settle()
    assert len(stage.broker.messages(ASKER)) == 1
    assert sum(key.startswith("reach-listens") for _, key in r1.bus.journal) == AT_ONCE


async def test_without_a_free_slot_the_oldest_is_named_with_how_long_it_waits() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=hold)
    stage.publish("t1")
    await stage.settle()
    stage.publish("t2")
    await stage.settle()
    await stage.pass_time(3)
    stage.publish("t3")
    await stage.pass_time(2)
    found = await waits(stage)
    assert (found.capability, found.count, found.task) == ("text.echo", 2, "t2")
    assert found.oldest_s == pytest.approx(5, abs=0.01)
    assert found.reason == "a: at max concurrency 1/1"
    assert found.lane == 0


async def test_the_reason_is_the_one_of_now_not_of_when_it_came() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=1, open_s=300.0))
    await stage.router()
    agent = await stage.agent("a", slots=2, script=hold)
    stage.publish("t1")
    stage.publish("t2")
    await stage.settle()
    stage.publish("t3")
    await stage.settle()
    assert (await waits(stage)).reason == "a: at max concurrency 2/2"
    await agent.end(agent.held[0], Reply(OutcomeClass.FAILED, "broken"))
    await stage.pass_time(4)
    report = await answer(stage)
    (found,) = report.waits
    assert "breaker open for" in found.reason
    (told,) = report.agents
    assert (told.agent, told.breaker) == ("a", "open")
    assert told.breaker_s == pytest.approx(296, abs=1)


async def test_an_agent_that_is_away_is_named_also_when_its_tasks_have_gone_to_the_lane() -> None:
    stage = Stage()
    await stage.router("r1", [manifest("a")])
    stage.publish("t1")
    await stage.pass_time(2)
    assert (await waits(stage)).reason == "a: pending, no instance is known"
    stage.publish("t2")
    await stage.pass_time(60)
    assert len(stage.lane()) == 2
    found = await waits(stage)
    assert (found.count, found.oldest_s, found.task, found.lane) == (0, None, "", 2)
    assert found.lane_s == pytest.approx(62, abs=1)
    assert found.reason == "a: pending, no instance is known"
    await stage.agent("a")
    await stage.pass_time(2)
    assert (await answer(stage)).waits == ()
    assert stage.answer("t2")["status"] == "succeeded"


async def test_with_side_effects_it_waits_for_the_store_which_is_told_to_be_away() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=hold, slots=9, capability_side_effects=True)
    stage.store.away = True
    for number in range(3):
        stage.publish(f"t{number}")
    await stage.pass_time(3)
    report = await answer(stage)
    assert report.store == {"away": True}
    (found,) = report.waits
    assert found.reason == NOT_RECORDED
    stage.store.away = False
    await stage.pass_time(3)
    report = await answer(stage)
    assert report.waits == ()
    assert report.store == {"away": False}


async def test_retries_over_the_budget_are_counted() -> None:
    no_retries = rules(retry=RetryPolicy(budget_floor_per_min=0.1, budget_share=0))
    stage = Stage(breaker=BreakerPolicy(streak=1_000, rate_floor=None), policies=no_retries)
    await stage.router()
    await stage.agent("a", slots=9, script=always(OutcomeClass.FAILED))
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.pass_time(3)
    report = await answer(stage)
    assert report.counts["over_budget"] >= 4
    assert report.counts["dispatched"] >= 5
    assert report.waits == ()


async def test_what_failed_before_waits_since_its_last_attempt() -> None:
    stage = Stage()
    await stage.router()
    replies = [Reply(OutcomeClass.FAILED)]
    agent = await stage.agent("a", script=lambda _: replies.pop() if replies else None)
    stage.publish("t1")
    await stage.settle()
    stage.publish("t2")
    await stage.settle()
    await stage.pass_time(20)
    assert [work.task_id for work in agent.held] == ["t2"]
    found = await waits(stage)
    assert found.task == "t1"
    assert found.oldest_s == pytest.approx(20, abs=0.5)


async def test_an_agent_that_is_rate_limited_is_held_back() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold)
    stage.publish("t1")
    await stage.settle()
    await agent.end(agent.held[0], Reply(OutcomeClass.RATE_LIMITED, retry_after_ms=20_000))
    await stage.settle()
    (told,) = (await answer(stage)).agents
    assert told.rests_s == pytest.approx(20, abs=0.1)


async def test_a_router_that_stops_says_so() -> None:
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a", script=succeed)
    await r1.router.drain()
    assert (await answer(stage)).unready == "it stops"


async def test_a_report_from_before_anybody_was_heard() -> None:
    stage = Stage()
    await stage.router(settled=False)
    report = await answer(stage)
    assert report.unready == "it knows no agent yet, so it takes no tasks"
    assert report.agents == ()


async def test_a_lane_that_was_full_before_the_router_started_counts_from_when_it_was_seen() -> None:
    stage = Stage()
    first = await stage.router("r1", [manifest("a")])
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.pass_time(60)
    assert len(stage.lane()) == 5
    stage.kill(first)
    await stage.router("r2", [manifest("a")])
    assert (await answer(stage)).waits == ()
    agent = await stage.agent("a", script=hold)
    await stage.pass_time(10)
    found = await waits(stage)
    assert (found.count, found.lane) == (0, 4)
    assert found.lane_s == pytest.approx(10, abs=1.1)
    assert found.reason == "a: at max concurrency 1/1"
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(5)
    assert (await answer(stage)).waits == ()
