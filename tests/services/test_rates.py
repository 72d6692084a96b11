"""An agent's rate: a token for each dispatch, and the router wakes up for the next one."""

from itertools import pairwise

from reach_worker.core.slots import SlotPolicy
from reach_worker.ports import Dispatched
from tests.services.scripted import Reply, Script, manifest, succeed
from tests.services.stage import OnStage, Stage


def sent_at(stage: Stage) -> list[float]:
    rows: list[Dispatched] = stage.rows(Dispatched)
    return [round((row.at - rows[0].at) / 1e6, 2) for row in rows]


async def test_an_agent_gets_no_more_than_its_rate() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", slots=20, script=succeed, rate=2)
    for number in range(6):
        stage.publish(f"t{number}")

    await stage.pass_time(3, step=0.1)

    assert sent_at(stage) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert len(stage.answers()) == 6
    assert not stage.letters()


async def test_what_waits_for_a_rate_says_so() -> None:
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a", slots=20, script=succeed, rate=0.5)
    stage.publish("t0")
    stage.publish("t1")
    await stage.settle()

    (waiting,) = r1.desk.hands.waiting.values()
    assert waiting.reason == "a: at its rate, 0.5 tasks per second, next in 2 s"
    await stage.pass_time(2, step=0.1)
    assert stage.answer("t1")["status"] == "succeeded"


async def test_another_agent_takes_what_is_over_the_rate() -> None:
    stage = Stage()
    await stage.router()
    paced = await stage.agent("a", slots=20, script=succeed, rate=1, capability_cost=1)
    other = await stage.agent("b", slots=20, script=succeed, capability_cost=5)
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.settle()

    assert (paced.ran.total(), other.ran.total()) == (1, 4)


async def test_a_lane_is_emptied_at_the_rate() -> None:
    stage = Stage()
    await stage.router(manifests=[manifest("a", rate=2, slots=20)])
    for number in range(4):
        stage.publish(f"t{number}")
    await stage.pass_time(32)
    assert len(stage.lane()) == 4
    await stage.agent("a", slots=20, script=succeed, rate=2)

    await stage.pass_time(3, step=0.1)

    gaps = sent_at(stage)
    assert len(gaps) == 4
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(gaps))


async def test_what_never_went_out_does_not_count() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", slots=20, script=succeed, rate=0.01)
    queue = stage.names.agent("a")
    del stage.broker.queues[queue]
    agent.die()
    stage.publish("t0")
    await stage.settle()
    await agent.start()
    await stage.settle()

    assert agent.ran["t0"] == 1


def patience(router: OnStage) -> float:
    return router.router._patience()  # noqa: SLF001 - how long it sleeps is what this is about


async def test_the_router_wakes_up_for_the_next_token() -> None:
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a", slots=20, script=succeed, rate=20)
    assert patience(r1) == 0.5
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.settle()

    assert len(r1.desk.hands.waiting) == 3
    assert 0.01 <= patience(r1) <= 0.05


async def test_an_agent_that_becomes_slow_gets_less_and_is_let_go_again() -> None:
    """What it does not get goes to the other one; nothing is lost by it."""
    stage = Stage()
    r1 = await stage.router()
    took_ms = {"a": 500.0, "b": 500.0}

    def script_of(name: str) -> Script:
        return lambda _: Reply(duration_ms=took_ms[name])

    agents = {
        name: await stage.agent(name, slots=8, script=script_of(name), capability_latency_ms=1_000)
        for name in ("a", "b")
    }
    number = 0

    async def load(seconds: int) -> tuple[int, int]:
        nonlocal number
        before = [agent.ran.total() for agent in agents.values()]
        for _ in range(seconds):
            for _ in range(8):
                stage.publish(f"t{number}")
                number += 1
            await stage.pass_time(1, step=0.25)
        after = [agent.ran.total() for agent in agents.values()]
        return after[0] - before[0], after[1] - before[1]

    busy, _ = await load(30)
    assert busy > 200, "the first by name does it all"
    took_ms["a"] = 4_000.0
    await load(15)
    limit = r1.desk.fleet.agents["a"].adapted.limit
    assert limit is not None
    assert limit < 7
    held, other = await load(5)
    assert held < 8 * 5
    assert other > 0
    took_ms["a"] = 500.0
    await load(120)
    assert r1.desk.fleet.agents["a"].adapted.limit is None
    await stage.pass_time(30)
    assert len(stage.answers()) == number


async def test_adapting_can_be_switched_off() -> None:
    stage = Stage(slots=SlotPolicy(adaptive_rate=False))
    r1 = await stage.router()
    times = iter([*[500.0] * 100, *[60_000.0] * 100])
    await stage.agent(
        "a", slots=8, script=lambda _: Reply(duration_ms=next(times)), capability_latency_ms=1_000
    )
    for number in range(200):
        stage.publish(f"t{number}")
        await stage.pass_time(0.25, step=0.25)
    assert r1.desk.fleet.agents["a"].adapted.limit is None
