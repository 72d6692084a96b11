"""Slots are leases that exist; nothing is counted up and down."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic import ValidationError

from reach_worker.core.slots import MOST_AHEAD, Leases, SlotPolicy, head_start, share
from tests.core.agents import lease

POLICY = SlotPolicy()


def test_a_slot_is_taken_while_its_lease_exists() -> None:
    leases = Leases()
    leases.add(lease("d1", "a", size=10))
    leases.add(lease("d2", "a", size=5))
    leases.add(lease("d3", "b", size=1))

    assert (len(leases), leases.held("a"), leases.held("b"), leases.held("c"), leases.size) == (
        3,
        2,
        1,
        0,
        16,
    )
    assert leases.release("d1") == lease("d1", "a", size=10)
    assert (len(leases), leases.held("a"), leases.size) == (2, 1, 6)


def test_giving_back_twice_is_harmless() -> None:
    leases = Leases()
    leases.add(lease("d1"))

    assert leases.release("d1") is not None
    assert leases.release("d1") is None
    assert leases.release("never") is None
    assert (len(leases), leases.held("a"), leases.size) == (0, 0, 0)


def test_one_dispatch_holds_one_slot() -> None:
    leases = Leases()
    leases.add(lease("d1", "a"))

    with pytest.raises(ValueError, match="dispatch d1 already holds a slot"):
        leases.add(lease("d1", "b"))
    assert (leases.held("a"), leases.held("b")) == (1, 0)


class AnyOrder(RuleBasedStateMachine):
    """Taken and given back in any order: the counts are those of the leases that exist."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.model: dict[str, tuple[str, int]] = {}

    @rule(dispatch=st.sampled_from("123456"), agent=st.sampled_from("abc"), size=st.integers(0, 100))
    def take(self, dispatch: str, agent: str, size: int) -> None:
        if dispatch in self.model:
            with pytest.raises(ValueError, match="already holds a slot"):
                self.leases.add(lease(dispatch, agent, size=size))
        else:
            self.leases.add(lease(dispatch, agent, size=size))
            self.model[dispatch] = (agent, size)

    @rule(dispatch=st.sampled_from("123456789"))
    def give_back(self, dispatch: str) -> None:
        known = self.model.pop(dispatch, None)
        given = self.leases.release(dispatch)
        assert (given is None) is (known is None)

    @invariant()
    def the_counts_are_those_of_the_leases(self) -> None:
        assert len(self.leases) == len(self.model)
        assert self.leases.size == sum(size for _, size in self.model.values())
        for agent in "abc":
            assert self.leases.held(agent) == sum(1 for other, _ in self.model.values() if other == agent)
        assert set(self.leases.by_agent) == {agent for agent, _ in self.model.values()}


TestAnyOrder = AnyOrder.TestCase


@pytest.mark.parametrize(
    ("running", "unknown_s", "longest_s"),
    [
        ((), 60.0, 0.0),
        (("d1",), 60.0, 8.0),
        (("d1", "d2"), 60.0, 300.0),
        # another router's, and one of before this router's start
        (("d1", "other"), 60.0, 60.0),
        (("d1", "recovered"), 60.0, 60.0),
        (("d2", "other"), 60.0, 300.0),
    ],
)
def test_the_longest_limit_of_what_runs(running: tuple[str, ...], unknown_s: float, longest_s: float) -> None:
    leases = Leases()
    for dispatch_id, timeout_s in (("d1", 8.0), ("d2", 300.0), ("recovered", 0.0)):
        leases.add(replace(lease(dispatch_id), timeout_s=timeout_s))

    assert leases.longest_s(running, unknown_s) == longest_s


@pytest.mark.parametrize(
    ("slots", "routers", "part"),
    [(8, 1, 8), (8, 2, 4), (8, 3, 3), (1, 4, 1), (0, 4, 0), (-1, 1, 0), (5, 0, 5), (10, 4, 3), (100, 7, 15)],
)
def test_each_router_has_its_share(slots: int, routers: int, part: int) -> None:
    assert share(slots, routers) == part


@given(st.integers(1, 10_000), st.integers(1, 50))
def test_the_shares_use_every_slot_and_little_more(slots: int, routers: int) -> None:
    assert slots <= share(slots, routers) * routers <= max(routers, slots + routers - 1)


@pytest.mark.parametrize(
    ("slots", "service_s", "ahead"),
    [
        # Little: slots / service time = tasks a second, times the 0.05 s that one travels
        (8, 0.1, 4),
        (8, 0.05, 8),
        (8, 0.4, 1),
        (8, 0.41, 0),
        (8, 10.0, 0),
        (1, 0.05, 1),
        # unknown, and never more than four for each slot
        (8, None, 0),
        (0, 0.05, 0),
        (-1, 0.05, 0),
        (2, 0.0001, 2 * MOST_AHEAD),
        (2, 0.0, 2 * MOST_AHEAD),
        (1000, 0.05, 80),
    ],
)
def test_what_is_sent_ahead_is_what_is_done_on_the_way(
    slots: int, service_s: float | None, ahead: int
) -> None:
    assert head_start(slots, service_s, POLICY) == ahead


@given(st.integers(0, 1000), st.floats(0, 100), st.floats(0, 5))
def test_a_head_start_is_small(slots: int, service_s: float, head_start_s: float) -> None:
    policy = SlotPolicy(head_start_s=head_start_s)

    assert 0 <= head_start(slots, service_s, policy) <= min(MOST_AHEAD * slots, policy.per_agent)


@pytest.mark.parametrize(
    "fields", [{"in_flight": 0}, {"per_agent": 0}, {"head_start_s": float("inf")}, {"other": 1}]
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SlotPolicy(**fields)


def test_how_much_is_under_way_unless_it_is_set() -> None:
    assert (POLICY.in_flight, POLICY.per_agent, POLICY.head_start_s) == (200, 80, 0.05)
    assert POLICY.in_flight_bytes == 268_435_456
