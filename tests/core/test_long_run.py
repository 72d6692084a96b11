"""What becomes of the lease of a long run, by what the heartbeats say."""

import pytest

from reach_worker.core.backoff import RUNGS_MS
from reach_worker.core.dispatch import Dispatch, dispatch_from, lease_headers, outcome_from, outcome_headers
from reach_worker.core.envelope import Envelope
from reach_worker.core.long_run import DOUBT_S, LEASE_S, GiveUp, Park, Sight, after, sight_of
from reach_worker.core.outcome import Outcome, OutcomeClass
from reach_worker.core.presence import Heartbeat, Instance, PresencePolicy, PresenceState, Roster

POLICY = PresencePolicy()
DEAD_S = POLICY.suspect_s + POLICY.dead_s
NOW = 1000.0


def instance(
    state: PresenceState, *running: str, name: str = "i1", heard: float = NOW, stopping: bool = False
) -> Instance:
    beat = Heartbeat("a", name, f"box-{name}", 4, running, "hash", "1", stopping)
    return Instance("a", name, state, heard_at=heard, beat=beat)


def sight(*instances: Instance) -> Sight:
    return sight_of(Roster({one.instance_id: one for one in instances}), "i1", "d1", NOW, POLICY)


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        (PresenceState.ACTIVE, Sight.RUNS),
        (PresenceState.STALLED, Sight.RUNS),
        (PresenceState.SUSPECT, Sight.SILENT),
        (PresenceState.DEAD, Sight.GONE),
    ],
)
def test_an_instance_that_lists_it(state: PresenceState, seen: Sight) -> None:
    assert sight(instance(state, "d0", "d1")) is seen


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        (PresenceState.ACTIVE, Sight.ENDED),
        (PresenceState.STALLED, Sight.ENDED),
        (PresenceState.SUSPECT, Sight.SILENT),
        (PresenceState.DEAD, Sight.GONE),
    ],
)
def test_an_instance_that_does_not_list_it(state: PresenceState, seen: Sight) -> None:
    assert sight(instance(state, "d0")) is seen


@pytest.mark.parametrize(
    ("silent_s", "running", "seen"),
    [
        (0.0, ("d1",), Sight.RUNS),
        (DEAD_S - 0.1, ("d1",), Sight.RUNS),
        (DEAD_S, ("d1",), Sight.GONE),
        (0.0, (), Sight.ENDED),
        (DEAD_S, (), Sight.GONE),
    ],
)
def test_one_that_has_said_goodbye(silent_s: float, running: tuple[str, ...], seen: Sight) -> None:
    gone = instance(PresenceState.DEAD, *running, heard=NOW - silent_s, stopping=True)
    assert sight(gone) is seen


def test_another_instance_that_lists_it_has_it() -> None:
    """Its session was cut, and the dispatch delivered to another one."""
    dead, other = instance(PresenceState.DEAD), instance(PresenceState.ACTIVE, "d1", name="i2")
    assert sight(dead, other) is Sight.RUNS


def test_nobody_has_heard_of_it() -> None:
    assert sight() is Sight.UNKNOWN
    assert sight(instance(PresenceState.ACTIVE, name="i2")) is Sight.UNKNOWN
    assert sight_of(None, "i1", "d1", NOW, POLICY) is Sight.UNKNOWN


def given_up_after(seen: Sight) -> tuple[float, GiveUp]:
    """Seconds of this and nothing else until it is given up, and how."""
    doubts, waited = 0, 0.0
    while isinstance(found := after(seen, doubts, POLICY), Park):
        doubts, waited = found.doubts, waited + found.delay_s
        assert waited < 1000
    return waited, found


def test_while_it_runs_or_may_run_it_is_parked_without_end() -> None:
    for doubts in (0, 3, 99):
        assert after(Sight.RUNS, doubts, POLICY) == Park(LEASE_S, 0)
        assert after(Sight.SILENT, doubts, POLICY) == Park(DOUBT_S, 0)


def test_a_dead_ones_is_given_up_soon_but_not_at_once() -> None:
    assert given_up_after(Sight.GONE) == (DOUBT_S, GiveUp(crashed=True))


@pytest.mark.parametrize(("seen", "crashed"), [(Sight.ENDED, False), (Sight.UNKNOWN, True)])
def test_without_a_sign_it_is_given_up_when_a_silent_one_would_be_dead(seen: Sight, crashed: bool) -> None:
    waited, how = given_up_after(seen)
    assert DEAD_S <= waited < DEAD_S + DOUBT_S
    assert how == GiveUp(crashed=crashed)


def test_the_delays_are_rungs() -> None:
    assert {int(LEASE_S * 1000), int(DOUBT_S * 1000)} <= set(RUNGS_MS)


def test_a_lease_is_the_dispatch_and_leaves_no_trace_in_its_outcome() -> None:
    envelope = Envelope("t1", "f1", "text.echo", "me", 5, crashes=1, passed_on=(("traceparent", "00-1"),))
    dispatch = Dispatch(envelope, "d1", "decision", "a", "r1", 6, 7, 8)
    lease = lease_headers(dispatch.headers(), "i1", doubts=3)
    assert dispatch_from(lease) == dispatch
    again = lease_headers({**lease, "x-death": [{"reason": "expired"}], "x-delivery-count": 2}, "i1")
    assert again == lease_headers(dispatch.headers(), "i1")
    outcome = Outcome("d1", "t1", "a", "i1", OutcomeClass.UNAVAILABLE, "gone", started=True, crashed=True)
    told = outcome_headers(lease, outcome)
    assert told == outcome_headers(dispatch.headers(), outcome)
    assert outcome_from(told, dispatch) == outcome
