"""Presence: the table of transitions, and that nobody is given up over one lost heartbeat."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic import ValidationError

from reach_worker.core.presence import (
    REMEMBERED,
    Died,
    Heartbeat,
    Instance,
    Pause,
    PresencePolicy,
    PresenceState,
    Probe,
    Roster,
    tick,
)
from tests.core.agents import beat

POLICY = PresencePolicy()
PENDING, ACTIVE, STALLED, SUSPECT, DEAD = (
    PresenceState.PENDING,
    PresenceState.ACTIVE,
    PresenceState.STALLED,
    PresenceState.SUSPECT,
    PresenceState.DEAD,
)
T0 = 1000.0
"""When the instances below are heard."""
PROBE = Probe("a-1", "instance.a-1")
GOODBYE = beat("a", stopping=True)


def pause(seconds: float, *, again: bool = False) -> Pause:
    return Pause("a-1", "instance.a-1", 3, seconds, again)


def pending() -> Instance:
    return Instance("a", "a-1")


def active() -> Instance:
    instance = pending()
    instance.heard(beat("a"), T0)
    return instance


def suspect() -> Instance:
    """Suspect since T0 + 9."""
    instance = active()
    tick(instance, T0 + 9, POLICY)
    return instance


def stalled() -> Instance:
    """Heard a moment before T0 + 120, with the one thing done that it had done at T0."""
    instance = pending()
    instance.heard(busy(1), T0)
    instance.heard(busy(1), T0 + 119)
    tick(instance, T0 + 120, POLICY)
    return instance


def quiet() -> Instance:
    """Stalled, and silent too."""
    instance = stalled()
    tick(instance, T0 + 128, POLICY)
    return instance


def busy(completed: int | None, *, running: tuple[str, ...] = ("d1", "d2", "d3"), **fields: Any) -> Heartbeat:
    return beat("a", running=running, completed=completed, **fields)


def dead() -> Instance:
    instance = active()
    instance.heard(GOODBYE, T0)
    return instance


@pytest.mark.parametrize(
    ("start", "event", "result", "state"),
    [
        (pending, lambda i: tick(i, T0 + 9999, POLICY), None, PENDING),
        (pending, lambda i: i.probe_unroutable(), False, PENDING),
        (pending, lambda i: i.heard(beat("a"), T0), True, ACTIVE),
        (pending, lambda i: i.heard(GOODBYE, T0), True, DEAD),
        (active, lambda i: i.heard(beat("a"), T0 + 3), False, ACTIVE),
        (active, lambda i: i.heard(GOODBYE, T0 + 3), True, DEAD),
        (active, lambda i: tick(i, T0 + 8.9, POLICY), None, ACTIVE),
        (active, lambda i: tick(i, T0 + 9, POLICY), PROBE, SUSPECT),
        (active, lambda i: tick(i, T0 + 9999, POLICY), PROBE, SUSPECT),
        (active, lambda i: i.probe_unroutable(), False, ACTIVE),
        (suspect, lambda i: i.heard(beat("a"), T0 + 10), True, ACTIVE),
        (suspect, lambda i: i.heard(GOODBYE, T0 + 10), True, DEAD),
        (suspect, lambda i: tick(i, T0 + 11.9, POLICY), None, SUSPECT),
        (suspect, lambda i: tick(i, T0 + 12, POLICY), PROBE, SUSPECT),
        (suspect, lambda i: tick(i, T0 + 38.9, POLICY), PROBE, SUSPECT),
        (suspect, lambda i: tick(i, T0 + 39, POLICY), Died("a-1"), DEAD),
        (suspect, lambda i: i.probe_unroutable(), True, DEAD),
        (dead, lambda i: tick(i, T0 + 9999, POLICY), None, DEAD),
        (dead, lambda i: i.heard(beat("a"), T0 + 50), True, ACTIVE),
        (dead, lambda i: i.heard(GOODBYE, T0 + 50), False, DEAD),
        (dead, lambda i: i.probe_unroutable(), False, DEAD),
        (stalled, lambda i: i.heard(busy(1), T0 + 122), False, STALLED),
        (stalled, lambda i: i.heard(busy(2), T0 + 122), True, ACTIVE),
        (stalled, lambda i: i.heard(busy(0), T0 + 122), True, ACTIVE),
        (stalled, lambda i: i.heard(busy(1, running=()), T0 + 122), True, ACTIVE),
        (stalled, lambda i: i.heard(busy(None), T0 + 122), True, ACTIVE),
        (stalled, lambda i: i.heard(busy(1, stopping=True), T0 + 122), True, DEAD),
        (stalled, lambda i: tick(i, T0 + 122.9, POLICY), None, STALLED),
        (stalled, lambda i: tick(i, T0 + 123, POLICY), pause(123, again=True), STALLED),
        (stalled, lambda i: tick(i, T0 + 128, POLICY), PROBE, SUSPECT),
        (stalled, lambda i: i.probe_unroutable(), False, STALLED),
        (quiet, lambda i: i.heard(busy(1), T0 + 129), True, STALLED),
        (quiet, lambda i: i.heard(busy(2), T0 + 129), True, ACTIVE),
    ],
)
def test_what_moves_an_instance(
    start: Callable[[], Instance], event: Callable[[Instance], Any], result: Any, state: PresenceState
) -> None:
    instance = start()

    assert event(instance) == result
    assert instance.state is state


@pytest.mark.parametrize(
    ("beats", "at", "longest_s", "result"),
    [
        # nothing runs, so nothing can be completed
        ([(0, busy(1, running=())), (119, busy(1, running=()))], 121, 0.0, None),
        # it completes one every 100 s
        ([(0, busy(1)), (100, busy(2)), (200, busy(3))], 205, 0.0, None),
        ([(0, busy(1)), (100, busy(2)), (215, busy(2))], 219, 0.0, None),
        ([(0, busy(1)), (100, busy(2)), (215, busy(2))], 220, 0.0, 120),
        # it was idle until 50 s
        ([(0, busy(1)), (50, busy(1, running=())), (165, busy(1))], 169, 0.0, None),
        ([(0, busy(1)), (50, busy(1, running=())), (165, busy(1))], 170, 0.0, 120),
        # what it runs may take 300 s, and a heartbeat may be late
        ([(0, busy(1)), (300, busy(1))], 302.9, 300.0, None),
        ([(0, busy(1)), (300, busy(1))], 303, 300.0, 303),
        ([(0, busy(1)), (119, busy(1))], 120, 8.0, 120),
        # it does not say how much it completes
        ([(0, busy(None)), (1000, busy(None))], 1001, 0.0, None),
        # its process was replaced, and counts from 0 again
        ([(0, busy(7)), (100, busy(0)), (200, busy(0))], 205, 0.0, None),
    ],
)
def test_when_it_is_stalled(
    beats: list[tuple[float, Heartbeat]], at: float, longest_s: float, result: float | None
) -> None:
    instance = pending()
    for seconds, said in beats:
        instance.heard(said, T0 + seconds)

    assert tick(instance, T0 + at, POLICY, longest_s) == (None if result is None else pause(result))
    assert (instance.state is STALLED) is (result is not None)


@pytest.mark.parametrize(
    ("start", "said", "goes_on"),
    [
        (active, busy(1), False),
        (stalled, busy(1), False),
        (stalled, busy(2), True),
        (quiet, busy(1), False),
        (quiet, busy(2), True),
        (stalled, busy(2, stopping=True), False),
    ],
)
def test_it_is_told_to_go_on_once(start: Callable[[], Instance], said: Heartbeat, goes_on: bool) -> None:
    instance = start()
    instance.heard(said, T0 + 129)

    assert [instance.goes_on(), instance.goes_on()] == [goes_on, False]


def test_one_that_stalled_and_died_begins_anew() -> None:
    instance = stalled()
    instance.heard(busy(1, stopping=True), T0 + 122)
    instance.heard(busy(1), T0 + 130)

    assert instance.state is ACTIVE
    assert instance.goes_on()
    assert tick(instance, T0 + 132, POLICY) is None


def test_the_agent_says_how_long_nothing_was_done() -> None:
    one, two = stalled(), stalled()
    two.progress_at = T0 + 20

    assert roster(one, two, active()).stalled(T0 + 130) == (6, 110)
    assert roster(active()).stalled(T0 + 130) == (0, 0.0)


def test_one_lost_heartbeat_moves_nobody() -> None:
    instance = active()
    told = []
    now = T0
    for number in range(100):
        now += POLICY.heartbeat_s
        if number % 2:
            instance.heard(beat("a"), now)
        told.append(tick(instance, now, POLICY))

    assert told == [None] * 100
    assert instance.state is ACTIVE


def test_silence_is_probed_every_heartbeat_period_until_death() -> None:
    instance, told = active(), {}
    for half_seconds in range(200):
        now = T0 + half_seconds / 2
        news = tick(instance, now, POLICY)
        if news is not None:
            told[now - T0] = news

    assert told == {9.0 + 3 * number: PROBE for number in range(10)} | {39.0: Died("a-1")}


def test_a_heartbeat_that_answers_the_probe_starts_all_anew() -> None:
    instance = suspect()
    instance.heard(beat("a"), T0 + 38)

    assert tick(instance, T0 + 40, POLICY) is None
    assert tick(instance, T0 + 47, POLICY) == PROBE
    assert tick(instance, T0 + 76, POLICY) == PROBE
    assert tick(instance, T0 + 77, POLICY) == Died("a-1")


def test_a_router_that_slept_gives_everybody_time_to_answer() -> None:
    """It wakes after an hour: the first thing is a probe, and death comes 30 s after that, not at once."""
    instance = active()
    woke = T0 + 3600

    assert tick(instance, woke, POLICY) == PROBE
    assert tick(instance, woke + 0.5, POLICY) is None
    assert tick(instance, woke + 29.5, POLICY) == PROBE
    assert tick(instance, woke + 30, POLICY) == Died("a-1")


def test_silence_from_before_a_session_does_not_kill() -> None:
    """A new broker session sets ``heard_at``; the suspicion is older and does not count alone."""
    instance = suspect()
    instance.heard_at = T0 + 100

    assert tick(instance, T0 + 101, POLICY) == PROBE
    assert tick(instance, T0 + 138, POLICY) == PROBE
    assert tick(instance, T0 + 139, POLICY) == Died("a-1")


@pytest.mark.parametrize(
    ("start", "capacity"), [(pending, 0), (active, 8), (stalled, 0), (suspect, 0), (dead, 0)]
)
def test_only_an_active_instance_offers_slots(start: Callable[[], Instance], capacity: int) -> None:
    assert roster(start()).slots() == capacity


def roster(*instances: Instance) -> Roster:
    return Roster({f"{number}": instance for number, instance in enumerate(instances)})


@pytest.mark.parametrize(
    ("starts", "state"),
    [
        ([], PENDING),
        ([pending], PENDING),
        ([pending, dead], DEAD),
        ([dead, suspect, pending], SUSPECT),
        ([dead, suspect, active], ACTIVE),
        ([dead, suspect, stalled], STALLED),
        ([stalled, active], ACTIVE),
        ([active, dead], ACTIVE),
    ],
)
def test_an_agent_is_as_alive_as_its_best_instance(
    starts: list[Callable[[], Instance]], state: PresenceState
) -> None:
    assert roster(*(start() for start in starts)).state() is state


def test_slots_are_those_of_the_active_instances() -> None:
    assert roster(active(), active(), suspect(), dead()).slots() == 16
    assert roster().slots() == 0


def test_how_long_nobody_was_heard() -> None:
    late = active()
    late.heard_at = T0 + 7

    assert roster().silent_for(T0) is None
    assert roster(pending()).silent_for(T0) is None
    assert roster(active(), late, pending()).silent_for(T0 + 10) == 3


def test_what_the_instances_said_they_run() -> None:
    one, two = active(), dead()
    one.heard(beat("a", running=("d1", "d2")), T0)
    two.heard(beat("a", running=("d3",), stopping=True), T0)

    assert roster(one, two, pending()).last_running() == {"d1", "d2", "d3"}


def test_the_dead_are_forgotten_after_a_while() -> None:
    """An agent that is restarted every minute for months leaves no list of its past instances."""
    gone, quiet, alive = dead(), suspect(), active()
    found = Roster({"gone": gone, "quiet": quiet, "alive": alive})
    for instance_id, instance in found.instances.items():
        instance.instance_id = instance_id
    kept_for = REMEMBERED * (POLICY.suspect_s + POLICY.dead_s)

    found.forget(T0 + kept_for, POLICY)
    assert set(found.instances) == {"gone", "quiet", "alive"}
    found.forget(T0 + kept_for + 1, POLICY)
    assert set(found.instances) == {"quiet", "alive"}


class AnyOrder(RuleBasedStateMachine):
    """Whatever is heard and however time passes: death is never sudden, and only the router's clock decides."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.instance = active()
        self.heard_at = T0
        self.probed_first: float | None = None

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 10.0, 50.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def hear(self) -> None:
        self.instance.heard(beat("a"), self.now)
        self.heard_at, self.probed_first = self.now, None
        assert self.instance.state is ACTIVE

    @rule()
    def look(self) -> None:
        match tick(self.instance, self.now, POLICY):
            case Probe():
                self.probed_first = self.now if self.probed_first is None else self.probed_first
            case Died():
                assert self.probed_first is not None
                assert self.now - self.probed_first >= POLICY.dead_s
                assert self.now - self.heard_at >= POLICY.suspect_s + POLICY.dead_s
            case None:
                assert self.instance.state is not ACTIVE or self.now - self.heard_at < POLICY.suspect_s

    @invariant()
    def only_the_active_have_slots(self) -> None:
        assert (roster(self.instance).slots() > 0) is (self.instance.state is ACTIVE)


TestAnyOrder = AnyOrder.TestCase


@given(st.floats(0, 8.99))
def test_within_the_time_nothing_happens(silent: float) -> None:
    assert tick(active(), T0 + silent, POLICY) is None


@pytest.mark.parametrize("fields", [{"heartbeat_s": 0}, {"suspect_s": -1}, {"dead_s": float("nan")}])
def test_what_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PresencePolicy(**fields)


def test_the_times_unless_they_are_set() -> None:
    assert (POLICY.heartbeat_s, POLICY.suspect_s, POLICY.dead_s) == (3.0, 9.0, 30.0)
    assert POLICY.stalled_s == 120.0
