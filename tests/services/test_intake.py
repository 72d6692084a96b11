"""When a router takes tasks: not before it knows who is there, and no faster than its token bucket allows."""

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.fleet import Fleet
from reach_worker.core.names import Names
from reach_worker.core.presence import PresencePolicy
from reach_worker.core.slots import SlotPolicy
from reach_worker.core.tags import TagTable
from reach_worker.core.token_bucket import IntakePolicy
from reach_worker.services.fleet_watch import FleetWatch
from reach_worker.testing import SteppedClock
from tests.services.scripted import manifest, succeed
from tests.services.stage import Stage, rules

SLOW = rules(intake=IntakePolicy(rate=2.0, burst=5))


async def test_an_empty_bucket_stops_consuming() -> None:
    stage = Stage(policies=SLOW)
    await stage.router()
    agent = await stage.agent("a", slots=50)
    for number in range(40):
        stage.publish(f"t{number:02}")
    await stage.settle(rounds=20)
    assert agent.ran.total() == 5
    assert stage.ready()["intake"] >= 40 - 5 - SLOW.intake.held_at_most()
    assert await stage.r1.bus.depth(stage.names.intake) == (stage.ready()["intake"], 0)


async def test_the_rate_is_kept_and_the_order_too() -> None:
    stage = Stage(policies=SLOW)
    await stage.router()
    agent = await stage.agent("a", slots=50)
    for number in range(40):
        stage.publish(f"t{number:02}")
    await stage.settle()
    for second in range(1, 10):
        await stage.pass_time(1)
        assert agent.ran.total() == 5 + 2 * second
    assert list(agent.ran) == [f"t{number:02}" for number in range(23)]


async def test_what_it_holds_stays_bounded_however_often_it_stops_and_resumes() -> None:
    stage = Stage(policies=rules(intake=IntakePolicy(rate=10.0, burst=10)))
    await stage.router()
    await stage.agent("a", slots=50, script=lambda _: None)
    for number in range(500):
        stage.publish(f"t{number}")
    most = 0
    for _ in range(20):
        await stage.pass_time(0.5)
        waiting = len(stage.r1.desk.hands.waiting)
        most = max(most, stage.r1.bus.unacked - waiting)
    assert most <= 10


async def test_no_limit_means_as_fast_as_it_goes() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", slots=50)
    for number in range(500):
        stage.publish(f"t{number}")
    await stage.settle(rounds=30)
    assert agent.ran.total() == 500


async def test_a_router_takes_nothing_for_two_heartbeat_periods() -> None:
    stage = Stage()
    await stage.router(manifests=[manifest("away")], settled=False)
    agent = await stage.agent("a")
    stage.publish("t1")
    await stage.pass_time(5.5)
    assert stage.ready() == {"intake": 1}
    await stage.pass_time(1)
    assert agent.ran == {"t1": 1}


async def test_it_begins_soon_when_every_known_agent_has_answered() -> None:
    """Half a second later: by then the other routers know of it."""
    stage = Stage()
    known = manifest("a")
    agent = await stage.agent("a", script=succeed)
    await stage.router(manifests=[known], settled=False)
    stage.publish("t1")
    await stage.settle()
    assert not agent.ran
    await stage.pass_time(0.5)
    assert agent.ran == {"t1": 1}


def test_the_two_periods_count_from_the_first_session_not_from_the_start_of_the_process() -> None:
    clock = SteppedClock()
    fleet = Fleet(BreakerPolicy(), SlotPolicy())
    watch = FleetWatch(fleet, PresencePolicy(), Names("reach.v1"), clock, TagTable({}), "r1")
    watch.remember([manifest("away")])
    clock.advance(100)
    watch.session_began()
    assert not watch.settled()
    clock.advance(6)
    assert watch.settled()
    watch.session_began()
    assert watch.settled()


# ---- A router that knew nobody when it started


def agent_names(stage: Stage) -> list[str]:
    return [agent.id for agent in stage.agents]


async def test_with_an_empty_store_it_waits_until_no_agent_came_for_a_while() -> None:
    """Else the tasks of those that start a little later would be called unmatched."""
    stage = Stage(presence=PresencePolicy())
    router = await stage.router()
    for number in range(30):
        stage.publish(f"t{number}", f"text.{'abc'[number % 3]}")
    await stage.pass_time(60)
    assert stage.ready() == {"intake": 30}
    for name in "abc":
        await stage.agent(name, f"text.{name}", slots=10)
        assert router.router.watch.unready() == "it takes no tasks before it knows who is there"
        await stage.pass_time(5.5)
    assert (agent_names(stage), stage.ready()) == (["a", "b", "c"], {"intake": 30})
    await stage.pass_time(1)
    assert len(stage.answers()) == 30
    assert {answer["attempt"] for answer in stage.answers()} == {1}
    assert router.router.watch.unready() == ""


async def test_agents_that_come_without_end_hold_it_up_only_so_long() -> None:
    stage = Stage(presence=PresencePolicy())
    await stage.router()
    stage.publish("t1")
    for number in range(10):
        await stage.agent(f"a{number}")
        await stage.pass_time(4)
    assert stage.answer("t1")["status"] == "succeeded"


async def test_it_says_why_it_takes_nothing() -> None:
    stage = Stage()
    router = await stage.router()
    assert router.router.watch.unready() == "it knows no agent yet, so it takes no tasks"
    await stage.agent("a")
    assert router.router.watch.unready() == ""
    await router.bus.want("returns", wanted=False)
    assert router.router.watch.unready() == "it does not consume returns"
    await router.router.drain()
    assert router.router.watch.unready() == "it stops"


async def test_an_empty_bucket_is_no_reason_not_to_be_ready() -> None:
    stage = Stage(policies=SLOW)
    router = await stage.router()
    await stage.agent("a", slots=50)
    for number in range(40):
        stage.publish(f"t{number:02}")
    await stage.settle(rounds=20)
    assert not router.bus.consumes("intake")
    assert router.router.watch.unready() == ""
