"""Two copies of one task, at one router or at two: of the fork one branch goes on, and never none."""

from itertools import product

import pytest

from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import Dispatched, Unsent
from tests.services.scripted import Reply, Work, hand_on, succeed
from tests.services.stage import OnStage, Stage

HEADERS = {"x-reach-task": "t1", "x-reach-first-seen": 1, "x-reach-capability": "text.echo"}
BODY = b'{"capability": "text.echo", "payload": {}}'


async def routers(stage: Stage, count: int) -> list[OnStage]:
    found = [await stage.router(f"r{number}") for number in range(count)]
    await stage.pass_time(4)
    return found


def copies(stage: Stage, count: int, **headers: object) -> None:
    for _ in range(count):
        stage.broker.put_message(stage.names.returns, BODY, {**HEADERS, **headers})


@pytest.mark.parametrize(("count", "failures"), list(product([1, 2, 3], [0, 1, 2])))
async def test_copies_that_are_sent_by_several_end_once(count: int, failures: int) -> None:
    """None of them is recorded when the others begin; each fails some times first."""
    stage = Stage()
    await routers(stage, count)
    failed: dict[str, int] = {}

    def script(work: Work) -> Reply:
        failed[work.dispatch.owner] = failed.get(work.dispatch.owner, 0) + 1
        return Reply(OutcomeClass.FAILED) if failed[work.dispatch.owner] <= failures else Reply()

    await stage.agent("a", slots=8, script=script)
    copies(stage, 3)
    await stage.pass_time(60)
    assert len(stage.ends("t1")) == 1
    assert not set(stage.ready()) - {"caller", "dlq"}, "nothing is left on the way"
    assert stage.unacknowledged() == 0


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_of_copies_with_side_effects_one_is_sent(count: int) -> None:
    stage = Stage()
    await routers(stage, count)
    agent = await stage.agent("a", slots=8, script=succeed, capability_side_effects=True)
    copies(stage, 4, **{"x-reach-side-effects": 1})
    await stage.pass_time(60)
    assert agent.ran["t1"] == 1
    assert len(stage.ends("t1")) == 1


async def test_what_was_recorded_and_never_sent_stands_in_nobodys_way() -> None:
    """The store takes the record, the broker does not take the dispatch: the next one is the first."""
    stage = Stage()
    (r0,) = await routers(stage, 1)
    agent = await stage.agent("a", slots=8, script=succeed, capability_side_effects=True)
    del stage.broker.queues[stage.names.agent("a")]
    agent.die()
    copies(stage, 1, **{"x-reach-side-effects": 1})
    await stage.settle()
    await agent.start()
    await stage.pass_time(10)
    assert agent.ran["t1"] == 1
    assert stage.end("t1").state == "succeeded"
    never = {row.dispatch_id for row in stage.rows(Unsent)}
    assert never < {row.dispatch_id for row in stage.rows(Dispatched)}
    assert r0.leases == 0


@pytest.mark.parametrize(("count", "away"), list(product([1, 2, 3], [False, True])))
async def test_of_copies_that_are_handed_on_to_side_effects_one_goes_on(count: int, away: bool) -> None:
    """What has no side effects may fork while the store is away; what follows, and has them, does not."""
    stage = Stage()
    await routers(stage, count)
    first = await stage.agent("a", slots=8, script=lambda _: None)
    pay = await stage.agent("b", "text.pay", slots=8, capability_side_effects=True)
    stage.store.away = away
    copies(stage, 3)
    await stage.settle()
    for work in list(first.held):
        await first.end(work, hand_on(capability="text.pay"))
    await stage.settle()
    stage.store.away = False
    await stage.pass_time(60)
    assert pay.ran["t1"] == 1
    assert len(stage.ends("t1")) == 1
    assert not set(stage.ready()) - {"caller", "dlq"}, "nothing is left on the way"
    assert stage.unacknowledged() == 0
