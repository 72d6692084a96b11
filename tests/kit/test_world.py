"""A world: real routers, workers and handlers, and time that is moved."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reach_worker import Agent, Context, Handoff
from reach_worker.core.breaker import BreakerState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.presence import PresenceState
from reach_worker.errors import BadInput, StartupFailed
from reach_worker.store import MemoryStore
from reach_worker.testing import World, in_world
from tests.kit.agents import DECLARED, SHOUT, failing, napper, shouter, thinker


def kinds(world: World, task_id: str) -> list[tuple[str, str | None]]:
    """Where a task was, and how each attempt ended."""
    return [(one.agent, one.outcome and one.outcome.value) for one in world.attempts(task_id)]


async def test_a_call_is_answered() -> None:
    async with World([shouter()]) as world:
        answer = await world.call(SHOUT, {"text": "x"}, task_id="t1", user="me")
    assert (answer.status, answer.result, answer.agent, answer.attempt) == (
        "succeeded",
        {"text": "X"},
        "solid",
        1,
    )
    assert answer.succeeded
    assert world.answers("t1") == [answer.content]
    assert kinds(world, "t1") == [("solid", "succeeded")]


async def test_another_agent_takes_over_what_one_fails() -> None:
    async with World([failing(), shouter()], routing=DECLARED) as world:
        answer = await world.call(SHOUT, {"text": "x"})
        assert kinds(world, answer.task_id) == [("flaky", "unavailable"), ("solid", "succeeded")]
        assert answer.attempt == 2


async def test_what_fails_everywhere_becomes_a_dead_letter_after_its_retries() -> None:
    async with World([failing()], retry={"max_retries": 2}) as world:
        answer = await world.call(SHOUT, {"text": "x"})
        assert (answer.status, answer.reason) == ("dead_letter", "attempts_exhausted")
        assert [one["agent"] for one in answer.attempts] == ["flaky"] * 3
        (letter,) = world.dead_letters()
        assert (letter.task_id, letter.reason) == (answer.task_id, DeadLetterReason.ATTEMPTS_EXHAUSTED)


async def test_a_breaker_opens_cools_down_and_closes_again() -> None:
    async with World(
        [failing(times=2)], breaker={"streak": 2, "open_s": 30}, retry={"max_retries": 0}
    ) as world:
        for _ in range(2):
            assert world.breaker("flaky").state is BreakerState.CLOSED
            assert not (await world.call(SHOUT, {"text": "x"})).succeeded
        assert world.breaker("flaky").state is BreakerState.OPEN
        opened_at = world.clock.monotonic()
        waiting = world.publish(SHOUT, {"text": "x"})
        await world.advance(29)
        assert world.attempts(waiting) == []
        assert (await world.answer(waiting)).succeeded
        assert 30 <= world.clock.monotonic() - opened_at <= 32
        assert world.breaker("flaky").state is BreakerState.CLOSED


async def test_time_outs_of_a_minute_take_no_time() -> None:
    before = asyncio.get_running_loop().time()
    async with World([napper()], retry={"max_retries": 1}) as world:
        answer = await world.call("nap", {"seconds": 3600})
        assert kinds(world, answer.task_id) == [("napper", "timeout")] * 2
    assert asyncio.get_running_loop().time() - before < 30


async def test_the_tests_own_timers_go_by_the_worlds_time() -> None:
    async with World() as world:
        at = world.clock.monotonic()
        async with asyncio.TaskGroup() as group:
            nap = group.create_task(asyncio.sleep(90))  # noqa: TID251 - it is what is tested
            await world.advance(89)
            assert not nap.done()
            await world.advance(1)
            assert nap.done()
        assert world.clock.monotonic() - at == pytest.approx(90)


async def test_calls_side_by_side() -> None:
    async with World([napper(slots=2)]) as world:
        began = world.clock.monotonic()
        answers = await asyncio.gather(*(world.call("nap", {"seconds": 10, "n": n}) for n in range(4)))
        assert [answer.result["n"] for answer in answers] == [0, 1, 2, 3]
        assert 20 <= world.clock.monotonic() - began < 22


async def test_a_task_is_taken_back_by_its_caller_only_and_the_slot_is_free_again() -> None:
    async with World([napper(slots=1)]) as world:
        task_id = world.publish("nap", {"seconds": 3600}, user="me")
        await world.advance(2)
        assert (await world.cancel(task_id, user="you"))["cancelled"] is False
        assert (await world.cancel(task_id, user="me"))["cancelled"] is True
        assert (await world.answer(task_id)).status == "cancelled"
        assert kinds(world, task_id) == [("napper", "cancelled")]
        began = world.clock.monotonic()
        assert (await world.call("nap", {"seconds": 1})).succeeded
        assert world.clock.monotonic() - began < 3


async def test_a_killed_agent_is_found_dead_and_its_work_goes_elsewhere() -> None:
    first, second = napper(), Agent("other")
    second.capability("nap", cost=5)(lambda _payload: "mine now")
    async with World([first, second], routing=DECLARED) as world:
        task_id = world.publish("nap", {"seconds": 20})
        await world.advance(1)
        assert [one.agent for one in world.attempts(task_id)] == ["napper"]
        await world.kill(first)
        answer = await world.answer(task_id)
        assert (answer.result, answer.agent) == ("mine now", "other")
        assert world.presence("napper") is PresenceState.DEAD
        assert world.presence(second) is PresenceState.ACTIVE


async def test_an_agent_that_comes_back_goes_on() -> None:
    agent = shouter()
    async with World([agent]) as world:
        await world.kill("solid")
        waiting = world.publish(SHOUT, {"text": "x"})
        await world.advance(60)
        assert world.answers(waiting) == []
        await world.start(agent)
        assert (await world.answer(waiting)).succeeded


async def test_one_instance_of_two_is_killed() -> None:
    agent = shouter()
    async with World([agent, agent]) as world:
        await world.kill("solid-1")
        for _ in range(3):
            answer = await world.call(SHOUT, {"text": "x"})
            assert [one.instance for one in world.attempts(answer.task_id)] == ["solid-2"]


async def test_a_router_that_is_killed_is_stood_in_for_by_the_other() -> None:
    async with World([napper()], routers=2) as world:
        tasks = [world.publish("nap", {"seconds": 5}, task_id=f"t{number}") for number in range(4)]
        await world.advance(1)
        await world.kill("r1")
        assert [(await world.answer(task)).succeeded for task in tasks] == [True] * 4
        assert [len(world.answers(task)) for task in tasks] == [1] * 4
        await world.start_router("r1")
        assert (await world.call("nap", {"seconds": 1})).succeeded


async def test_a_race_is_won_by_the_first_word_and_its_loser_is_cancelled() -> None:
    async with World([thinker("quick", 1), thinker("slow", 3)]) as world:
        answer = await world.call("think", mode="race", stream=True)
        assert (answer.result, answer.chunks) == ("quick", ["quick speaks"])
        await world.advance(10)
        assert "in the same flow" in await world.explain(answer.task_id)
        assert sorted(kinds(world, answer.task_id)) == [("quick", "succeeded"), ("slow", "cancelled")]


async def test_a_fan_out_says_who_is_missing() -> None:
    dead = thinker("dead", 1)
    async with World([thinker("one", 1), thinker("two", 3), dead]) as world:
        task_id = world.publish("think", mode="fanout", deadline_ms=60_000)
        await world.advance(0.5)
        await world.kill(dead)
        answer = await world.answer(task_id)
        assert answer.result == {"one": "one", "two": "two"}
        told = (*answer.content["failed"], *answer.content["missing"])  # it waits to the very end of the time
        assert [one["agent"] for one in told] == ["dead"]


async def test_a_handoff_and_a_call_between_two_agents() -> None:
    first, second = Agent("first"), shouter()

    @first.capability("hand.on")
    def hand_on(payload: dict[str, Any]) -> Handoff:
        return Handoff(capability=SHOUT, payload=payload)

    @first.capability("ask")
    async def ask(payload: dict[str, Any], context: Context) -> Any:
        return await context.call(SHOUT, payload)

    async with World([first, second]) as world:
        handed = await world.call("hand.on", {"text": "x"})
        assert (handed.result, handed.agent, handed.content["chain"]) == (
            {"text": "X"},
            "solid",
            ["first", "solid"],
        )
        asked = await world.call("ask", {"text": "y"})
        assert (asked.result, asked.agent) == ({"text": "Y"}, "first")


async def test_a_stopped_agent_drains_first() -> None:
    async with World([napper()]) as world:
        task_id = world.publish("nap", {"seconds": 10})
        await world.advance(1)
        await world.stop("napper")
        assert (await world.answer(task_id)).attempt == 1


async def test_chunks_of_the_attempt_that_answered_and_all_that_was_said() -> None:
    agent = Agent("talker")

    @agent.capability("talk")
    async def talk(_payload: dict[str, Any], context: Context) -> str:
        await context.stream(f"begun {context.attempt}")
        if context.attempt == 1:
            raise RuntimeError("lost the thread")
        await context.stream("ended")
        return "done"

    async with World([agent]) as world:
        answer = await world.call("talk", stream=True)
        assert answer.chunks == ["begun 2", "ended"]
        started = [one["attempt"] for one in answer.said if one["status"] == "started"]
        assert started == [1, 2]
        assert world.said(answer.task_id) == list(answer.said)


async def test_explain_says_what_the_command_says() -> None:
    async with World([failing(), shouter()], routing=DECLARED) as world:
        answer = await world.call(SHOUT, {"text": "x"}, task_id="t1")
        text = await world.explain("t1")
        assert answer.succeeded
        assert text.splitlines()[0] == "task t1: succeeded"
        assert "attempt 1 → flaky" in text
        assert "unavailable: not today" in text
        with pytest.raises(BadInput, match="no router has written anything down about a task 't2'"):
            await world.explain("t2")


async def test_a_real_store_remembers_over_two_worlds(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    async with World([shouter()], store=path, idempotency={"window_s": 3600}) as world:
        first = await world.call(SHOUT, {"text": "x"}, task_id="t1")
        assert kinds(world, "t1") == [("solid", "succeeded")]
    async with World([shouter()], store=path, idempotency={"window_s": 3600}) as world:
        again = await world.call(SHOUT, {"text": "x"}, task_id="t1")
        assert again.content == first.content
        assert world.attempts("t1") == []


async def test_work_goes_on_while_the_store_is_away() -> None:
    async with World([shouter()]) as world:
        assert isinstance(world.store, MemoryStore)
        world.store.away = True
        assert (await world.call(SHOUT, {"text": "x"})).succeeded
        careful = world.publish(SHOUT, {"text": "y"}, task_id="t2", side_effects=True)
        await world.advance(30)
        assert world.answers(careful) == []
        world.store.away = False
        assert (await world.answer(careful)).succeeded


async def test_two_worlds_of_one_seed_are_the_same() -> None:
    stories = []
    for _ in range(2):
        async with World([failing(times=3), shouter(), napper()], seed=7) as world:
            for number in range(10):
                await world.call(SHOUT, {"text": str(number)})
            stories.append(world.rows)
    assert stories[0] == stories[1]


async def test_what_is_unmatched_waits_for_a_person() -> None:
    async with World([shouter()]) as world:
        answer = await world.call("text.shot")
        assert (answer.status, answer.content["final"]) == ("unmatched", False)
        assert [letter.task_id for letter in world.unmatched()] == [answer.task_id]


async def test_who_waits_in_vain_is_told_where_everything_is() -> None:
    agent = shouter()
    async with World([agent]) as world:
        await world.kill(agent)
        task_id = world.publish(SHOUT, {"text": "x"}, task_id="t1")
        with pytest.raises(TimeoutError, match=r"100 s have passed, and not yet: task t1 has its answer\n"):
            await world.answer(task_id, limit_s=100)


async def test_an_error_in_the_test_comes_out_as_it_is_and_quickly() -> None:
    class OddError(Exception):
        pass

    async def story() -> None:
        async with World([napper()]) as world:
            world.publish("nap", {"seconds": 50})
            await world.advance(1)
            raise OddError

    with pytest.raises(OddError):
        await story()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda world: world.breaker("sollid"), "no agent is called 'sollid' (did you mean 'solid'?)"),
        (lambda world: world.breaker("solid", router="r9"), "no router is called 'r9' (there are r1)"),
        (
            lambda world: world.faults.duplicate("agnet.solid"),
            "no queue is called 'agnet.solid' (did you mean 'agent'?)",
        ),
    ],
)
async def test_names_that_are_not_there(call: Any, message: str) -> None:
    async with World([shouter()]) as world:
        with pytest.raises(BadInput) as error:
            call(world)
        assert str(error.value) == message
        with pytest.raises(BadInput, match="no running process is called 'sollid'"):
            await world.kill("sollid")


async def test_an_agent_whose_start_up_fails_is_the_error_itself() -> None:
    agent = shouter("broken")

    @agent.on_startup
    async def hook() -> None:
        raise OSError("no disk")

    with pytest.raises(StartupFailed, match="OSError: no disk"):
        async with World([shouter(), agent]):
            pass


async def test_an_agent_that_cannot_start_is_the_error_itself() -> None:
    with pytest.raises(BadInput, match="agent 'empty'"):
        async with World([shouter(), Agent("empty")]):
            pass


def test_a_setting_that_there_is_not() -> None:
    with pytest.raises(BadInput, match=r"breaker/streek: unknown field \(did you mean streak\?\)"):
        World(breaker={"streek": 2})


@pytest.mark.parametrize("again", [1, 2])
@in_world(lambda: [failing(times=1), shouter()], routing=DECLARED)
async def test_a_story_as_a_plain_function(world: World, again: int) -> None:
    """Agents that are made anew for each test have no past."""
    assert again
    answer = await world.call(SHOUT, {"text": "x"})
    assert world.attempts(answer.task_id)[0].outcome is OutcomeClass.UNAVAILABLE


@pytest.mark.parametrize("text", ["a", "b"])
@in_world([shouter()])
async def test_a_story_with_parameters_and_fixtures(world: World, text: str, tmp_path: Path) -> None:
    assert tmp_path.name
    assert (await world.call(SHOUT, {"text": text})).result == {"text": text.upper()}


async def test_a_plain_handler_that_waits_for_its_end_is_told() -> None:
    async with World([napper(timeout_ms=5_000)], retry={"max_retries": 0}) as world:
        answer = await world.call("nap.thread")
        assert answer.result == "woken"


async def test_an_agent_that_asks_for_a_rest_gets_it() -> None:
    async with World([napper()], retry={"max_dispatches": 2}) as world:
        began = world.clock.monotonic()
        answer = await world.call("nap.limited", {"seconds": 40})
        assert answer.reason == "attempts_exhausted"
        assert 40 <= world.clock.monotonic() - began <= 43


class TestOfAClass:
    @in_world([shouter()])
    async def test_a_story_that_is_a_method(self, world: World, tmp_path: Path) -> None:
        assert tmp_path.name
        assert (await world.call(SHOUT, {"text": "x"})).succeeded
