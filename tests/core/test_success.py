"""What is known of an agent's work: decayed counts, service times, and nothing where nothing is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.success import (
    CLOCK_WAS_WRONG_S,
    FAST_HALF_LIFE_S,
    SLOW_HALF_LIFE_S,
    WINDOW,
    DecayedCount,
    ServiceTimes,
    Track,
    TrackRecord,
)

NOW = 1_800_000_000.0
TRIES = st.lists(st.tuples(st.floats(0, 3_600), st.booleans()), min_size=1, max_size=30)


def counted(*tries: tuple[float, bool], half_life_s: float = 60.0) -> DecayedCount:
    count = DecayedCount(half_life_s)
    for at, good in tries:
        count.add(at, good=good)
    return count


def test_no_data_is_not_always_fails() -> None:
    assert DecayedCount(60.0).rate() is None
    assert counted((NOW, False)).rate() == 0.0
    assert Track().success() is None


@pytest.mark.parametrize(
    ("tries", "rate"),
    [
        ([(0.0, True)], 1.0),
        ([(0.0, True), (0.0, False)], 0.5),
        # a minute later the old success weighs half
        ([(0.0, True), (60.0, False)], 0.5 / 1.5),
        ([(0.0, False), (60.0, True)], 1.0 / 1.5),
        ([(0.0, False), (120.0, True)], 1.0 / 1.25),
    ],
)
def test_what_is_longer_ago_weighs_less(tries: list[tuple[float, bool]], rate: float) -> None:
    assert counted(*tries).rate() == pytest.approx(rate)


def test_the_number_of_tries_halves_and_the_rate_stays() -> None:
    count = counted((0.0, True), (0.0, True), (0.0, False), (0.0, True))

    assert [count.effective(at) for at in (0.0, 60.0, 120.0)] == pytest.approx([4.0, 2.0, 1.0])
    assert count.effective(-60.0) == 4.0
    assert count.rate() == 0.75


def test_after_a_long_silence_the_first_try_counts_alone() -> None:
    count = counted(*[(0.0, False)] * 100, (10_000_000.0, True))

    assert count.rate() == 1.0
    assert count.effective(10_000_000.0) == 1.0


@given(TRIES.flatmap(lambda tries: st.tuples(st.just(tries), st.permutations(tries))))
def test_the_order_in_which_outcomes_are_heard_changes_nothing(
    both: tuple[list[tuple[float, bool]], list[tuple[float, bool]]],
) -> None:
    first, second = counted(*both[0]), counted(*both[1])

    assert second.effective(4_000.0) == pytest.approx(first.effective(4_000.0))
    assert second.rate() == pytest.approx(first.rate())


@given(TRIES)
def test_counts_stay_within_their_bounds(tries: list[tuple[float, bool]]) -> None:
    count = counted(*tries)

    assert 0.0 <= count.good <= count.tries <= len(tries)
    assert 0.0 <= (count.rate() or 0.0) <= 1.0


@given(TRIES)
def test_one_more_success_never_lowers_the_rate(tries: list[tuple[float, bool]]) -> None:
    last = max(at for at, _ in tries)
    before, after = counted(*tries).rate(), counted(*tries, (last, True)).rate()

    assert before is not None
    assert after is not None
    assert after >= before - 1e-12


def test_a_clock_that_was_wrong_for_a_moment_does_not_freeze_the_count() -> None:
    count = counted((NOW, True), (NOW + 10 * CLOCK_WAS_WRONG_S, True), (NOW + 1.0, False))

    assert count.at == NOW + 1.0
    assert count.effective(NOW + 61.0) == pytest.approx(count.tries / 2)


@pytest.mark.parametrize(
    ("good", "tries"),
    [
        (math.nan, 5.0),
        (5.0, math.nan),
        (math.inf, math.inf),
        (-3.0, 5.0),
        (7.0, 5.0),
        (1.0, -1.0),
        (0.0, math.inf),
    ],
)
def test_a_damaged_count_does_not_poison_what_follows(good: float, tries: float) -> None:
    count = DecayedCount(60.0, good, tries, NOW)
    shown = count.rate()
    count.add(NOW, good=True)

    assert shown is None or 0.0 <= shown <= 1.0
    assert (count.good, count.tries, count.rate()) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.0, 1.0), (0.25, 1.0), (0.5, 2.0), (0.51, 3.0), (0.75, 3.0), (0.99, 4.0), (1.0, 4.0)],
)
def test_a_quantile_is_one_of_the_times(q: float, expected: float) -> None:
    times = ServiceTimes()
    for seconds in (3.0, 1.0, 4.0, 2.0):
        times.add(seconds)

    assert times.quantile(q) == expected


def test_without_times_there_is_no_quantile() -> None:
    assert ServiceTimes().quantile(0.5) is None
    assert len(ServiceTimes()) == 0


@given(st.lists(st.floats(-1, 100), min_size=1, max_size=3 * WINDOW), st.floats(0, 1))
def test_the_last_times_count_and_no_others(seconds: list[float], q: float) -> None:
    times = ServiceTimes()
    for one in seconds:
        times.add(one)
    last = [max(0.0, one) for one in seconds[-WINDOW:]]

    assert list(times.recent) == last
    assert times.ordered == sorted(last)
    assert len(times) == len(last)
    assert times.quantile(q) == sorted(last)[max(0, math.ceil(q * len(last)) - 1)]


@pytest.mark.parametrize(("good", "tries"), [(math.nan, 5.0), (-3.0, 5.0), (7.0, 5.0), (1.0, math.inf)])
def test_a_damaged_count_is_read_as_none_at_all(good: float, tries: float) -> None:
    count = DecayedCount(60.0, good, tries, NOW)

    assert count.counts(NOW) == (0.0, 0.0)
    assert count.effective(NOW + 60.0) == 0.0


@given(TRIES, TRIES)
def test_a_merged_count_is_as_if_all_had_been_counted_at_once(
    one: list[tuple[float, bool]], other: list[tuple[float, bool]]
) -> None:
    merged, together = counted(*one), counted(*one, *other)
    merged.merge(counted(*other))

    assert merged.counts(4_000.0) == pytest.approx(together.counts(4_000.0))


def test_a_merge_with_nothing_changes_nothing() -> None:
    count = counted((NOW, True), (NOW, False))
    count.merge(DecayedCount(60.0))

    assert (count.good, count.tries, count.at) == (1.0, 2.0, NOW)


def test_the_mean_of_the_times() -> None:
    times = ServiceTimes()
    assert times.mean() is None
    for seconds in (1.0, 2.0, 6.0):
        times.add(seconds)

    assert times.mean() == 3.0


@given(st.lists(st.sampled_from([0.0, 0.1, 0.3, 1e16]), min_size=1, max_size=2 * WINDOW))
def test_a_mean_stays_among_its_times(seconds: list[float]) -> None:
    """A running total keeps what rounding left of a time that went."""
    times = ServiceTimes()
    for one in seconds:
        times.add(one)
    mean = times.mean()

    assert mean is not None
    assert times.ordered[0] <= mean <= times.ordered[-1]


def test_what_rounding_left_of_a_long_time_does_not_lead_below_zero() -> None:
    times = ServiceTimes()
    for seconds in (0.1, 1e16, *[0.1] * WINDOW):
        times.add(seconds)

    assert times.mean() == 0.1


def test_a_track_counts_both_ways() -> None:
    track = Track()
    track.ended(NOW, good=True, seconds=2.0)
    track.ended(NOW, good=False, seconds=9.0)
    track.ended(NOW, good=True, seconds=None)
    track.rejected(NOW)

    assert (track.slow.half_life_s, track.fast.half_life_s) == (SLOW_HALF_LIFE_S, FAST_HALF_LIFE_S)
    assert track.success() == track.fast.rate() == pytest.approx(2 / 3)
    assert track.recent.rate() == track.week.rate() == track.overall.rate() == pytest.approx(2 / 3)
    assert track.rejections.rate() == 0.25
    assert list(track.service.recent) == [2.0]


@pytest.mark.parametrize(
    ("verdicts", "quality", "rejections"),
    [
        (["good"], 1.0, None),
        (["good", "bad", "good", "good"], 0.75, None),
        # a routing error, as if the agent had said so itself
        (["good", "wrong-agent"], 0.5, 1.0),
    ],
)
def test_what_a_person_says_of_a_result_is_no_attempt(
    verdicts: list[str], quality: float, rejections: float | None
) -> None:
    track = Track()
    for verdict in verdicts:
        track.judged(NOW, verdict)

    assert (track.feedback.rate(), track.rejections.rate()) == (quality, rejections)
    assert track.success() is None


def test_a_rejection_speaks_neither_for_nor_against() -> None:
    track = Track()
    track.rejected(NOW)

    assert track.success() is None
    assert track.rejections.rate() == 1.0


def test_tracks_are_per_agent_and_capability() -> None:
    record = TrackRecord.empty()
    easy = record.touch("a", "easy")

    assert record.touch("a", "easy") is easy
    assert record.of("a", "easy") is easy
    assert record.of("a", "hard") is None
    assert record.of("b", "easy") is None


def test_how_long_things_are_remembered() -> None:
    assert (SLOW_HALF_LIFE_S, FAST_HALF_LIFE_S, WINDOW) == (1800.0, 60.0, 256)
