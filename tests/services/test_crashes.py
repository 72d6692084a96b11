"""Sessions end and routers die at every point there is: every task has exactly one end, and nothing is lost.

Each scenario is played once untouched, to count the moments at which the router talks to the broker, and then once for
each of them and each accident.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import AnswerLost
from reach_worker.testing import Fate, MemoryBus, Moment
from tests.services.scripted import Reply, always
from tests.services.stage import Stage, die, rules

HOLD_S = 4.0
Play = Callable[[Stage], Awaitable[None]]


def scene() -> Stage:
    return Stage(policies=rules(hold_s=HOLD_S), breaker=BreakerPolicy(streak=100, rate_floor=None))


async def success(stage: Stage) -> None:
    await stage.agent("a")
    stage.publish("t1")
    await stage.settle()


async def retried(stage: Stage) -> None:
    replies = [Reply(OutcomeClass.FAILED), Reply(OutcomeClass.RATE_LIMITED, retry_after_ms=2000)]
    await stage.agent("a", script=lambda _: replies.pop() if replies else Reply())
    stage.publish("t1")
    await stage.pass_time(5)


async def exhausted(stage: Stage) -> None:
    await stage.agent("a", script=always(OutcomeClass.REJECTED))
    await stage.agent("b", script=always(OutcomeClass.BAD_REQUEST), capability_cost=5)
    stage.publish("t1")
    await stage.settle()


async def refused(stage: Stage) -> None:
    await stage.agent("a")
    stage.broker.send_task(b"junk", message_id="t1", reply_to="caller")
    await stage.settle()


async def waited(stage: Stage) -> None:
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    stage.publish("t2")
    await stage.pass_time(HOLD_S + 1)
    agent.script = lambda _: Reply()
    for work in list(agent.held):
        await agent.end(work)
    await stage.pass_time(3)


async def side_effects(stage: Stage) -> None:
    await stage.agent("a", capability_side_effects=True)
    stage.publish("t1")
    await stage.settle()


async def side_effects_again(stage: Stage) -> None:
    replies = [
        Reply(OutcomeClass.FAILED, started=False),
        Reply(OutcomeClass.RATE_LIMITED, retry_after_ms=1000),
    ]
    await stage.agent(
        "a", script=lambda _: replies.pop() if replies else Reply(), capability_side_effects=True
    )
    stage.publish("t1")
    await stage.pass_time(5)


async def handed_on(stage: Stage) -> None:
    first = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    first.die()
    await stage.agent("b")
    await stage.pass_time(12)


PLAYS = [success, retried, exhausted, refused, waited, side_effects, side_effects_again, handed_on]
ACCIDENTS = ["session", "process"]


@dataclass
class Accident:
    """Something happens at moment number ``at`` of all moments at which a router's bus is used."""

    at: int
    kind: str
    count: int = 0
    happened: bool = False

    def watch(self, bus: MemoryBus) -> None:
        for moment in Moment:
            bus.once(moment, lambda moment=moment: self._reached(bus, moment))  # type: ignore[misc]

    def _reached(self, bus: MemoryBus, moment: Moment) -> None:
        self.count += 1
        if self.count == self.at:
            self.happened = True
            bus.end_session() if self.kind == "session" else die()
        bus.once(moment, lambda: self._reached(bus, moment))


async def played(play: Play, accident: Accident) -> Stage:
    stage = scene()
    r1 = await stage.router()
    accident.watch(r1.bus)
    await play(stage)
    await stage.come_to_rest()
    return stage


def moments(play: Play) -> int:
    accident = Accident(0, "none")
    asyncio.run(_counted(play, accident))
    return accident.count


async def _counted(play: Play, accident: Accident) -> None:
    stage = scene()
    r1 = await stage.router()
    accident.watch(r1.bus)
    await play(stage)


def check(stage: Stage, *task_ids: str, answered: bool = True) -> None:
    for task_id in task_ids:
        lives = [end.life for end in stage.ends(task_id)]
        assert lives == [0], f"{task_id} has {len(lives)} ends"
        state = stage.end(task_id).state
        told = {answer["status"] for answer in stage.answers() if answer["task_id"] == task_id}
        assert told == {state.value} or (not told and not answered and stage.rows(AnswerLost))
        letters = [letter for letter in stage.letters() if letter.task_id == task_id]
        assert bool(letters) is (state is TaskState.DEAD_LETTER)
    assert set(stage.ready()) <= {"caller", "dlq"}
    assert stage.unacknowledged() == 0
    assert [router.leases for router in stage.routers] == [0]


@pytest.mark.parametrize("kind", ACCIDENTS)
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_an_accident_at_any_moment(play: Play, kind: str) -> None:
    total = moments(play)
    assert total > 2
    for at in range(1, total + 1):
        accident = Accident(at, kind)
        stage = asyncio.run(played(play, accident))
        assert accident.happened
        try:
            check(stage, *(["t1", "t2"] if play is waited else ["t1"]))
        except AssertionError as error:
            raise AssertionError(f"moment {at} of {total}: {error}") from error


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.STORED, Fate.REFUSED, Fate.UNROUTABLE])
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_any_message_may_go_wrong(play: Play, fate: Fate) -> None:
    accident = Accident(0, "none")
    asyncio.run(_counted(play, accident))
    for place in range(accident.count):
        fates = [Fate.CONFIRMED] * place + [fate]
        stage = asyncio.run(_fated(play, fates))
        may_be_nobody = fate in (Fate.REFUSED, Fate.UNROUTABLE)
        try:
            check(stage, *(["t1", "t2"] if play is waited else ["t1"]), answered=not may_be_nobody)
        except AssertionError as error:
            raise AssertionError(f"message {place + 1}: {error}") from error


async def _fated(play: Play, fates: list[Fate]) -> Stage:
    stage = scene()
    r1 = await stage.router()
    r1.bus.fail_next(*fates)
    await play(stage)
    await stage.come_to_rest()
    return stage


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.STORED])
async def test_a_dispatch_that_may_have_been_sent_is_sent_again_as_the_same(fate: Fate) -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", slots=2, script=lambda _: None)
    r1.bus.fail_next(fate, to="agent.a")
    stage.publish("t1")
    await stage.settle()
    assert len(agent.held) == (2 if fate is Fate.STORED else 1)
    (row,) = stage.dispatches("t1")
    assert {work.dispatch.dispatch_id for work in agent.held} == {row.dispatch_id}
    for work in list(agent.held):
        await agent.end(work)
    await stage.settle()
    check(stage, "t1")
