"""At most half of a capability's agents are open by rate, counted after opening; and what all open means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.breaker import BreakerPolicy, BreakerState
from reach_worker.core.fleet import Fleet
from reach_worker.core.open_share import all_open, room_by_rate
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.presence import PresenceState
from reach_worker.core.routing import Wait, plan
from tests.core.agents import NOW, ask, fleet_of, manifest, open_breaker

RATE_ONLY = BreakerPolicy(streak=1000)
NAMES = "abcdefghij"


def fleet(agents: int, policy: BreakerPolicy = RATE_ONLY) -> Fleet:
    return fleet_of([manifest(name) for name in NAMES[:agents]], breaker=policy)


def fail(fleet: Fleet, name: str, times: int = 20) -> bool:
    """The agent fails so often, as the router would count it; returns whether its breaker is not closed."""
    agent = fleet.agents[name]
    for number in range(times):
        room = room_by_rate(fleet, agent)
        agent.breaker.failed(f"{name}{number}", NOW, 0.5, since=NOW, room_by_rate=room)
    return agent.breaker.state is not BreakerState.CLOSED


@pytest.mark.parametrize(
    ("agents", "share", "open_"),
    [
        (1, 0.5, 1),
        (2, 0.5, 1),
        (3, 0.5, 1),
        (4, 0.5, 2),
        (5, 0.5, 2),
        (10, 0.5, 5),
        (4, 0.0, 1),
        (4, 0.75, 3),
        (4, 1.0, 4),
    ],
)
def test_so_many_open_by_rate(agents: int, share: float, open_: int) -> None:
    known = fleet(agents, BreakerPolicy(streak=1000, max_open_share=share))

    assert sum(fail(known, name) for name in NAMES[:agents]) == open_


def test_a_streak_is_not_capped_and_takes_no_place() -> None:
    known = fleet(4, BreakerPolicy(streak=5))

    assert all(fail(known, name) for name in "abcd")
    assert not any(agent.breaker.by_rate for agent in known.agents.values())


def test_those_open_by_a_streak_leave_room_for_the_rate() -> None:
    known = fleet(4)
    for name in "ab":
        known.agents[name].breaker.policy = BreakerPolicy(rate_floor=None)
        open_breaker(known.agents[name].breaker)

    assert [fail(known, name) for name in "cd"] == [True, True]


def test_one_that_is_held_back_opens_as_soon_as_there_is_room() -> None:
    known = fleet(2)
    fail(known, "a")
    held = known.agents["b"].breaker
    assert not fail(known, "b")
    assert held.held_back

    first = known.agents["a"].breaker
    first.admits(NOW + 30)
    assert not room_by_rate(known, known.agents["b"])
    first.take_probe("probe", NOW + 30)
    first.succeeded("probe", NOW + 31, since=NOW + 30)
    assert fail(known, "b", 1)
    assert (held.by_rate, held.held_back) == (True, False)


def test_it_is_held_back_no_longer_than_its_rate_is_too_low() -> None:
    known = fleet(2)
    fail(known, "a")
    fail(known, "b", 8)
    held = known.agents["b"].breaker
    held.succeeded("x", NOW, since=NOW)
    assert held.held_back
    for _ in range(20):
        held.succeeded("x", NOW, since=NOW)

    assert not held.held_back


def test_a_failed_probe_needs_no_room() -> None:
    known = fleet(2)
    fail(known, "a")
    breaker = known.agents["a"].breaker
    breaker.admits(NOW + 30)
    breaker.take_probe("probe", NOW + 30)

    assert breaker.failed("probe", NOW + 31, 0.5, since=NOW + 30, room_by_rate=False)
    assert breaker.by_rate


def test_those_that_are_away_do_not_count() -> None:
    """Two of four are dead: of the two that are left, one may be open."""
    known = fleet(4)
    fail(known, "c")
    for name in "cd":
        for instance in known.agents[name].roster.instances.values():
            instance.state = PresenceState.DEAD

    assert [fail(known, name) for name in "ab"] == [True, False]


def test_every_capability_of_the_agent_needs_room() -> None:
    """``both`` also does what only ``two`` does beside it, and ``two`` is open."""
    one = [manifest(name) for name in "abcd"]
    two = manifest("two", capability="text.echo")
    both = manifest("both", capability="text.echo")
    known = fleet_of([*one, two, both], breaker=RATE_ONLY)
    known.register(
        both.model_copy(
            update={"capabilities": (*both.capabilities, *one[0].capabilities)},
        )
    )

    assert room_by_rate(known, known.agents["both"])
    assert fail(known, "two")
    assert not room_by_rate(known, known.agents["both"])
    assert room_by_rate(known, known.agents["a"])


@given(st.integers(1, 10), st.floats(0, 1), st.lists(st.sampled_from(NAMES), max_size=60))
def test_no_order_of_failures_opens_more(agents: int, share: float, order: list[str]) -> None:
    known = fleet(agents, BreakerPolicy(streak=1000, max_open_share=share))
    for name in order:
        if name in known.agents:
            fail(known, name, 3)
    open_ = sum(agent.breaker.state is not BreakerState.CLOSED for agent in known.agents.values())

    assert open_ <= max(1, int(share * agents))


# ---------------------------------------------------------------- all open


def all_shut(waits: dict[str, float]) -> Fleet:
    known = fleet(len(waits))
    for name, seconds in waits.items():
        open_breaker(known.agents[name].breaker)
        known.agents[name].breaker.open_until = NOW + seconds
    return known


def test_with_all_open_the_wait_names_who_is_asked_first() -> None:
    waits = dict(zip(NAMES, (60.0, 50, 41, 70, 80, 90, 9.5, 100, 110, 120), strict=True))
    choice = plan(ask(), all_shut(waits), RoutingPolicy(), NOW).choice

    assert isinstance(choice, Wait)
    assert choice.reason.startswith(
        "all 10 breakers are open, g is asked first, in 10 s; a: breaker open for 60"
    )


def test_one_alone_says_it_itself() -> None:
    choice = plan(ask(), all_shut({"a": 30}), RoutingPolicy(), NOW).choice

    assert choice == Wait("a: breaker open for 30 s more")


def test_one_that_may_not_have_the_task_is_not_waited_for() -> None:
    known = all_shut({"a": 30, "b": 20, "c": 10})
    known.register(manifest("c", callable_by=["somebody"]))
    choice = plan(ask(), known, RoutingPolicy(), NOW).choice

    assert isinstance(choice, Wait)
    assert choice.reason.startswith("all 2 breakers are open, b is asked first, in 20 s; ")


def test_one_that_is_only_busy_is_another_wait() -> None:
    known = all_shut({"a": 30, "b": 20})
    known.agents["b"].breaker.open_until = NOW

    assert all_open(known, ["a", "b"], NOW) == ""
    assert all_open(known, [], NOW) == ""
