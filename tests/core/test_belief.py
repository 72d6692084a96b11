"""What is believed of an agent's success on a capability, in worked numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.success import Belief, DecayedCount, Track, TrackRecord

NOW = 1_800_000_000.0


def record_of(*tries: tuple[str, str, int, int], ago: float = 0.0) -> TrackRecord:
    """Agent, capability, how many were right of how many."""
    record = TrackRecord.empty()
    for agent_id, capability, right, of in tries:
        for number in range(of):
            record.touch(agent_id, capability).ended(NOW - ago, good=number < right, seconds=None)
    return record


def test_no_record_is_a_half() -> None:
    belief = TrackRecord.empty().belief("a", "x", NOW)

    assert belief.mean == 0.5
    assert belief.deviation == pytest.approx(math.sqrt(0.25 / 3))


def test_a_track_of_which_nothing_ended_is_a_half() -> None:
    record = TrackRecord.empty()
    record.touch("a", "x").rejected(NOW)

    assert record.belief("a", "x", NOW) == TrackRecord.empty().belief("a", "x", NOW)


@pytest.mark.parametrize(
    ("tries", "mean", "mass"),
    [
        # only elsewhere, 3 of 4 and an even prior: 4/6
        ([("a", "y", 3, 4)], 4 / 6, 5),
        ([("a", "y", 40, 40)], 41 / 42, 5),
        ([("a", "y", 0, 40)], 1 / 42, 5),
        # here 2 of 2, elsewhere 1 of 6: (5 · 2/8 + 2) / 7
        ([("a", "x", 2, 2), ("a", "y", 1, 6)], 3.25 / 7, 7),
        # here alone: an even prior, so one try proves nothing
        ([("a", "x", 3, 4)], 4 / 6, 6),
        ([("a", "x", 1, 1)], 2 / 3, 3),
        # others do not count
        ([("b", "x", 9, 9), ("b", "y", 9, 9)], 0.5, 2),
    ],
)
def test_the_agents_other_work_weighs_as_much_as_five_attempts(
    tries: list[tuple[str, str, int, int]], mean: float, mass: float
) -> None:
    belief = record_of(*tries).belief("a", "x", NOW)

    assert belief.mean == pytest.approx(mean)
    assert belief.deviation == pytest.approx(math.sqrt(mean * (1 - mean) / (mass + 1)))


def test_one_failure_does_not_condemn_and_one_success_does_not_canonise() -> None:
    """Slow: 1 of 3. Fast: (0 + 5 · 1/3) / 6. An agent whose first attempt failed is still worth exploring."""
    failed, succeeded = (record_of(("a", "x", right, 1)).belief("a", "x", NOW) for right in (0, 1))

    assert failed.mean == pytest.approx(5 / 18)
    assert failed.upper(1.5) > 0.6
    assert succeeded.mean == pytest.approx(2 / 3)


def test_a_bad_minute_counts_though_the_half_hour_was_good() -> None:
    """30 right ten minutes ago, 5 wrong now.

    Slow: 30 · 2^(−1/3) = 23.811 of 28.811, and an even prior: 24.811 / 30.811 = 0.805265. Fast: 30 · 2^(−10) = 0.0293 of
    5.0293, shrunk: (0.0293 + 5 · 0.805265) / 10.0293 = 0.404375.
    """
    record = record_of(("a", "x", 30, 30), ago=600.0)
    for _ in range(5):
        record.touch("a", "x").ended(NOW, good=False, seconds=None)
    belief = record.belief("a", "x", NOW)

    good = 30 * 2 ** (-1 / 3)
    slow = (good + 1) / (good + 5 + 2)
    fast = 30 * 2**-10
    assert slow == pytest.approx(0.805265, abs=1e-5)
    assert belief.mean == pytest.approx((fast + 5 * slow) / (fast + 5 + 5))
    assert belief.mean == pytest.approx(0.404375, abs=1e-5)
    assert belief.deviation == pytest.approx(math.sqrt(slow * (1 - slow) / (2 + good + 5 + 1)))


def test_a_good_minute_does_not_hide_a_bad_half_hour() -> None:
    """The lower of the two: the slow one."""
    record = record_of(("a", "x", 0, 30), ago=600.0)
    for _ in range(5):
        record.touch("a", "x").ended(NOW, good=True, seconds=None)
    bad = 30 * 2 ** (-1 / 3)

    assert record.belief("a", "x", NOW).mean == pytest.approx(6 / (bad + 5 + 2))


def test_time_widens_the_belief_and_draws_it_to_a_half() -> None:
    """8 of 10, halved twice in an hour: (8 + 1) / 12, (2 + 1) / 4.5, and after a day as good as nothing."""
    record = record_of(("a", "x", 8, 10))
    means = [record.belief("a", "x", NOW + hours * 3600).mean for hours in (0, 1, 24)]
    deviations = [record.belief("a", "x", NOW + hours * 3600).deviation for hours in (0, 1, 24)]

    assert means == pytest.approx([0.75, 2 / 3, 0.5])
    assert deviations == pytest.approx(
        [math.sqrt(0.75 * 0.25 / 13), math.sqrt(2 / 9 / 5.5), math.sqrt(0.25 / 3)]
    )


@pytest.mark.parametrize(("deviations", "upper"), [(0, 0.5), (1.5, 0.8), (10, 1.0)])
def test_hope_stops_at_one(deviations: float, upper: float) -> None:
    assert Belief(0.5, 0.2).upper(deviations) == pytest.approx(upper)


TRIES = st.lists(st.tuples(st.sampled_from("xy"), st.floats(0, 90_000), st.booleans()), max_size=30)


@given(TRIES, st.floats(0, 1e9))
def test_no_belief_is_below_zero_or_above_one(tries: list[tuple[str, float, bool]], later: float) -> None:
    record = TrackRecord.empty()
    for capability, at, good in tries:
        record.touch("a", capability).ended(NOW + at, good=good, seconds=None)
    belief = record.belief("a", "x", NOW + later)

    assert 0.0 <= belief.mean <= belief.upper(1.5) <= 1.0
    assert 0.0 <= belief.deviation <= 0.5


@given(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["slow", "fast", "overall"]),
)
def test_a_damaged_cell_never_makes_a_belief_that_cannot_be(good: float, tries: float, which: str) -> None:
    track = Track()
    count: DecayedCount = getattr(track, which)
    count.good, count.tries, count.at = good, tries, NOW
    record = TrackRecord({("a", "x"): track})
    belief = record.belief("a", "x", NOW)

    assert 0.0 <= belief.mean <= 1.0
    assert 0.0 <= belief.deviation <= 0.5


@given(TRIES.filter(bool))
def test_one_more_success_never_lowers_a_belief(tries: list[tuple[str, float, bool]]) -> None:
    record = TrackRecord.empty()
    for capability, at, good in tries:
        record.touch("a", capability).ended(NOW + at, good=good, seconds=None)
    now = NOW + max(at for _, at, _ in tries)
    before = record.belief("a", "x", now).mean
    record.touch("a", "x").ended(now, good=True, seconds=None)

    assert record.belief("a", "x", now).mean >= before - 1e-12


# ------------------------------------------------------------ tracks from a store


def loaded(right: int, of: int, at: float = NOW) -> Track:
    track = Track()
    for number in range(of):
        track.ended(at, good=number < right, seconds=None)
    track.overall = DecayedCount(track.overall.half_life_s)
    return track


def test_tracks_from_the_store_share_the_overall_count() -> None:
    record = TrackRecord({("a", "x"): loaded(3, 4), ("a", "y"): loaded(0, 4), ("b", "x"): loaded(1, 1)})
    one, other = record.tracks["a", "x"], record.tracks["a", "y"]

    assert one.overall is other.overall is record.overall["a"]
    assert one.overall is not record.tracks["b", "x"].overall
    assert one.overall.counts(NOW) == (3.0, 8.0)
    assert record.belief("a", "z", NOW).mean == pytest.approx(4 / 10)

    other.ended(NOW, good=True, seconds=None)
    record.touch("a", "z").ended(NOW, good=True, seconds=None)

    assert record.overall["a"].counts(NOW) == (5.0, 10.0)


def test_a_track_that_is_put_counts_with_what_was_there() -> None:
    record = record_of(("a", "x", 1, 2))
    record.put(("a", "y"), loaded(3, 3, at=NOW - 1800))

    assert record.overall["a"].counts(NOW) == pytest.approx((1 + 1.5, 2 + 1.5))
    assert record.of("a", "y") is record.touch("a", "y")


def test_what_was_counted_and_what_is_loaded_lead_to_the_same_belief() -> None:
    counted = record_of(("a", "x", 3, 4), ("a", "y", 5, 9))
    stored = TrackRecord({("a", "x"): loaded(3, 4), ("a", "y"): loaded(5, 9)})

    assert stored.belief("a", "x", NOW) == counted.belief("a", "x", NOW)
