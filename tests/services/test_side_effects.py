"""Tasks that must not run twice: recorded before they are sent, tried again only if they provably never started."""

import pytest

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.ports import Row, Started
from reach_worker.services.router.desk import RECORD_AGAIN_S
from reach_worker.testing import Fate, Moment
from tests.services.scripted import Reply, ScriptedAgent, always, succeed
from tests.services.stage import Stage, die

MAY_HAVE_RUN = [OutcomeClass.TIMEOUT, OutcomeClass.UNAVAILABLE, OutcomeClass.FAILED, OutcomeClass.RELEASED]


async def staged() -> tuple[Stage, ScriptedAgent]:
    stage = Stage()
    await stage.router()
    return stage, await stage.agent("a", script=lambda _: None, capability_side_effects=True)


async def test_it_is_recorded_before_it_is_sent() -> None:
    stage, _ = await staged()
    seen: list[Row] = []
    stage.r1.bus.once(Moment.BEFORE_PUBLISH, lambda: seen.extend(stage.dispatches("t1")))
    stage.publish("t1")
    await stage.settle()
    assert len(seen) == 1


async def test_an_ordinary_one_is_recorded_after_it_is_sent() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    seen: list[Row] = []
    stage.r1.bus.once(Moment.AFTER_PUBLISH, lambda: seen.extend(stage.dispatches("t1")))
    stage.publish("t1")
    await stage.settle()
    assert not seen
    assert len(stage.dispatches("t1")) == 1


@pytest.mark.parametrize("kind", MAY_HAVE_RUN)
async def test_what_had_begun_and_did_not_succeed_is_for_a_person(kind: OutcomeClass) -> None:
    stage, agent = await staged()
    stage.publish("t1")
    await stage.settle()
    await agent.say_started(agent.held[0])
    await agent.end(agent.held[0], Reply(kind, "oh"))
    await stage.come_to_rest()
    assert agent.ran == {"t1": 1}
    letter = stage.letter()
    assert letter.reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert stage.end("t1").reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert stage.answer("t1")["reason"] == "outcome_unknown"
    assert [row.dispatch_id for row in stage.rows(Started)] == [stage.dispatches("t1")[0].dispatch_id]


@pytest.mark.parametrize("kind", MAY_HAVE_RUN)
async def test_what_never_began_is_tried_again(kind: OutcomeClass) -> None:
    stage, agent = await staged()
    stage.publish("t1")
    await stage.settle()
    agent.script = succeed
    await agent.end(agent.held[0], Reply(kind, "oh", started=False))
    await stage.pass_time(5)
    assert stage.answer("t1")["status"] == "succeeded"
    assert not stage.letters()


DELIVERED_AGAIN = Reply(OutcomeClass.UNAVAILABLE, "it was delivered again", started=False, crashed=True)
"""What an instance says that gets a dispatch which another may have had before: it does not run it."""


async def test_what_was_delivered_again_before_it_began_costs_nothing() -> None:
    stage, agent = await staged()
    stage.publish("t1")
    await stage.settle()
    agent.script = succeed
    await agent.end(agent.held[0], DELIVERED_AGAIN)
    await stage.settle()
    assert stage.answer("t1")["attempt"] == 1
    assert [seen.outcome for seen in stage.outcomes("t1")] == [OutcomeClass.RELEASED, OutcomeClass.SUCCEEDED]
    assert stage.r1.desk.fleet.agents["a"].breaker.streak == 0


@pytest.mark.parametrize("how", ["note", "stand-in", "store away", "session", "restart"])
async def test_what_was_delivered_again_and_may_have_begun_is_for_a_person(how: str) -> None:
    stage, agent = await staged()
    stage.publish("t1")
    await stage.settle()
    match how:
        case "note":
            await agent.say_started(agent.held[0])
        case "stand-in":  # a router that stood by for us had the note, and our queue came back to us after it
            await stage.store.record([Started(stage.dispatches("t1")[0].dispatch_id, stage.clock.utc_us())])
        case "store away":  # the same, and nobody can tell
            stage.store.away = True
        case "session":  # another router may have had the note meanwhile, and the store cannot say
            stage.r1.bus.end_session()
            stage.store.away = True
        case "restart":
            stage.kill(stage.r1)
            stage.store.away = True
            await stage.router()
    await agent.end(agent.held[0], DELIVERED_AGAIN)
    await stage.settle()
    stage.store.away = False
    await stage.come_to_rest()
    assert stage.letter().reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert agent.ran == {"t1": 1}


async def test_the_note_counts_even_if_the_outcome_denies_it() -> None:
    stage, agent = await staged()
    stage.publish("t1")
    await stage.settle()
    await agent.say_started(agent.held[0])
    await agent.end(agent.held[0], Reply(OutcomeClass.UNAVAILABLE, "oh", started=False))
    await stage.come_to_rest()
    assert stage.letter().reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert agent.ran == {"t1": 1}


async def test_an_agent_that_died_in_the_middle_leaves_it_to_a_person() -> None:
    stage, agent = await staged()
    await stage.agent("b", script=succeed, capability_side_effects=True, capability_cost=5)
    stage.publish("t1")
    await stage.settle()
    await agent.say_started(agent.held[0])
    await stage.pass_time(3)
    agent.die()
    await stage.pass_time(20)
    assert stage.letter().reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert [row.agent_id for row in stage.dispatches("t1")] == ["a"]


async def test_an_agent_that_died_before_it_began_loses_it_to_another() -> None:
    stage, agent = await staged()
    await agent.take_at_once(0)
    stage.publish("t1")
    await stage.settle()
    agent.die()
    await stage.agent("b", script=succeed, capability_side_effects=True, capability_cost=5)
    await stage.pass_time(20)
    assert stage.answer("t1")["agent"] == "b"


async def test_no_word_at_all_is_for_a_person() -> None:
    stage, agent = await staged()
    stage.publish("t1")
    await stage.settle()
    await stage.pass_time(120, step=3)
    assert stage.letter().reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert agent.ran == {"t1": 1}


async def test_what_started_in_an_earlier_life_of_the_router_is_remembered() -> None:
    stage, agent = await staged()
    stage.publish("t1")
    await stage.settle()
    await agent.say_started(agent.held[0])
    await stage.settle()
    stage.kill(stage.r1)
    await stage.router()
    agent.die()
    await stage.agent("b", script=succeed, capability_side_effects=True)
    await stage.come_to_rest()
    assert stage.end("t1").reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert agent.ran.total() == 1


async def test_a_success_that_turns_up_late_resolves_it() -> None:
    stage, agent = await staged()
    stage.publish("t1")
    await stage.settle()
    (work,) = agent.held
    await stage.pass_time(120, step=3)
    assert stage.end("t1").reason is DeadLetterReason.OUTCOME_UNKNOWN
    await agent.end(work)
    await stage.settle()
    known = (await stage.store.known_tasks(["t1"]))["t1"]
    assert known.state is TaskState.SUCCEEDED
    assert [answer["status"] for answer in stage.answers()] == ["dead_letter", "succeeded"]


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.STORED])
async def test_one_that_may_have_been_sent_is_sent_again_as_the_same_dispatch(fate: Fate) -> None:
    stage, agent = await staged()
    stage.r1.bus.fail_next(fate, to="agent.a")
    stage.publish("t1")
    await stage.settle()
    ids = {work.dispatch.dispatch_id for work in agent.held}
    ids |= {d.headers["x-reach-dispatch"] for d in stage.broker.queues[stage.names.agent("a")].contents()}
    assert ids == {stage.dispatches("t1")[0].dispatch_id}
    assert len(stage.dispatches("t1")) >= 1


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNROUTABLE])
async def test_one_that_was_not_sent_is_sent_later_as_another_dispatch(fate: Fate) -> None:
    stage, agent = await staged()
    agent.script = succeed
    stage.r1.bus.fail_next(fate, to="agent.a")
    stage.publish("t1")
    await stage.settle()
    first, second = stage.dispatches("t1")
    assert first.dispatch_id != second.dispatch_id
    assert (first.attempt, second.attempt) == (1, 1)
    assert not await stage.store.open_dispatches("r1")
    assert stage.answer("t1")["attempt"] == 1


async def test_a_router_that_died_between_recording_and_sending_leaves_it_to_a_person() -> None:
    stage, agent = await staged()
    stage.r1.bus.once(Moment.BEFORE_PUBLISH, die)
    stage.publish("t1")
    await stage.settle()
    await stage.come_to_rest()
    assert agent.ran.total() == 0
    assert stage.letter().reason is DeadLetterReason.OUTCOME_UNKNOWN


async def test_while_the_store_is_away_they_wait_and_others_go_on() -> None:
    stage, _ = await staged()
    other = await stage.agent("b", "text.other", slots=2)
    stage.store.away = True
    for number in range(3):
        stage.publish(f"s{number}")
        stage.publish(f"o{number}", "text.other")
    await stage.pass_time(10)
    assert other.ran == {"o0": 1, "o1": 1, "o2": 1}
    assert not stage.agents[0].held
    assert stage.r1.leases == 0
    tried = len(stage.dispatches("s0"))
    assert 1 <= tried <= 10 / RECORD_AGAIN_S + 1
    stage.agents[0].script = succeed
    stage.store.away = False
    await stage.pass_time(3)
    assert [stage.answer(f"s{number}")["status"] for number in range(3)] == ["succeeded"] * 3
    assert stage.agents[0].ran == {"s0": 1, "s1": 1, "s2": 1}
    assert not await stage.store.open_dispatches("r1")


async def test_the_tasks_own_word_is_enough() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t1", side_effects=True)
    await stage.come_to_rest()
    assert agent.ran == {"t1": 1}
    assert stage.end("t1").reason is DeadLetterReason.OUTCOME_UNKNOWN


async def test_a_bad_request_or_a_rejection_is_what_it_always_is() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.REJECTED), capability_side_effects=True)
    await stage.agent("b", script=succeed, capability_side_effects=True, capability_cost=5)
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["agent"] == "b"
