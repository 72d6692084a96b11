"""What is remembered within a step of time is what would be worked out anew: whatever happens between two plans."""

from collections.abc import Callable

import pytest

from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import GATES, in_doubt, judge
from reach_worker.core.presence import PresencePolicy, tick
from reach_worker.core.routing import plan
from reach_worker.core.scoring import loads_of
from tests.core.agents import CAPABILITY, NOW, beat, lease, manifest
from tests.core.fleets import Dice, rolled_ask, rolled_fleet, rolled_policy


def forget(fleet: Fleet) -> None:
    """Forget what was worked out of each offer; medians of the pool are of a step by their definition."""
    fleet.may.clear()
    for offers in fleet.by_capability.values():
        for offer in offers:
            offer.scores.clear()


Event = Callable[[Fleet, str, Dice, float], None]


def succeed(fleet: Fleet, agent_id: str, dice: Dice, now: float) -> None:
    fleet.record.touch(agent_id, CAPABILITY).ended(now, good=True, seconds=dice.roll() * 9)


def fail(fleet: Fleet, agent_id: str, dice: Dice, now: float) -> None:
    fleet.record.touch(agent_id, CAPABILITY).ended(now, good=False, seconds=None)
    fleet.agents[agent_id].breaker.failed("old", now, dice.roll(), since=now)


def elsewhere(fleet: Fleet, agent_id: str, dice: Dice, now: float) -> None:
    fleet.record.touch(agent_id, "elsewhere").ended(now, good=dice.roll() < 0.5, seconds=None)


def reject(fleet: Fleet, agent_id: str, _: Dice, now: float) -> None:
    fleet.record.touch(agent_id, CAPABILITY).rejected(now)


def feedback(fleet: Fleet, agent_id: str, dice: Dice, now: float) -> None:
    fleet.record.touch(agent_id, CAPABILITY).judged(now, dice.one_of(["good", "bad", "wrong-agent"]))


def take(fleet: Fleet, agent_id: str, dice: Dice, _: float) -> None:
    fleet.leases.add(lease(f"more-{dice.rolled}", agent_id))


def give_back(fleet: Fleet, agent_id: str, _: Dice, __: float) -> None:
    for dispatch_id in list(fleet.leases.by_agent.get(agent_id, ()))[:1]:
        fleet.leases.release(dispatch_id)


def heartbeat(fleet: Fleet, agent_id: str, dice: Dice, now: float) -> None:
    agent = fleet.agents[agent_id]
    for instance in agent.roster.instances.values():
        instance.heard(beat(agent_id, instance.instance_id, capacity=1 + dice.below(9)), now)
    fleet.smooth_load(agent)


def silence(fleet: Fleet, agent_id: str, _: Dice, now: float) -> None:
    for instance in fleet.agents[agent_id].roster.instances.values():
        instance.heard_at = now - 20
        tick(instance, now, PresencePolicy())


def session(fleet: Fleet, agent_id: str, _: Dice, __: float) -> None:
    fleet.had_session("s", agent_id)


def rest(fleet: Fleet, agent_id: str, dice: Dice, now: float) -> None:
    fleet.agents[agent_id].rests_until = now + dice.roll()


def another_manifest(fleet: Fleet, agent_id: str, dice: Dice, _: float) -> None:
    fleet.register(manifest(agent_id, offers={"cost": 1 + dice.below(5)}, rate=dice.one_of([None, 5.0])))


def routers(fleet: Fleet, _: str, dice: Dice, __: float) -> None:
    fleet.routers = 1 + dice.below(3)


def held_back(fleet: Fleet, agent_id: str, dice: Dice, _: float) -> None:
    fleet.agents[agent_id].adapted.limit = dice.one_of([None, 0.5, 3.0])


def closes(fleet: Fleet, agent_id: str, _: Dice, now: float) -> None:
    fleet.agents[agent_id].breaker.ramp.begin()
    fleet.agents[agent_id].breaker.succeeded("x", now, since=now)


EVENTS: tuple[Event, ...] = (
    succeed, fail, elsewhere, reject, feedback, take, give_back, heartbeat, silence, session, rest,
    another_manifest, routers, held_back, closes,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_from_memory_is_the_plan_worked_out_anew(seed: int) -> None:
    dice = Dice(f"memo-{seed}")
    fleet, policies, now = rolled_fleet(dice), [rolled_policy(dice), rolled_policy(dice)], NOW
    for number in range(40):
        agent_id = dice.one_of(sorted(fleet.agents))
        dice.one_of(EVENTS)(fleet, agent_id, dice, now)
        now += dice.one_of([0.0, 0.0, 0.01, 0.4, 7.0])
        asked, policy = rolled_ask(dice, f"t{number}"), dice.one_of(policies)
        remembered = plan(asked, fleet, policy, now)
        forget(fleet)
        anew = plan(asked, fleet, policy, now)
        assert remembered == anew
        assert remembered.as_dict() == anew.as_dict()


def test_a_gate_that_is_not_in_doubt_is_open() -> None:
    asked_of_each = set()
    for seed in range(40):
        dice = Dice(f"doubt-{seed}")
        fleet = rolled_fleet(dice)
        for number in range(40):
            dice.one_of(EVENTS)(fleet, dice.one_of(sorted(fleet.agents)), dice, NOW)
            asked = rolled_ask(dice, f"t{number}")
            offers = fleet.capable(asked.capability)
            loads = loads_of(offers, fleet)
            for offer, gates in zip(offers, in_doubt(asked, offers, loads, fleet, NOW), strict=True):
                assert judge(asked, offer, fleet, NOW, gates) == judge(asked, offer, fleet, NOW)
                asked_of_each.add(len(gates))
    assert asked_of_each == {0, 1, 2, len(GATES)}
