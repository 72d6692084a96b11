"""Who offers what, how much each may have, and how much of it is free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.fleet import MOST_GUESSES, MOST_SESSIONS, Fleet
from reach_worker.core.gates import judge
from reach_worker.core.slots import SlotPolicy
from reach_worker.core.success import TrackRecord
from tests.core.agents import (
    CAPABILITY,
    NOW,
    ask,
    fleet_of,
    lease,
    manifest,
    occupy,
    offer_of,
    open_breaker,
    there,
)


def offering(fleet: Fleet, capability: str = CAPABILITY) -> list[str]:
    return [offer.agent.agent_id for offer in fleet.capable(capability)]


def test_agents_are_found_by_what_they_offer_in_the_order_of_their_ids() -> None:
    fleet = fleet_of([manifest("c"), manifest("a"), manifest("b", capability="other")])

    assert offering(fleet) == ["a", "c"]
    assert offering(fleet, "other") == ["b"]
    assert offering(fleet, "unknown") == []


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_the_manifests_changes_nothing(ids: list[str]) -> None:
    assert offering(fleet_of([manifest(agent_id) for agent_id in ids])) == ["a", "b", "c", "d"]


def test_a_new_manifest_takes_the_place_of_the_old_one() -> None:
    fleet = fleet_of([manifest("a"), manifest("b")])
    agent = fleet.agents["a"]
    open_breaker(agent.breaker)

    known = fleet.register(manifest("a", capability="new"))

    assert known is agent
    assert known.breaker.openings == 1
    assert known.roster.slots() == 8
    assert offering(fleet) == ["b"]
    assert offering(fleet, "new") == ["a"]


def test_a_capability_that_nobody_offers_any_more_is_gone() -> None:
    fleet = fleet_of([manifest("a")])
    fleet.register(manifest("a", capability="new"))

    assert set(fleet.by_capability) == {"new"}


def test_the_same_manifest_again_changes_nothing() -> None:
    fleet = fleet_of([manifest("a"), manifest("b")])
    before = fleet.capable(CAPABILITY)
    fleet.register(manifest("a"))

    assert [(o.agent, o.capability, o.schema) for o in fleet.capable(CAPABILITY)] == [
        (o.agent, o.capability, o.schema) for o in before
    ]


def test_one_agent_that_declares_side_effects_is_enough() -> None:
    fleet = fleet_of([manifest("a"), manifest("b", offers={"side_effects": True}), manifest("c")])
    assert fleet.has_side_effects(CAPABILITY)
    assert not fleet.has_side_effects("unknown")

    fleet.register(manifest("b"))

    assert not fleet.has_side_effects(CAPABILITY)


def test_equal_schemas_are_known_as_equal() -> None:
    one = {"type": "object", "required": ["a"]}
    two = {"required": ["a"], "type": "object"}
    fleet = fleet_of(
        [manifest("a", offers={"input_schema": one}), manifest("b", offers={"input_schema": two})]
    )

    assert len({offer.schema for offer in fleet.capable(CAPABILITY)}) == 1


def test_what_was_probably_meant() -> None:
    fleet = fleet_of([manifest("a")])

    assert fleet.nearest("log.qurey") == fleet.nearest("log.qurey") == CAPABILITY
    assert fleet.nearest("zzz") is None
    fleet.register(manifest("b", capability="zzzz"))
    assert fleet.nearest("zzz") == "zzzz"


def test_guesses_are_not_kept_without_end() -> None:
    fleet = fleet_of([manifest("a")])
    for number in range(MOST_GUESSES + 10):
        fleet.nearest(f"x{number}")

    assert len(fleet.guesses) <= MOST_GUESSES


def taught(fleet: Fleet, agent_id: str, seconds: float) -> Fleet:
    fleet.record.touch(agent_id, CAPABILITY).ended(NOW, good=True, seconds=seconds)
    return fleet


def test_an_agent_may_have_its_slots_and_a_head_start() -> None:
    fleet = fleet_of([manifest("a")])
    agent = fleet.agents["a"]

    assert fleet.limit(agent, CAPABILITY) == 8
    assert fleet.limit(taught(fleet, "a", 0.05).agents["a"], CAPABILITY) == 16
    assert fleet.limit(agent, "never done") == 8
    assert fleet.limit(agent) == 8


def test_nothing_is_sent_ahead_while_a_capability_waits_that_has_no_head_start() -> None:
    both = [{"id": CAPABILITY}, {"id": "other"}]
    fleet = taught(fleet_of([manifest("a", capabilities=both), manifest("b")]), "a", 0.05)
    a = fleet.agents["a"]

    fleet.share_slots([CAPABILITY, "other"])
    assert fleet.limit(a, CAPABILITY) == fleet.limit(a, "other") == 8
    fleet.share_slots([CAPABILITY])
    assert (fleet.limit(a, CAPABILITY), fleet.limit(a, "other")) == (16, 8)
    fleet.share_slots([])
    assert fleet.limit(a, CAPABILITY) == 16


def test_slots_are_summed_over_the_instances() -> None:
    fleet = fleet_of([manifest("a")])
    there(fleet.agents["a"], instance_id="a-2", capacity=4)

    assert fleet.limit(fleet.agents["a"], CAPABILITY) == 12


@pytest.mark.parametrize(("routers", "limit"), [(1, 8), (2, 4), (3, 3), (8, 1), (20, 1)])
def test_routers_share_the_slots(routers: int, limit: int) -> None:
    fleet = fleet_of([manifest("a")])
    fleet.routers = routers

    assert fleet.limit(fleet.agents["a"], CAPABILITY) == limit


def test_no_agent_has_more_than_the_bound() -> None:
    fleet = fleet_of([manifest("a")], slots=SlotPolicy(per_agent=5))

    assert fleet.limit(taught(fleet, "a", 0.001).agents["a"], CAPABILITY) == 5


def test_an_agent_that_is_away_may_have_nothing() -> None:
    fleet = Fleet(fleet_of().breaker_policy, SlotPolicy())
    agent = fleet.register(manifest("a"))

    assert fleet.limit(taught(fleet, "a", 0.001).agents["a"], CAPABILITY) == 0
    assert agent.agent_id == "a"


def test_free_slots_are_those_that_are_not_taken() -> None:
    fleet = fleet_of([manifest("a"), manifest("b"), manifest("c", capability="other")])
    assert fleet.free_slots(CAPABILITY, NOW) == 16

    occupy(fleet, "a", 3)
    occupy(fleet, "c", 8)

    assert fleet.free_slots(CAPABILITY, NOW) == 13
    assert fleet.free_slots("other", NOW) == 0
    assert fleet.free_slots("unknown", NOW) == 0


def test_more_leases_than_slots_are_no_debt() -> None:
    fleet = fleet_of([manifest("a"), manifest("b")])
    occupy(fleet, "a", 20)

    assert fleet.free_slots(CAPABILITY, NOW) == 8


def test_who_rests_is_away_or_open_has_no_free_slots() -> None:
    fleet = fleet_of([manifest(agent_id) for agent_id in "abcd"])
    fleet.agents["a"].rests_until = NOW + 1
    fleet.agents["b"].roster.instances.clear()
    open_breaker(fleet.agents["c"].breaker)

    assert fleet.free_slots(CAPABILITY, NOW) == 8
    assert not fleet.admits(fleet.agents["c"], NOW)
    assert fleet.admits(fleet.agents["d"], NOW)


def test_a_breaker_that_waits_for_one_probe_has_one_free_slot() -> None:
    """Else fifty tasks would be taken from a lane for it, and forty-nine sent round again."""
    fleet = fleet_of([manifest("a")])
    breaker = fleet.agents["a"].breaker
    open_breaker(breaker)
    later = NOW + 30

    assert fleet.free_slots(CAPABILITY, later) == 1
    breaker.take_probe("probe", later)
    assert fleet.free_slots(CAPABILITY, later) == 0
    breaker.released("probe")
    occupy(fleet, "a", 8)
    assert fleet.free_slots(CAPABILITY, later) == 0


def test_the_bound_on_all_dispatches_counts_for_all() -> None:
    fleet = fleet_of([manifest("a"), manifest("b")], slots=SlotPolicy(in_flight=10))
    assert fleet.free_slots(CAPABILITY, NOW) == 10

    occupy(fleet, "a", 8)
    assert (fleet.free_slots(CAPABILITY, NOW), fleet.full()) == (2, False)

    occupy(fleet, "elsewhere", 2)
    assert (fleet.free_slots(CAPABILITY, NOW), fleet.full()) == (0, True)


def test_large_bodies_fill_it_too() -> None:
    fleet = fleet_of([manifest("a")], slots=SlotPolicy(in_flight_bytes=1024 * 1024))
    fleet.leases.add(lease("d1", "a", size=1024 * 1024 - 1))
    assert not fleet.full()

    fleet.leases.add(lease("d2", "a", size=1))

    assert fleet.full()
    assert fleet.free_slots(CAPABILITY, NOW) == 0


def test_a_record_from_the_store_takes_the_place_of_the_empty_one() -> None:
    fleet = fleet_of([manifest("a")])
    fleet.record = TrackRecord.empty()

    assert fleet.limit(fleet.agents["a"], CAPABILITY) == 8


@pytest.mark.parametrize(
    ("left", "free", "gates"), [(0.0, 8, []), (0.5, 0, ["rested"]), (1.5, 0, ["rested"])]
)
def test_a_rest_that_is_over_is_over(left: float, free: int, gates: list[str]) -> None:
    fleet = fleet_of([manifest("a")])
    fleet.agents["a"].rests_until = NOW + left

    assert fleet.free_slots(CAPABILITY, NOW) == free
    assert [verdict.gate for verdict in judge(ask(), offer_of(fleet, "a"), fleet, NOW)] == gates


def test_the_smoothed_load_follows_at_each_heartbeat() -> None:
    """0.7 new + 0.3 old: 0.7 · 4/8, then the same and 0.3 · 0.35, then nothing new."""
    fleet = fleet_of([manifest("a")])
    agent = fleet.agents["a"]
    occupy(fleet, "a", 4)
    seen = []
    for _ in range(2):
        fleet.smooth_load(agent)
        seen.append(agent.smoothed_load)
    for lease_id in list(fleet.leases.by_dispatch):
        fleet.leases.release(lease_id)
    fleet.smooth_load(agent)

    assert [*seen, agent.smoothed_load] == pytest.approx([0.35, 0.455, 0.1365])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12))
def test_the_smoothed_load_is_a_share(steps: list[tuple[int, int]]) -> None:
    """Also of an agent that is away, and of one that has more than its slots."""
    fleet = fleet_of([manifest("a")])
    agent = fleet.agents["a"]
    for held, capacity in steps:
        for lease_id in list(fleet.leases.by_dispatch):
            fleet.leases.release(lease_id)
        occupy(fleet, "a", held)
        there(agent, capacity=capacity)
        fleet.smooth_load(agent)
        assert 0.0 <= agent.smoothed_load <= 1.0


def test_a_session_is_remembered_with_its_last_agent() -> None:
    fleet = fleet_of()
    fleet.had_session("s", "a")
    fleet.had_session("s", "b")

    assert fleet.last_in_session("s") == "b"
    assert fleet.last_in_session("other") is None
    assert fleet.last_in_session(None) is None


def test_the_sessions_that_were_not_used_for_longest_are_forgotten() -> None:
    fleet = fleet_of()
    for number in range(MOST_SESSIONS):
        fleet.had_session(f"s{number}", "a")
    fleet.had_session("s0", "a")
    fleet.had_session("new", "a")

    assert len(fleet.sessions) == MOST_SESSIONS
    assert fleet.last_in_session("s0") == "a"
    assert fleet.last_in_session("s1") is None
