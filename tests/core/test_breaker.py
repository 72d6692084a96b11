"""The breaker: its table of transitions, one probe at a time, and what moves nothing."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import ValidationError

from reach_worker.core.breaker import (
    DECLARED_BREAKER,
    Admits,
    Breaker,
    BreakerPolicy,
    BreakerState,
    Refuses,
)
from tests.core.agents import open_breaker

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
POLICY = BreakerPolicy()
STREAK_ONLY = BreakerPolicy(rate_floor=None)
T0 = 1000.0
"""When the breakers below open, or begin."""


def closed() -> Breaker:
    return Breaker(STREAK_ONLY)


def opened() -> Breaker:
    breaker = closed()
    open_breaker(breaker, T0)
    return breaker


def half_open() -> Breaker:
    breaker = opened()
    breaker.admits(T0 + 30)
    return breaker


def probing() -> Breaker:
    breaker = half_open()
    breaker.take_probe("probe", T0 + 30)
    return breaker


def fail(breaker: Breaker, dispatch_id: str = "x", now: float = T0 + 31, draw: float = 0.5) -> bool:
    return breaker.failed(dispatch_id, now, draw, since=now)


def succeed(breaker: Breaker, dispatch_id: str = "x", now: float = T0 + 31) -> bool:
    return breaker.succeeded(dispatch_id, now, since=now)


@pytest.mark.parametrize(
    ("start", "event", "state"),
    [
        (closed, lambda b: b.admits(T0), CLOSED),
        (closed, fail, CLOSED),
        (closed, succeed, CLOSED),
        (closed, lambda b: b.released("x"), CLOSED),
        (closed, lambda b: [fail(b) for _ in range(4)], CLOSED),
        (closed, lambda b: [fail(b) for _ in range(5)], OPEN),
        (opened, lambda b: b.admits(T0 + 29.9), OPEN),
        (opened, lambda b: b.admits(T0 + 30), HALF_OPEN),
        (opened, fail, OPEN),
        (opened, succeed, OPEN),
        (opened, lambda b: b.released("x"), OPEN),
        (half_open, lambda b: b.admits(T0 + 31), HALF_OPEN),
        (half_open, fail, HALF_OPEN),
        (half_open, succeed, HALF_OPEN),
        (half_open, lambda b: b.released("x"), HALF_OPEN),
        (probing, lambda b: b.admits(T0 + 31), HALF_OPEN),
        (probing, fail, HALF_OPEN),
        (probing, succeed, HALF_OPEN),
        (probing, lambda b: fail(b, "probe"), OPEN),
        (probing, lambda b: succeed(b, "probe"), CLOSED),
        (probing, lambda b: b.released("probe"), HALF_OPEN),
        (probing, lambda b: b.admits(T0 + 30 + 120), HALF_OPEN),
        (closed, lambda b: b.sent("x", T0), CLOSED),
        (closed, lambda b: b.sent_elsewhere("other", T0), CLOSED),
        (closed, lambda b: b.came_back(), CLOSED),
        (opened, lambda b: b.sent("x", T0 + 29.9), OPEN),
        (opened, lambda b: b.sent("x", T0 + 30), HALF_OPEN),
        (opened, lambda b: b.sent_elsewhere("other", T0 + 1), HALF_OPEN),
        (opened, lambda b: [b.sent_elsewhere("other", T0 + 1), succeed(b, "other")], CLOSED),
        (opened, lambda b: [b.sent_elsewhere("other", T0 + 1), fail(b, "other")], OPEN),
        (opened, lambda b: b.came_back(), OPEN),
        (half_open, lambda b: b.sent_elsewhere("other", T0 + 31), HALF_OPEN),
        (half_open, lambda b: b.came_back(), HALF_OPEN),
        (probing, lambda b: [b.sent_elsewhere("other", T0 + 31), succeed(b, "other")], HALF_OPEN),
        (probing, lambda b: [b.sent_elsewhere("other", T0 + 31), succeed(b, "probe")], CLOSED),
    ],
)
def test_what_moves_it_and_what_does_not(
    start: Callable[[], Breaker], event: Callable[[Breaker], object], state: BreakerState
) -> None:
    breaker = start()
    event(breaker)

    assert breaker.state is state


@pytest.mark.parametrize(
    ("start", "now", "answer"),
    [
        (closed, T0, Admits(probe=False)),
        (opened, T0, Refuses(30.0, "breaker open for 30 s more")),
        (opened, T0 + 29.5, Refuses(0.5, "breaker open for 1 s more")),
        (opened, T0 + 30, Admits(probe=True)),
        (half_open, T0 + 500, Admits(probe=True)),
        (probing, T0 + 31, Refuses(119.0, "breaker half-open, its one probe is under way")),
        (probing, T0 + 150, Admits(probe=True)),
    ],
)
def test_whom_it_lets_through(start: Callable[[], Breaker], now: float, answer: Admits | Refuses) -> None:
    assert start().admits(now) == answer


def test_of_a_hundred_asks_as_the_cool_down_ends_one_goes() -> None:
    breaker = opened()
    went = []
    for task in range(100):
        if isinstance(breaker.admits(T0 + 30), Admits):
            breaker.take_probe(f"d{task}", T0 + 30)
            went.append(task)

    assert went == [0]


@pytest.mark.parametrize("start", [closed, opened, probing])
def test_a_probe_that_was_not_offered_cannot_be_taken(start: Callable[[], Breaker]) -> None:
    breaker = start()
    before = (breaker.state, breaker.probe)

    with pytest.raises(ValueError, match="no probe to take"):
        breaker.take_probe("other", T0 + 31)
    assert (breaker.state, breaker.probe) == before


def test_a_probe_that_is_never_heard_of_is_given_to_another() -> None:
    breaker = probing()

    assert isinstance(breaker.admits(T0 + 30 + 119.9), Refuses)
    assert breaker.admits(T0 + 30 + 120) == Admits(probe=True)
    breaker.take_probe("second", T0 + 150)
    assert not fail(breaker, "probe", T0 + 151)
    assert not succeed(breaker, "probe", T0 + 151)
    assert breaker.state is HALF_OPEN
    assert succeed(breaker, "second", T0 + 152)


def test_a_late_probe_counts_while_no_other_was_sent() -> None:
    assert succeed(probing(), "probe", T0 + 30 + 500)
    assert fail(probing(), "probe", T0 + 30 + 500)


def test_a_released_probe_is_free_at_once() -> None:
    breaker = probing()
    breaker.released("other")
    assert isinstance(breaker.admits(T0 + 31), Refuses)

    breaker.released("probe")

    assert breaker.admits(T0 + 31) == Admits(probe=True)
    breaker.take_probe("second", T0 + 31)
    assert not fail(breaker, "probe")
    assert breaker.openings == 1


def test_success_closes_and_forgets() -> None:
    breaker = probing()
    assert succeed(breaker, "probe", T0 + 31)

    assert (breaker.state, breaker.streak, breaker.failed_probes, breaker.probe) == (CLOSED, 0, 0, None)
    assert breaker.recent.rate() is None
    assert not any(fail(breaker, now=T0 + 40) for _ in range(4))
    assert fail(breaker, now=T0 + 40)
    assert breaker.open_until == T0 + 70


def test_a_success_ends_the_streak() -> None:
    breaker = closed()
    for _ in range(20):
        assert not any(fail(breaker) for _ in range(4))
        assert not succeed(breaker)

    assert breaker.state is CLOSED


def test_results_of_the_bad_time_do_not_open_it_again() -> None:
    """Ten tasks were under way when it opened. They time out after the probe has closed it."""
    breaker = probing()
    succeed(breaker, "probe", T0 + 31)

    assert not any(breaker.failed(f"old{n}", T0 + 60, 0.5, since=T0 - 1) for n in range(10))
    assert not breaker.succeeded("old", T0 + 60, since=T0 + 30)
    assert (breaker.state, breaker.streak, breaker.recent.rate()) == (CLOSED, 0, None)
    assert not breaker.failed("new", T0 + 60, 0.5, since=T0 + 31)
    assert breaker.streak == 1


@pytest.mark.parametrize(
    ("failed_probes", "draw", "cooldown"),
    [
        (0, 0.0, 30.0),
        (0, 0.9, 30.0),
        (1, 0.0, 30.0),
        (1, 0.5, 45.0),
        (1, 1.0, 60.0),
        (2, 0.0, 60.0),
        (2, 1.0, 120.0),
        (3, 1.0, 240.0),
        (4, 0.0, 150.0),
        (4, 1.0, 300.0),
        (1000, 1.0, 300.0),
    ],
)
def test_the_cool_down_doubles_with_equal_jitter(failed_probes: int, draw: float, cooldown: float) -> None:
    breaker = Breaker(STREAK_ONLY)
    open_breaker(breaker, 0.0)
    now = 0.0
    for _ in range(min(failed_probes, 70)):
        now = breaker.open_until
        breaker.admits(now)
        breaker.take_probe("probe", now)
        assert fail(breaker, "probe", now, draw)

    assert breaker.open_until - now == pytest.approx(cooldown)


@given(st.integers(0, 20), st.floats(0, 1, exclude_max=True))
def test_no_cool_down_leaves_its_bounds(failed_probes: int, draw: float) -> None:
    breaker, now = Breaker(STREAK_ONLY), 0.0
    open_breaker(breaker, now)
    for _ in range(failed_probes):
        now = breaker.open_until
        breaker.admits(now)
        breaker.take_probe("probe", now)
        fail(breaker, "probe", now, draw)
    bound = min(300.0, 30.0 * 2**failed_probes)

    assert (bound if failed_probes == 0 else bound / 2) <= breaker.open_until - now + 1e-9
    assert breaker.open_until - now <= bound + 1e-9


def test_the_declared_preset_keeps_its_own_numbers() -> None:
    breaker, now = Breaker(DECLARED_BREAKER), 0.0
    assert [fail(breaker, now=0.0) for _ in range(3)] == [False, False, True]
    for _ in range(5):
        assert breaker.open_until - now == 60.0
        now = breaker.open_until
        breaker.admits(now)
        breaker.take_probe("probe", now)
        fail(breaker, "probe", now, draw=0.1)

    assert DECLARED_BREAKER.rate_floor is None


def answers(breaker: Breaker, pattern: str) -> list[bool]:
    """``+`` succeeds, ``-`` fails, all at once."""
    return [succeed(breaker, now=T0) if sign == "+" else fail(breaker, now=T0) for sign in pattern]


@pytest.mark.parametrize(
    ("pattern", "opens"),
    [
        # one of one is no sample
        ("-", False),
        # seven samples, all but two bad, no five in a row
        ("-+---+-", False),
        # eight: p = 2/8 = 0.25, and 0.25 + √(0.25/8) = 0.43 < 0.6
        ("-+---+--", True),
        # p = 3/8 = 0.375, and 0.375 + 0.177 = 0.552 < 0.6
        ("+-+--+--", True),
        # p = 4/8 = 0.5, and 0.5 + 0.177 = 0.677: not clearly below
        ("+-+-+-+-", False),
        # half bad, in sixteen: 0.5 + 0.125 = 0.625; in twenty-eight: 0.5 + 0.094 = 0.594
        ("+-" * 8, False),
        ("+-" * 14, True),
        # right four times in five: never
        ("+++-+" * 40, False),
    ],
)
def test_it_opens_by_a_rate_that_is_clearly_too_low(pattern: str, opens: bool) -> None:
    breaker = Breaker(POLICY)

    assert any(answers(breaker, pattern)) is opens


def test_the_minimum_sample_is_of_recent_attempts() -> None:
    """Seven a minute ago weigh three and a half: with one more they are no eight."""
    breaker = Breaker(BreakerPolicy(streak=1000))
    for _ in range(7):
        fail(breaker, now=T0)

    assert not fail(breaker, now=T0 + 60)
    assert not any(fail(breaker, now=T0 + 60) for _ in range(3))
    assert fail(breaker, now=T0 + 60)


def test_without_a_floor_only_the_streak_opens_it() -> None:
    assert not any(answers(closed(), "----+" * 100))


def test_below_the_floor_but_by_a_success_it_stays_closed() -> None:
    """Only a failure opens: what just worked is not taken away."""
    breaker = Breaker(BreakerPolicy(streak=1000, min_samples=9.0))

    assert not any(answers(breaker, "--------+"))
    assert fail(breaker, now=T0)


def test_a_breaker_works_for_a_single_agent() -> None:
    assert isinstance(opened().admits(T0 + 1), Refuses)


@pytest.mark.parametrize(
    ("start", "now", "probe"),
    [
        (closed, T0, False),
        (opened, T0 + 29, False),
        (opened, T0 + 30, True),
        (half_open, T0 + 31, True),
        (probing, T0 + 31, False),
        (probing, T0 + 150, True),
    ],
)
def test_what_is_sent_is_the_probe_or_not(start: Callable[[], Breaker], now: float, probe: bool) -> None:
    breaker = start()

    assert breaker.sent("x", now) is probe
    assert (breaker.probe == "x") is probe


def test_while_another_router_probes_none_goes_out_here_but_not_for_ever() -> None:
    breaker = opened()
    breaker.sent_elsewhere("other", T0 + 20)

    assert breaker.admits(T0 + 31) == Refuses(109.0, "breaker half-open, its one probe is under way")
    assert breaker.admits(T0 + 140) == Admits(probe=True)
    breaker.sent_elsewhere("again", T0 + 150)
    breaker.released("again")
    assert breaker.admits(T0 + 150) == Admits(probe=True)


def test_the_first_of_two_probes_is_the_one() -> None:
    breaker = probing()
    breaker.sent_elsewhere("other", T0 + 31)

    assert breaker.probe == "probe"


def test_it_gives_way_only_while_it_is_open() -> None:
    for start, until in ((opened, T0 + 32), (half_open, T0 + 30), (closed, 0.0)):
        breaker = start()
        breaker.give_way(2.0)
        assert breaker.open_until == until


def test_an_agent_that_came_back_has_no_streak() -> None:
    breaker = closed()
    assert not any(fail(breaker) for _ in range(4))
    breaker.came_back()

    assert not any(fail(breaker) for _ in range(4))
    assert fail(breaker)


def test_its_slots_come_back_in_steps() -> None:
    breaker = probing()
    assert breaker.slots(40) == 40
    succeed(breaker, "probe", T0 + 31)
    back = [breaker.slots(40)]
    for _ in range(3):
        for _ in range(5):
            succeed(breaker, now=T0 + 40)
        back.append(breaker.slots(40))

    assert back == [4, 10, 20, 40]


def test_results_of_the_bad_time_are_no_step() -> None:
    breaker = probing()
    succeed(breaker, "probe", T0 + 31)
    for number in range(20):
        breaker.succeeded(f"old{number}", T0 + 40, since=T0)

    assert breaker.slots(40) == 4


def test_a_failure_in_the_first_step_opens_by_the_normal_rules() -> None:
    breaker = probing()
    succeed(breaker, "probe", T0 + 31)

    assert [fail(breaker, now=T0 + 32) for _ in range(5)] == [False] * 4 + [True]
    assert breaker.open_until == T0 + 62


# -------------------------------------------------------------- only observing

OBSERVING = BreakerPolicy(rate_floor=None, mode="observe")


def test_one_that_only_observes_goes_through_the_states_and_lets_all_through() -> None:
    breaker = Breaker(OBSERVING)
    open_breaker(breaker, T0)
    assert (breaker.state, breaker.shut, breaker.shown) == (OPEN, False, "open (observed)")
    assert breaker.admits(T0 + 1) == Admits(probe=False)
    assert not breaker.sent("meanwhile", T0 + 1)
    assert not succeed(breaker, "meanwhile", T0 + 2)
    assert breaker.sent("probe", T0 + 30)
    assert breaker.admits(T0 + 30) == Admits(probe=False)
    assert not breaker.sent("beside", T0 + 30)
    assert not fail(breaker, "beside", T0 + 31)
    assert succeed(breaker, "probe", T0 + 31)
    assert (breaker.state, breaker.shown, breaker.slots(40)) == (CLOSED, "closed (observed)", 40)


def test_it_tells_for_how_long_it_is_open() -> None:
    breaker = opened()
    assert breaker.told(breaker.open_until - 12.4) == "open for 12 s"
    assert [b.told(T0) for b in (closed(), half_open())] == ["closed", "half_open"]


def test_one_that_enforces_is_shut_while_it_is_open() -> None:
    assert [(b.shut, b.shown) for b in (closed(), opened(), half_open())] == [
        (False, "closed"),
        (True, "open"),
        (False, "half_open"),
    ]


@given(st.lists(st.tuples(st.sampled_from("+-s"), st.sampled_from([0.0, 1.0, 31.0])), max_size=60))
def test_observing_moves_as_enforcing_does(events: list[tuple[str, float]]) -> None:
    """Where only probes are sent to a broken agent, both see the same, and move alike."""
    enforcing, observing = Breaker(STREAK_ONLY), Breaker(OBSERVING)
    now, dispatch = T0, "none"
    for number, (event, seconds) in enumerate(events):
        now += seconds
        for breaker in (enforcing, observing):
            if event == "s":
                dispatch = f"d{number}"
                breaker.sent(dispatch, now)
            elif event == "+":
                succeed(breaker, dispatch, now)
            else:
                fail(breaker, dispatch, now)
        assert (enforcing.state, enforcing.probe) == (observing.state, observing.probe)


def test_openings_are_counted() -> None:
    breaker = probing()
    fail(breaker, "probe")

    assert (breaker.openings, breaker.opened_at) == (2, T0 + 31)


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order: at most one live probe, and only its own result moves a half-open breaker."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.breaker = Breaker(POLICY)
        self.sent: dict[str, float] = {}
        self.probes: dict[str, float] = {}

    @rule(seconds=st.sampled_from([0.0, 0.1, 5.0, 30.0, 121.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        answer = self.breaker.admits(self.now)
        if isinstance(answer, Refuses):
            assert answer.seconds > 0
            return
        dispatch_id = f"d{len(self.sent)}"
        self.sent[dispatch_id] = self.now
        if answer.probe:
            live = [
                one for one, until in self.probes.items() if self.now < until and one == self.breaker.probe
            ]
            assert live == []
            self.breaker.take_probe(dispatch_id, self.now)
            self.probes[dispatch_id] = self.now + POLICY.probe_lease_s

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), kind=st.sampled_from(["succeeded", "failed", "released"]))
    def end(self, data: st.DataObject, kind: str) -> None:
        dispatch_id = data.draw(st.sampled_from(sorted(self.sent)))
        before = (self.breaker.state, self.breaker.probe)
        since = self.sent[dispatch_id]
        match kind:
            case "succeeded":
                moved = self.breaker.succeeded(dispatch_id, self.now, since=since)
            case "failed":
                moved = self.breaker.failed(dispatch_id, self.now, data.draw(st.floats(0, 1)), since=since)
            case _:
                self.breaker.released(dispatch_id)
                moved = False
        assert moved is (self.breaker.state is not before[0])
        if before[0] is not CLOSED and dispatch_id != before[1]:
            assert (self.breaker.state, self.breaker.probe) == before

    @invariant()
    def a_probe_belongs_to_half_open(self) -> None:
        assert self.breaker.probe is None or self.breaker.state is HALF_OPEN
        assert self.breaker.state is not OPEN or math.isfinite(self.breaker.open_until)


TestAnyOrder = AnyOrder.TestCase


@pytest.mark.parametrize(
    "fields",
    [
        {"streak": 0},
        {"rate_floor": 1.0},
        {"rate_floor": 0.0},
        {"open_s": 0.0},
        {"growth": 0.5},
        {"open_s": math.nan},
        {"mode": "off"},
        {"max_open_share": 1.1},
        {"steps": [0.5, 0.25]},
        {"steps": [0.0]},
        {"step_successes": 0},
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BreakerPolicy(**fields)


def test_the_numbers_unless_they_are_set() -> None:
    assert (POLICY.streak, POLICY.rate_floor, POLICY.min_samples) == (5, 0.6, 8.0)
    assert (POLICY.open_s, POLICY.growth, POLICY.max_open_s) == (30.0, 2.0, 300.0)
    assert POLICY.probe_lease_s == 120.0
    assert (POLICY.mode, POLICY.max_open_share) == ("enforce", 0.5)
    assert (POLICY.steps, POLICY.step_successes) == ((0.1, 0.25, 0.5), 5)


def test_what_was_sent_as_it_closed_counts() -> None:
    breaker = probing()
    succeed(breaker, "probe", T0 + 31)
    fail(breaker, now=T0 + 31)

    breaker.succeeded("new", T0 + 40, since=T0 + 31)

    assert breaker.streak == 0
    assert breaker.recent.rate() == pytest.approx(0.53, abs=0.01)
