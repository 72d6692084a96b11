"""Calling an agent: the result or the exception that fits, and nobody gets what was meant for another."""

import asyncio
from dataclasses import replace

import pytest

from reach_worker.core.message import Delivery
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.task_errors import (
    CallTimeout,
    ConnectionLost,
    DeadLettered,
    TaskCancelled,
    UnknownTask,
    Unmatched,
)
from reach_worker.errors import BadInput, OutsideWorld
from reach_worker.ports import Sent
from reach_worker.testing.faults import Fate
from tests.bus.until import until
from tests.calling.scene import CAPABILITY, scene
from tests.services.scripted import Reply, Work, always, succeed


def echo(work: Work) -> Reply:
    """What the task is called."""
    return Reply(result=b'"%s"' % work.task_id.encode())


async def test_a_call_gives_the_result() -> None:
    async with scene(succeed) as at:
        assert await at.reach.call(CAPABILITY, {}) == {"said": "done"}


async def test_many_at_once_each_get_their_own() -> None:
    async with scene(echo) as at:
        ids = [f"t{number}" for number in range(300)]
        results = await asyncio.gather(*(at.reach.call(CAPABILITY, {}, task_id=each) for each in ids))
        assert results == ids


async def test_two_calls_of_one_task_run_it_once_and_both_get_the_answer() -> None:
    async with scene(echo) as at:
        both = (at.reach.call(CAPABILITY, {}, task_id="t1") for _ in range(2))
        assert await asyncio.gather(*both) == ["t1", "t1"]
        assert at.runs() == 1


async def test_a_task_that_is_done_in_vain_raises_with_reason_and_attempts() -> None:
    async with scene(always(OutcomeClass.BAD_REQUEST, "no such page")) as at:
        with pytest.raises(DeadLettered) as caught:
            await at.reach.call(CAPABILITY, {}, flow_id="f1")
        assert (caught.value.reason, caught.value.flow_id) == ("bad_request", "f1")
        assert [(each.agent_id, each.message) for each in caught.value.attempts] == [("ann", "no such page")]


async def test_one_that_no_agent_may_take_raises() -> None:
    async with scene() as at:
        with pytest.raises(Unmatched, match=r"text\.other"):
            await at.reach.call("text.other", {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metdata": {}}, "did you mean 'metadata'"),
        ({"deadline": 0}, "above 0"),
        ({"max_cost": -1}, "max_cost"),
        ({"traceparent": "17"}, "no trace parent"),
        ({"intent": "something else"}, "exactly one"),
    ],
)
async def test_what_is_wrong_is_said_before_anything_is_sent(options: dict[str, object], words: str) -> None:
    async with scene() as at:
        with pytest.raises(BadInput, match=words):
            await at.reach.call(CAPABILITY, {}, **options)  # type: ignore[arg-type]  # that is the point
        assert ("publish", CAPABILITY) not in at.bus.journal
        assert not at.agent.ran


async def test_whoever_waits_no_longer_has_the_task_cancelled() -> None:
    async with scene() as at:
        with pytest.raises(CallTimeout, match=r"no answer within 0\.3 s; it is cancelled") as caught:
            await at.reach.call(CAPABILITY, {}, task_id="t1", timeout=0.3)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.task_id == "t1"
        (work,) = at.agent.held
        await until(lambda: "t1" in at.stage.r1.desk.hands.cancel_requests)
        await at.agent.end(work, Reply(OutcomeClass.CANCELLED))
        with pytest.raises(TaskCancelled):
            await at.reach.fetch("t1")


async def test_unless_it_shall_go_on() -> None:
    async with scene() as at:
        with pytest.raises(CallTimeout, match="it goes on"):
            await at.reach.call(CAPABILITY, {}, task_id="t1", timeout=0.3, cancel_on_timeout=False)
        (work,) = await at.held()
        assert work.dispatch.envelope.deadline is None
        await at.agent.end(work, Reply(result=b'"late"'))
        assert await at.reach.fetch("t1") == "late"


async def test_the_time_that_a_caller_waits_is_the_deadline_of_his_task_unless_he_says_otherwise() -> None:
    async with scene() as at:
        for task_id, more in {"t1": {}, "t2": {"deadline": 600.0}}.items():
            with pytest.raises(CallTimeout):
                await at.reach.call(CAPABILITY, {}, task_id=task_id, timeout=0.5, **more)  # type: ignore[arg-type]
        first, second = await at.held(2)
        lasts = [
            round(((each.dispatch.envelope.deadline or 0) - each.dispatch.envelope.first_seen) / 1e6, 1)
            for each in (first, second)
        ]
        assert lasts == [0.5, 600.0]


async def test_a_fan_out_ends_a_little_before_its_caller_gives_up() -> None:
    """Else he would never see the answer that says who is missing."""
    async with scene() as at, asyncio.TaskGroup() as group:
        for timeout, lasts in ((60, 58.0), (4, 3.0)):
            calling = group.create_task(at.reach.call(CAPABILITY, {}, mode="fanout", timeout=timeout))
            (work,) = await at.held()
            envelope = work.dispatch.envelope
            assert round(((envelope.deadline or 0) - envelope.first_seen) / 1e6, 1) == lasts
            await at.agent.end(work, Reply(result=b"1"))
            assert await calling == {"ann": 1}


async def test_a_deadline_that_was_only_the_time_out_is_told_as_one() -> None:
    async with scene() as at:  # where the clock runs faster than ours, so the router is the one who gives up
        at.agent.die()
        with pytest.raises(CallTimeout, match="deadline") as caught:
            await at.reach.call(CAPABILITY, {}, timeout=5)
        assert caught.value.answer["reason"] == "expired"
        with pytest.raises(DeadLettered, match="expired"):
            await at.reach.call(CAPABILITY, {}, deadline=5, timeout=None)


async def test_a_call_that_is_cancelled_from_outside_cancels_its_task() -> None:
    async with scene() as at, asyncio.TaskGroup() as group:
        calling = group.create_task(at.reach.call(CAPABILITY, {}, task_id="t1"))
        await at.held()
        calling.cancel()
        await until(lambda: "t1" in at.stage.r1.desk.hands.cancel_requests)
        assert calling.cancelled()


async def test_what_nobody_waits_for_is_let_go() -> None:
    async with scene(succeed) as at:
        for mark in (None, "", "a stranger"):
            to = Delivery("", b"{", None, correlation_id=mark, routing_key=at.bus.mailbox)
            assert at.stage.broker.put(to)
        assert await at.reach.call(CAPABILITY, {}) == {"said": "done"}
        assert at.bus.unacked == 0


async def test_a_broker_that_does_not_take_a_task_is_asked_again() -> None:
    async with scene(succeed) as at:
        at.bus.fail_next(Fate.REFUSED, Fate.REFUSED, to="t1")
        assert await at.reach.call(CAPABILITY, {}, task_id="t1") == {"said": "done"}
        assert at.runs() == 1


async def test_a_broker_without_queues_is_no_reason_to_wait() -> None:
    async with scene(succeed) as at:
        at.stage.kill(at.stage.r1)
        at.stage.broker.delete_queue(at.stage.names.intake)
        with pytest.raises(OutsideWorld, match="has no queue"):
            await at.reach.call(CAPABILITY, {})


async def test_a_client_that_is_closed_leaves_nobody_waiting() -> None:
    async with scene() as at:
        calling = asyncio.gather(at.reach.call(CAPABILITY, {}), at.reach.fetch("t2"), return_exceptions=True)
        await at.held()
        assert at.reach._line is not None  # noqa: SLF001 - closing it while others call
        await at.reach._line.close()  # noqa: SLF001 - as above
        ended = await calling
        assert [type(each) for each in ended] == [ConnectionLost, ConnectionLost]
        with pytest.raises(ConnectionLost):
            await at.reach.call(CAPABILITY, {})


# ---- Later, and from elsewhere


async def test_a_task_is_submitted_now_and_fetched_later() -> None:
    async with scene() as at:
        handle = await at.reach.submit(CAPABILITY, {}, flow_id="f1")
        assert handle.flow_id == "f1"
        (work,) = await at.held()
        assert work.dispatch.envelope.reply_to is None
        found = await at.reach.find(handle.task_id)
        assert found is not None
        assert found.state == "under_way"
        with pytest.raises(CallTimeout, match=r"not over after 0\.2 s: under way"):
            await handle.result(timeout=0.2)
        with pytest.raises(CallTimeout, match=": it is not over: under way"):
            await at.reach.fetch(handle.task_id, timeout=0)
        await at.agent.end(work, Reply(result=b"[1]"))
        assert await handle.result() == [1]
        assert await at.reach.fetch(handle.task_id, timeout=0) == [1]


async def test_a_task_that_waits_for_a_person_is_told_as_that() -> None:
    async with scene() as at:
        handle = await at.reach.submit("text.other", {})
        with pytest.raises(Unmatched):
            await handle.result()


async def test_an_answer_that_is_not_kept_any_more_is_told_as_that() -> None:
    async with scene(succeed) as at:
        handle = await at.reach.submit(CAPABILITY, {}, task_id="t1")
        await handle.result()
        at.stage.store.away = True
        ended = at.stage.r1.desk.hands.ended
        ended["t1"] = replace(ended["t1"], answer=None)
        with pytest.raises(ConnectionLost, match="'succeeded', and its answer is not kept"):
            await handle.result(timeout=0)


async def test_a_task_that_nobody_knows_is_told_as_that() -> None:
    async with scene() as at:
        for timeout in (0, 0.3):
            with pytest.raises(UnknownTask):
                await at.reach.fetch("nobody's", timeout=timeout)


async def test_without_a_router_nobody_answers() -> None:
    async with scene() as at:
        at.stage.kill(at.stage.r1)
        with pytest.raises(CallTimeout, match="no router answered"):
            await at.reach.fetch("t1", timeout=0.3)
        assert await at.reach.find("t1", within=0.1) is None
        assert await at.reach.cancel("t1", timeout=0.1) == await at.reach.cancel("t2", timeout=0.1)


async def test_the_end_of_a_failure_is_fetched_as_the_exception_that_it_is() -> None:
    async with scene(always(OutcomeClass.BAD_REQUEST, "no")) as at:
        handle = await at.reach.submit(CAPABILITY, {})
        with pytest.raises(DeadLettered, match="no") as caught:
            await handle.result()
        assert len(caught.value.attempts) == 1


async def test_what_runs_or_waits_is_cancelled_and_what_is_over_is_not() -> None:
    async with scene(slots=1) as at:
        running = await at.reach.submit(CAPABILITY, {})
        (work,) = await at.held()
        waiting = await at.reach.submit(CAPABILITY, {})
        await until(lambda: waiting.task_id in at.stage.r1.desk.hands.waiting)
        taken_back = await waiting.cancel()
        assert taken_back
        assert taken_back.state == "waiting"
        with pytest.raises(TaskCancelled):
            await waiting.result()
        assert (await running.cancel()).state == "running"
        await at.agent.end(work)
        assert await running.result() == {"said": "done"}
        late = await running.cancel()
        assert (late.cancelled, late.state) == (False, "succeeded")


async def test_a_strangers_task_is_neither_told_nor_cancelled() -> None:
    async with scene(user_id="bob") as at:
        at.stage.publish("hers", user_id="ann")
        await at.held()
        with pytest.raises(UnknownTask):
            await at.reach.fetch("hers", timeout=0)
        refused = await at.reach.cancel("hers")
        assert (refused.cancelled, refused.state) == (False, "forbidden")


# ---- The connection


@pytest.mark.parametrize("side_effects", [False, True])
async def test_calls_survive_a_lost_connection_and_run_once(*, side_effects: bool) -> None:
    async with scene() as at:
        ids = [f"t{number}" for number in range(60)]
        calling = asyncio.gather(
            *(at.reach.call(CAPABILITY, {}, task_id=each, side_effects=side_effects) for each in ids)
        )
        for part in range(5):  # some end before, some between, some after
            works = await at.held(60 - 12 * part)
            at.bus.end_session()
            for work in works[:12]:
                await at.agent.end(work, echo(work))
        assert await calling == ids
        assert set(at.agent.ran.values()) == {1}


async def test_while_there_is_no_connection_calls_wait_as_long_as_they_may() -> None:
    async with scene(succeed) as at:
        at.bus.disconnect()
        with pytest.raises(CallTimeout, match="the broker cannot be reached now"):
            await at.reach.call(CAPABILITY, {}, timeout=0.2)
        at.reach.timeout = 0.2
        with pytest.raises(CallTimeout, match="did not confirm it"):
            await at.reach.submit(CAPABILITY, {})
        calling = asyncio.gather(at.reach.call(CAPABILITY, {}, timeout=20))
        at.bus.connect()
        (result,) = await calling
        assert result == {"said": "done"}


async def test_an_answer_that_came_while_nobody_was_connected_is_fetched() -> None:
    async with scene() as at, asyncio.TaskGroup() as group:
        calling = group.create_task(at.reach.call(CAPABILITY, {}, task_id="t1"))
        (work,) = await at.held()
        at.bus.disconnect()
        await at.agent.end(work, echo(work))
        await at.stage.settle()
        await at.stage.pass_time(600, step=10)  # so long that the id would begin anew
        at.bus.connect()
        assert await calling == "t1"
        assert at.runs() == 1


async def test_a_task_whose_confirm_was_lost_is_sent_again_and_done_once() -> None:
    async with scene(echo) as at:
        at.bus.fail_next(Fate.STORED, Fate.LOST, to="t1")
        assert await at.reach.call(CAPABILITY, {}, task_id="t1") == "t1"
        assert at.runs() == 1


async def test_a_question_is_put_again_where_the_connection_was_lost_over_it() -> None:
    async with scene(echo) as at:
        handle = await at.reach.submit(CAPABILITY, {}, task_id="t1")
        at.bus.fail_next(Fate.LOST, to="fetch-task")
        assert await handle.result() == "t1"
        assert await at.bus.publish([]) == list[Sent]()
