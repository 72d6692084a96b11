"""A race: two agents, and the one that says something first has won, whatever it says."""

from dataclasses import replace

import pytest

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.duplicates import TaskState
from reach_worker.core.group import ROUND, Leg, round_from
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.ports import Decided
from tests.services.scripted import Reply, ScriptedAgent, hold, leg, succeed
from tests.services.stage import CALLER, Stage, rules
from tests.services.test_cancels import cancel, yes


async def start(stage: Stage, *names: str, obeys: bool = True) -> list[ScriptedAgent]:
    """A router and some agents that hold what they get, and a race on its way to them."""
    await stage.router()
    agents = [await stage.agent(name, script=hold) for name in names]
    for agent in agents:
        agent.obeys = obeys
    stage.publish("t", mode="race")
    await stage.settle()
    return agents


async def test_both_get_it_and_the_first_result_is_the_answer() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    assert {leg(a).task_id, leg(b).task_id} == {"t~0.1.a", "t~0.1.b"}
    assert leg(a).dispatch.envelope.flow_id == "t"

    await b.end(leg(b), Reply(result=b'{"from": "b"}'))
    await stage.pass_time(1)

    told = stage.answer("t")
    assert (told["status"], told["agent"], told["mode"], told["result"]) == (
        "succeeded",
        "b",
        "race",
        {"from": "b"},
    )
    assert a.held == []
    assert stage.end("t~0.1.a").state is TaskState.CANCELLED
    assert stage.end("t~0.1.a").error == "its race or fan-out goes on without it"
    await stage.come_to_rest()
    assert len(stage.ends("t")) == 1
    assert stage.r1.leases == 0


async def test_no_more_than_two_run_even_where_there_are_three() -> None:
    stage = Stage()
    agents = await start(stage, "a", "b", "c")
    assert [len(agent.held) for agent in agents] == [1, 1, 0]


async def test_the_first_chunk_wins_not_the_first_result() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b", obeys=False)
    await a.speak(leg(a))
    await stage.settle()
    assert a.may_go == [leg(a).dispatch.dispatch_id]
    assert leg(b).dispatch.dispatch_id in b.stopped

    await b.end(leg(b), Reply(result=b'{"from": "b"}'))
    await stage.settle()
    assert stage.ends("t") == []

    await a.end(leg(a), Reply(result=b'{"from": "a"}'))
    await stage.settle()
    assert stage.answer("t")["agent"] == "a"


async def test_the_answer_says_how_many_chunks_the_winner_has_said() -> None:
    stage = Stage()
    a, _ = await start(stage, "a", "b")
    await a.end(leg(a), Reply(chunks=3))
    await stage.settle()
    assert stage.answer("t")["chunks"] == 3


async def test_who_speaks_second_is_stopped_and_never_told_to_go() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b", obeys=False)
    work = leg(b)
    await a.speak(leg(a))
    await b.speak(work)
    await b.speak(work)
    await stage.settle()
    assert (len(a.may_go), b.may_go) == (1, [])
    assert work.dispatch.dispatch_id in b.stopped


@pytest.mark.parametrize("to_leader", [True, False])
async def test_a_leg_that_another_router_has_sent_wins_all_the_same(to_leader: bool) -> None:
    """Agents tell the router that leads the race; older ones the one that has sent the leg, which passes it on."""
    stage = Stage()
    await stage.two_routers()
    agents = [await stage.agent(name, script=hold) for name in ("a", "b")]
    for number in range(4):
        stage.publish(f"t{number}", mode="race")
    await stage.settle()
    held = [(agent, work) for agent in agents for work in agent.held]
    agent, work = next((a, w) for a, w in held if w.dispatch.owner != w.dispatch.envelope.group_owner)

    to = work.dispatch.envelope.group_owner if to_leader else work.dispatch.owner
    await agent.speak(work, to=stage.names.outcomes(to))
    await stage.settle()
    assert agent.may_go == [work.dispatch.dispatch_id]


async def test_an_older_agents_note_of_a_later_round_that_another_router_leads_is_passed_on() -> None:
    stage = Stage()
    await stage.two_routers()
    agents = [await stage.agent(name, script=hold, slots=8) for name in ("a", "b", "c")]
    for number in range(12):
        stage.publish(f"t{number}", mode="race")
    await stage.settle()
    led_by = {w.dispatch.envelope.group: w.dispatch.envelope.group_owner for a in agents for w in a.held}
    for agent in agents:
        for work in list(agent.held):
            await agent.end(work, Reply(OutcomeClass.FAILED, "round one"))
    await stage.pass_time(3, step=0.5)
    agent, work = next(
        (agent, work)
        for agent in agents
        for work in agent.held
        if work.dispatch.owner
        == led_by.get(work.dispatch.envelope.group)
        != work.dispatch.envelope.group_owner
    )
    await agent.speak(work, to=stage.names.outcomes(work.dispatch.owner))
    await stage.settle()
    assert work.dispatch.dispatch_id not in agent.stopped
    assert agent.may_go == [work.dispatch.dispatch_id]


async def test_an_error_that_comes_first_is_an_attempt_of_its_own_and_what_follows_is_in_the_open() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    await a.end(leg(a), Reply(OutcomeClass.FAILED, "the model broke"))
    await stage.settle()
    assert b.held == []
    assert stage.ends("t") == []

    await stage.pass_time(2, step=0.25)
    assert leg(b).task_id == "t~0.2.b"
    await b.end(leg(b), Reply(result=b'"second try"'))
    await stage.settle()

    told = stage.answer("t")
    assert (told["agent"], told["attempt"], told["result"]) == ("b", 2, "second try")
    assert [(one["agent"], one["outcome"]) for one in told["failed_attempts"]] == [("a", "failed")]
    assert len(stage.ends("t")) == 1
    (failed,) = stage.outcomes("t~0.1.a")
    assert (failed.outcome, failed.message) == (OutcomeClass.FAILED, "the model broke")


async def test_a_task_that_is_wrong_is_told_by_whoever_sees_it_first() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    await a.end(leg(a), Reply(OutcomeClass.BAD_REQUEST, "no such file"))
    await stage.pass_time(1)

    told = stage.answer("t")
    assert (told["status"], told["reason"]) == ("dead_letter", "bad_request")
    assert b.held == []
    letter = stage.letter()
    assert letter.envelope.task_id == "t"
    assert [attempt.agent_id for attempt in letter.envelope.attempts] == ["a"]


@pytest.mark.parametrize(
    "kind",
    [OutcomeClass.UNAVAILABLE, OutcomeClass.REJECTED, OutcomeClass.RATE_LIMITED, OutcomeClass.RELEASED],
)
async def test_an_agent_that_goes_without_a_word_leaves_the_race_to_the_other(kind: OutcomeClass) -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    await a.end(leg(a), Reply(kind))
    await stage.pass_time(1)
    assert stage.ends("t") == []
    await b.end(leg(b))
    await stage.settle()
    told = stage.answer("t")
    assert (told["agent"], told["attempt"]) == ("b", 1)


@pytest.mark.parametrize(
    "kind", [OutcomeClass.UNAVAILABLE, OutcomeClass.RATE_LIMITED, OutcomeClass.RELEASED, OutcomeClass.TIMEOUT]
)
async def test_when_both_go_the_task_is_tried_again(kind: OutcomeClass) -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    await a.end(leg(a), Reply(kind))
    await b.end(leg(b), Reply(kind))
    a.script = b.script = succeed
    await stage.come_to_rest()
    assert stage.answer("t")["status"] == "succeeded"
    assert stage.answer("t")["attempt"] == 2


async def test_when_the_winner_dies_after_its_first_word_the_task_is_tried_again() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    await a.speak(leg(a))
    await stage.settle()
    assert b.held == []
    a.die()
    await stage.pass_time(20)
    assert leg(b).task_id == "t~0.2.b"
    await b.end(leg(b), Reply(result=b'"from b"'))
    await stage.come_to_rest()
    told = stage.answer("t")
    assert (told["result"], told["attempt"]) == ("from b", 2)
    (failed,) = told["failed_attempts"]
    assert (failed["agent"], failed["outcome"]) == ("a", "released")
    assert "died while it ran" in failed["message"]


async def test_agents_that_hand_back_whatever_they_get_are_not_asked_for_ever() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(max_dispatches=5, cap_s=4)))
    a, b = await start(stage, "a", "b")
    a.script = b.script = lambda _: Reply(OutcomeClass.RELEASED, "not now", started=False)
    for agent in (a, b):
        await agent.end(leg(agent), Reply(OutcomeClass.RELEASED, "not now", started=False))
    await stage.come_to_rest()
    letter = stage.letter()
    assert letter.reason is DeadLetterReason.ATTEMPTS_EXHAUSTED
    assert letter.error == "5 attempts, the last: released: not now"
    assert len(stage.ends("t")) == 1


async def test_a_race_whose_legs_were_both_stopped_is_not_taken_back_by_that() -> None:
    """Two routers that each believed to lead it may have stopped one leg each."""
    stage = Stage()
    a, b = await start(stage, "a", "b")
    await a.end(leg(a), Reply(OutcomeClass.CANCELLED, "taken back while it ran"))
    await b.end(leg(b), Reply(OutcomeClass.CANCELLED, "taken back while it ran"))
    a.script = b.script = succeed
    await stage.come_to_rest()
    assert (stage.answer("t")["status"], stage.answer("t")["attempt"]) == ("succeeded", 2)
    assert len(stage.ends("t")) == 1


async def test_after_all_its_attempts_it_is_one_dead_letter() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    for agent in (a, b):
        agent.script = lambda _: Reply(OutcomeClass.FAILED, "no")
    await a.end(leg(a), Reply(OutcomeClass.FAILED, "no"))
    await stage.come_to_rest()
    letter = stage.letter()
    assert (letter.envelope.task_id, letter.reason) == ("t", DeadLetterReason.ATTEMPTS_EXHAUSTED)
    assert len(letter.envelope.attempts) == 4
    assert stage.answer("t")["status"] == "dead_letter"


async def test_the_loser_is_not_charged_however_it_stops_and_its_cost_is_booked() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b", obeys=False)
    await b.end(leg(b))
    await stage.settle()
    await a.end(leg(a), Reply(OutcomeClass.FAILED, "torn away", cost=0.5))
    await stage.settle()

    (seen,) = stage.outcomes("t~0.1.a")
    assert (seen.outcome, seen.cost) == (OutcomeClass.FAILED, 0.5)
    track = stage.r1.desk.fleet.record.of("a", "text.echo")
    assert track is None or track.slow.rate() is None
    assert stage.end("t~0.1.a").state is TaskState.CANCELLED
    assert stage.letters() == []


async def test_where_only_one_is_free_it_runs_alone() -> None:
    stage = Stage()
    await stage.router()
    a = await stage.agent("a")
    stage.publish("t", mode="race")
    await stage.settle()
    assert a.ran["t~0.1.a"] == 1
    assert stage.answer("t")["agent"] == "a"


async def test_where_nobody_is_free_it_waits_as_any_task_does() -> None:
    stage = Stage()
    await stage.router()
    a = await stage.agent("a", script=hold)
    stage.publish("first")
    await stage.settle()
    stage.publish("t", mode="race")
    await stage.settle()
    assert "t" in stage.r1.desk.hands.waiting
    await a.end(leg(a))
    a.script = succeed
    await stage.settle()
    assert stage.answer("t")["status"] == "succeeded"


async def test_nobody_may_have_it() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    stage.publish("t", "text.other", mode="race")
    await stage.settle()
    assert stage.answer("t")["status"] == "unmatched"


async def test_an_agent_that_dies_before_it_has_begun_leaves_the_race() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    a.die()
    b_leg = leg(b)
    await stage.pass_time(50)
    assert stage.ends("t") == []
    await b.end(b_leg)
    await stage.settle()
    assert stage.answer("t")["agent"] == "b"


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
@pytest.mark.parametrize("times", [1, 3])
async def test_where_all_die_before_they_have_begun_it_goes_on_with_whoever_comes(
    names: tuple[str, ...], times: int
) -> None:
    stage = Stage()
    agents = await start(stage, *names)
    for _ in range(times):
        for agent in agents:
            agent.die()
        await stage.pass_time(60)
        assert stage.ends("t") == []
        agents = [await stage.agent(name, script=hold) for name in names]
        await stage.pass_time(5)
    for agent in agents:
        for work in list(agent.held):
            await agent.end(work)
    await stage.come_to_rest()
    assert stage.answer("t")["status"] == "succeeded"
    assert len(stage.ends("t")) == 1
    assert stage.r1.leases == 0


async def test_a_race_that_is_taken_back_stops_both() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    assert await cancel(stage, "t") == yes("t", "under_way")
    await stage.pass_time(2)
    assert stage.end("t").state is TaskState.CANCELLED
    assert (a.held, b.held) == ([], [])
    await stage.come_to_rest()
    assert stage.answer("t")["status"] == "cancelled"


async def test_the_deadline_holds_for_the_legs() -> None:
    stage = Stage()
    await stage.router()
    a, b = await stage.agent("a", script=hold), await stage.agent("b", script=hold)
    stage.publish("t", mode="race", deadline_ms=3000)
    await stage.settle()
    assert leg(a).dispatch.timeout_ms <= 3000
    await stage.pass_time(4)
    for agent in (a, b):
        await agent.end(leg(agent), Reply(OutcomeClass.TIMEOUT))
    await stage.come_to_rest()
    assert stage.letter().reason is DeadLetterReason.EXPIRED


async def test_published_twice_it_is_run_once_and_both_are_answered() -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    stage.broker.declare_private("second")
    stage.publish("t", mode="race", reply_to="second", correlation_id="again")
    await stage.settle()
    assert (len(a.held), len(b.held)) == (1, 1)
    await a.end(leg(a))
    await stage.settle()
    assert stage.answer("t")["agent"] == "a"
    assert [each.correlation_id for each in stage.broker.messages("second")] == ["again"]


async def test_the_decision_says_who_ran() -> None:
    stage = Stage()
    await start(stage, "a", "b")
    decided = [row.decision for row in stage.rows(Decided) if row.task_id == "t"]
    assert [(one["mode"], one["legs"]) for one in decided] == [("race", ["a", "b"])]


# -- crashes


@pytest.mark.parametrize("spoken", [False, True])
async def test_a_router_that_dies_in_the_middle_is_followed_by_one_that_goes_on(spoken: bool) -> None:
    stage = Stage()
    a, b = await start(stage, "a", "b")
    if spoken:
        await a.speak(leg(a))
        await stage.settle()
    stage.kill(stage.r1)
    await a.end(leg(a), Reply(result=b'"from a"'))
    await stage.router("r1")
    await stage.pass_time(10)

    assert stage.answer("t")["result"] == "from a"
    assert b.held == []
    await stage.come_to_rest()
    assert len(stage.ends("t")) == 1
    assert (a.ran["t~0.1.a"], b.ran["t~0.1.b"]) == (1, 1)


async def test_another_router_takes_over_a_race_whose_router_is_gone() -> None:
    stage = Stage()
    first, _ = await stage.two_routers()
    a, b = await stage.agent("a", script=hold), await stage.agent("b", script=hold)
    a.obeys = b.obeys = True
    stage.publish("t", mode="race")
    await stage.settle()
    owner = stage.routers[0] if leg(a).dispatch.envelope.group_owner == "r1" else stage.routers[1]
    assert first in stage.routers
    stage.kill(owner)
    await stage.pass_time(20)
    await b.end(leg(b), Reply(result=b'"from b"'))
    await stage.pass_time(30)

    assert stage.answer("t")["result"] == "from b"
    await stage.come_to_rest()
    assert len(stage.ends("t")) == 1
    assert len(stage.answers()) == 1


@pytest.mark.parametrize("moment", range(1, 12))
async def test_a_session_that_ends_at_any_moment_runs_nothing_twice(moment: int) -> None:
    """The broker confirms, and the router's session ends before it has acknowledged what led to it."""
    stage = Stage()
    await stage.router()
    a, b = await stage.agent("a", script=hold), await stage.agent("b", script=hold)
    a.obeys = b.obeys = True
    stage.publish("t", mode="race")
    for at in range(12):
        if at == moment:
            stage.r1.bus.end_session()
        await stage.settle(rounds=1)
    for agent in (a, b):
        for work in list(agent.held):
            await agent.end(work, Reply())
    await stage.pass_time(20)
    await stage.come_to_rest()

    assert stage.answer("t")["status"] == "succeeded"
    assert len(stage.ends("t")) == 1
    assert max(a.ran.values()) == 1
    assert max(b.ran.values()) == 1


async def test_the_store_may_be_away() -> None:
    stage = Stage()
    await stage.router()
    a, b = await stage.agent("a", script=hold), await stage.agent("b", script=hold)
    stage.store.away = True
    stage.publish("t", mode="race")
    await stage.settle()
    await a.end(leg(a))
    await b.end(leg(b))
    await stage.pass_time(6)
    assert stage.answer("t")["status"] == "succeeded"
    stage.store.away = False
    await stage.come_to_rest()
    assert len(stage.ends("t")) == 1


@pytest.mark.parametrize("way", ["its message id", "its own field", "no task at all"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_a_stranger_cannot_be_there_first_with_the_id_of_a_leg(way: str, when: str) -> None:
    """Else the race would take the end of his task for that of the leg."""
    stage = Stage()
    await stage.router()
    a, b = await stage.agent("a", script=hold), await stage.agent("b", script=hold)
    await stage.agent("stranger", "other.echo", script=lambda _: Reply(result=b'"stolen"'))

    async def steal() -> None:
        if way == "its own field":
            stage.broker.send_task({"capability": "other.echo", "task_id": "t~0.1.a"}, reply_to=CALLER)
        else:
            unknown = {"nonsense": 1} if way == "no task at all" else {}
            stage.publish("t~0.1.a", "other.echo", **unknown)
        await stage.settle()

    if when == "before":
        await steal()
    stage.publish("t", mode="race")
    await stage.settle()
    if when == "meanwhile":
        await steal()

    assert (leg(a).task_id, leg(b).task_id) == ("t~0.1.a", "t~0.1.b")
    await a.end(leg(a), Reply(result=b'"mine"'))
    await stage.settle()
    assert stage.answer("t")["result"] == "mine"
    assert [told["reason"] for told in stage.answers() if told["task_id"] != "t"] == ["invalid"]
    assert stage.letter().envelope.task_id not in {"t", "t~0.1.a"}


def take_watch(stage: Stage) -> Delivery:
    """The one watch that is on its way."""
    rung = stage.names.retry(4000)
    (watch,) = stage.broker.messages(rung)
    stage.broker.queues[rung].ready.clear()
    return watch


async def test_a_watch_of_a_round_that_is_over_changes_nothing_in_the_next_one() -> None:
    """It came late, to a router that remembers nothing of that round."""
    stage = Stage()
    await stage.router()
    a, b = await stage.agent("a", script=hold), await stage.agent("b", script=hold)
    stage.publish("t", mode="race")
    await stage.settle()
    first = take_watch(stage)
    await a.end(leg(a), Reply(OutcomeClass.FAILED, "broken"))
    for work in list(b.held):
        await b.end(work, Reply(OutcomeClass.CANCELLED))
    await stage.pass_time(1.5)
    assert [work.task_id for work in (*a.held, *b.held)] == ["t~0.2.b"]
    stage.kill(stage.r1)
    await stage.router()
    await stage.pass_time(10)
    stage.broker.put_message(stage.names.returns, first.body, dict(first.headers))
    await stage.pass_time(3)

    assert stage.answers() == []
    await b.end(leg(b), Reply(result=b'"second"'))
    await stage.come_to_rest()
    assert [(one["attempt"], one["result"]) for one in stage.answers()] == [(2, "second")]


async def test_of_a_round_that_began_twice_one_goes_on_and_the_other_agents_are_stopped() -> None:
    """A router began it, died, and the next one began it again with other agents."""
    stage = Stage()
    a, b = await start(stage, "a", "b")
    c = await stage.agent("c", script=hold)
    c.obeys = True
    watch = take_watch(stage)
    of = round_from(watch.headers)
    assert of is not None
    other = replace(of, legs=(Leg("t~0.1.b", "b"), Leg("t~0.1.c", "c")))
    headers = {**leg(b).dispatch.envelope.headers(), "x-reach-task": "t~0.1.c", "x-reach-to-agent": "c"}
    stage.broker.put_message(stage.names.returns, watch.body, headers)
    await stage.settle()
    assert leg(c).task_id == "t~0.1.c"
    twice = {**watch.headers, ROUND: other.header()}
    stage.broker.put_message(stage.names.returns, watch.body, twice)
    await stage.pass_time(1)

    assert c.held == []
    assert (len(a.held), len(b.held)) == (1, 1)
    await a.end(leg(a), Reply(result=b'"from a"'))
    await stage.come_to_rest()
    assert [one["result"] for one in stage.answers()] == ["from a"]


async def test_a_leg_that_is_lost_with_its_queue_and_its_router_is_given_up_and_the_race_goes_on() -> None:
    """Its message is gone, and of its dispatch only the record is left: no word can come of it any more."""
    stage = Stage()
    (a,) = await start(stage, "a")
    stage.broker.delete_queue(stage.names.agent("a"))
    a.die()
    stage.kill(stage.r1)
    await stage.router("r1")
    await stage.agent("a", script=succeed)
    await stage.pass_time(300)

    told = stage.answer("t")
    assert (told["status"], told["attempt"]) == ("succeeded", 2)
    assert [(one["agent"], one["outcome"]) for one in told["failed_attempts"]] == [("a", "timeout")]
    assert stage.end("t~0.1.a").error.startswith("attempts_exhausted: no word from a for ")
    assert [one.outcome for one in stage.outcomes("t~0.1.a")] == [OutcomeClass.TIMEOUT]
    await stage.come_to_rest()
    assert len(stage.ends("t")) == 1


async def test_a_leg_that_only_takes_long_is_not_given_up() -> None:
    stage = Stage()
    (a,) = await start(stage, "a")
    stage.kill(stage.r1)
    await stage.router("r1")
    timeouts = stage.policies.timeouts
    await stage.pass_time(timeouts.pickup_s + timeouts.attempt_ms / 1000)
    assert stage.ends("t~0.1.a") == []
    await a.end(leg(a), Reply())
    await stage.pass_time(10)
    assert stage.answer("t")["attempt"] == 1
