"""Routers tell one another how agents do: one probe for all of them, and each knows what the others met."""

from collections import Counter

import orjson

from reach_worker.core.announcement import presence_key
from reach_worker.core.breaker import BreakerPolicy, BreakerState
from reach_worker.core.hearsay import HEARSAY, News, ProbeSent, Settled, hearsay_bodies, hearsay_key
from reach_worker.core.message import Message
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import BreakerMoved, OutcomeSeen
from tests.services.scripted import Reply, ScriptedAgent, always, succeed
from tests.services.stage import OnStage, Stage

ONE_FAILURE = BreakerPolicy(streak=1, open_s=30.0)


def breaker_state(router: OnStage, agent_id: str = "a") -> BreakerState:
    return router.desk.fleet.agents[agent_id].breaker.state


def told(router: OnStage) -> int:
    """How often the router told the others something."""
    return sum(key.startswith(f"{HEARSAY}.") for what, key in router.bus.journal if what == "publish")


async def idle(*routers: OnStage) -> None:
    """These routers take no new tasks, and no retries."""
    for router in routers:
        await router.bus.want("intake", wanted=False)
        await router.bus.want("returns", wanted=False)


async def test_failures_at_one_router_open_the_breaker_of_the_other() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=4, rate_floor=None))
    r1, r2 = await stage.two_routers()
    await stage.agent("a", slots=4, script=always(OutcomeClass.FAILED))
    await idle(r2)
    stage.publish("t1")
    await stage.pass_time(20)
    assert [breaker_state(router) for router in (r1, r2)] == [BreakerState.OPEN] * 2
    assert [row.router for row in stage.rows(BreakerMoved)] == ["r1"]
    assert {row.dispatch_id for row in stage.rows(OutcomeSeen)} == {
        row.dispatch_id for row in stage.dispatches("t1")
    }
    assert Counter(row.dispatch_id for row in stage.rows(OutcomeSeen)).most_common(1)[0][1] == 1


async def test_what_one_settles_is_in_the_others_statistics_once() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    await stage.agent("a", slots=4, script=succeed)
    for number in range(10):
        stage.publish(f"t{number}")
        await stage.pass_time(1)
    counts = [router.desk.fleet.record.touch("a", "text.echo").week.tries for router in (r1, r2)]
    assert counts[0] == counts[1]
    assert round(counts[0]) == 10
    services = [len(router.desk.fleet.record.touch("a", "text.echo").service) for router in (r1, r2)]
    assert services == [10, 10]
    assert {row.router for number in range(10) for row in stage.dispatches(f"t{number}")} == {"r1", "r2"}


async def test_of_two_routers_with_a_hundred_tasks_one_sends_one_probe() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=20, script=always(OutcomeClass.FAILED))
    stage.publish("first")
    await stage.settle()
    agent.script = lambda _: None
    for number in range(100):
        stage.publish(f"t{number}")
    await stage.pass_time(45)
    assert agent.ran.total() == 2
    assert (r1.leases + r2.leases, len(agent.held)) == (1, 1)
    assert [breaker_state(router) for router in (r1, r2)] == [BreakerState.HALF_OPEN] * 2
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.settle()
    assert [breaker_state(router) for router in (r1, r2)] == [BreakerState.CLOSED] * 2
    await stage.pass_time(10)
    assert stage.answer("t99")["status"] == "succeeded"


async def test_a_probe_that_fails_elsewhere_opens_here_again() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=4, script=always(OutcomeClass.FAILED))
    await idle(r2)
    stage.publish("t1")
    await stage.pass_time(34)
    assert agent.ran["t1"] == 2
    assert [router.desk.fleet.agents["a"].breaker.failed_probes for router in (r1, r2)] == [1, 1]


async def test_a_probe_of_a_router_that_dies_is_given_up_with_its_lease() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=1, open_s=30.0, probe_lease_s=60.0))
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=4, script=always(OutcomeClass.FAILED))
    await idle(r2)
    stage.publish("t1")
    await stage.settle()
    agent.script = lambda _: None
    await stage.pass_time(34)
    assert breaker_state(r2) is BreakerState.HALF_OPEN
    stage.kill(r1)
    stage.broker.delete_queue(stage.names.outcomes("r1"))
    await r2.bus.want("intake", wanted=True)
    stage.publish("t2")
    await stage.pass_time(40)
    assert not stage.dispatches("t2")
    await stage.pass_time(30)
    assert len(stage.dispatches("t2")) == 1


async def test_a_released_probe_is_free_for_the_other() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=4, script=always(OutcomeClass.FAILED))
    await idle(r2)
    stage.publish("t1")
    await stage.settle()
    agent.script = lambda _: None
    await stage.pass_time(34)
    await agent.end(agent.held[0], Reply(OutcomeClass.CANCELLED, started=False))
    await stage.settle()
    probes = [router.desk.fleet.agents["a"].breaker.probe for router in (r1, r2)]
    assert probes == [None, None]


async def test_a_rate_limit_is_kept_by_all() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    await stage.agent("a", script=always(OutcomeClass.RATE_LIMITED, retry_after_ms=60_000))
    await idle(r2)
    stage.publish("t1")
    await stage.settle()
    now = stage.clock.monotonic()
    assert [router.desk.fleet.agents["a"].rests_until - now for router in (r1, r2)] == [60.0, 60.0]


async def test_one_router_alone_tells_nobody() -> None:
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a", slots=4)
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.settle()
    assert told(r1) == 0
    assert r1.desk.to_tell == []


async def test_a_turn_tells_everything_in_one_message() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=40, script=lambda _: None)
    await idle(r2)
    for number in range(20):
        stage.publish(f"t{number}")
    await stage.pass_time(1)
    before = told(r1)
    for work in list(agent.held):
        await agent.end(work)
    await r1.turn()
    assert told(r1) == before + 1


async def say(stage: Stage, agent: ScriptedAgent, key: str, body: bytes) -> None:
    message = Message(key, body, {}, stage.names.events, persistent=False, mandatory=False)
    await agent.bus.publish([message])
    await stage.settle()


async def test_hearing_it_twice_or_from_oneself_counts_once_or_not() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=2, rate_floor=None))
    r1, _ = await stage.two_routers()
    agent = await stage.agent("a", slots=4)
    failure = Settled("d1", "a", "text.echo", OutcomeClass.FAILED, 0.0)
    for router_id in ("r9", "r9", "r1"):
        (body,) = hearsay_bodies(router_id, [failure])
        await say(stage, agent, hearsay_key(router_id), body)
    assert breaker_state(r1) is BreakerState.CLOSED
    assert r1.desk.fleet.agents["a"].breaker.streak == 1
    (late,) = hearsay_bodies("r9", [ProbeSent("d1", "a")])
    await say(stage, agent, hearsay_key("r9"), late)
    assert r1.desk.fleet.agents["a"].breaker.probe is None


async def test_junk_is_harmless() -> None:
    stage = Stage()
    r1, _ = await stage.two_routers()
    agent = await stage.agent("a", slots=4)
    news: list[News] = [
        Settled("x1", "nobody", "text.echo", OutcomeClass.FAILED, 0.0),
        Settled("x2", "a", "never.heard.of", OutcomeClass.FAILED, 1e9),
        ProbeSent("x3", "nobody"),
        ProbeSent("x4", "a"),
    ]
    bodies = [
        b"",
        b"[]",
        b"\xff",
        orjson.dumps({"router": "r9", "news": [1, {}, None]}),
        *hearsay_bodies("r9", news),
    ]
    for body in bodies:
        await say(stage, agent, hearsay_key("r9"), body)
        await say(stage, agent, presence_key("a"), body)
    assert set(r1.desk.fleet.record.tracks) <= {("a", "text.echo")}
    assert not stage.rows(OutcomeSeen)
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"
