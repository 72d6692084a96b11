"""What is remembered within a step of time is what would be worked out anew: whatever happens between two plans."""

from collections.abc import Callable
from typing import Any

import pytest

from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import GATES, in_doubt, judge
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.presence import PresencePolicy, tick
from reach_worker.core.routing import Decision, plan
from reach_worker.core.scoreboard import MOST_POLICIES
from reach_worker.core.scoring import loads_of
from reach_worker.core.success import TrackRecord
from tests.core.agents import CAPABILITY, NOW, ask, beat, fleet_of, lease, manifest
from tests.core.fleets import Dice, rolled_ask, rolled_fleet, rolled_policy


def forget(fleet: Fleet) -> None:
    """Forget what was worked out of the offers; medians of the pool are of a step by their definition."""
    fleet.may.clear()
    fleet.boards.clear()


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


def withdrawn(fleet: Fleet, agent_id: str, _: Dice, __: float) -> None:
    if len(fleet.agents) > 1:
        fleet.withdraw(agent_id)


def another_record(fleet: Fleet, _: str, dice: Dice, now: float) -> None:
    """As many things happened to each agent, but others."""
    other = TrackRecord.empty()
    for key, track in fleet.record.tracks.items():
        for __ in range(track.version):
            other.touch(*key).ended(now, good=dice.roll() < 0.5, seconds=1.0)
    fleet.record = other


EVENTS: tuple[Event, ...] = (
    succeed, fail, elsewhere, reject, feedback, take, give_back, heartbeat, silence, session, rest,
    another_manifest, routers, held_back, closes, withdrawn, another_record,
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


@pytest.mark.parametrize("seed", range(10))
def test_a_decision_keeps_what_it_saw(seed: int) -> None:
    dice = Dice(f"kept-{seed}")
    fleet, policy = rolled_fleet(dice), rolled_policy(dice)
    made: list[tuple[Decision, dict[str, Any]]] = []
    for number in range(40):
        decision = plan(rolled_ask(dice, f"t{number}"), fleet, policy, NOW)
        made.append((decision, decision.as_dict()))
        dice.one_of(EVENTS)(fleet, dice.one_of(sorted(fleet.agents)), dice, NOW)
    assert all(decision.as_dict() == told for decision, told in made)


def test_of_a_capability_that_nobody_has_nothing_is_kept() -> None:
    """A caller may ask for any number of them."""
    dice = Dice("nobody")
    fleet, policy = rolled_fleet(dice), rolled_policy(dice)
    for number in range(3):
        plan(ask(f"t{number}", capability=f"unknown.{number}"), fleet, policy, NOW)
    plan(ask(), fleet, policy, NOW)
    assert set(fleet.boards) <= {CAPABILITY}
    for agent_id in sorted(fleet.agents):
        fleet.withdraw(agent_id)
    assert fleet.boards == {}


def test_boards_of_policies_that_were_replaced_do_not_pile_up() -> None:
    fleet = fleet_of([manifest("a")])
    policies = [RoutingPolicy(seed=str(number)) for number in range(3 * MOST_POLICIES)]
    for policy in policies:
        plan(ask(), fleet, policy, NOW)
    assert 0 < len(fleet.boards[CAPABILITY]) <= MOST_POLICIES + 1


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
