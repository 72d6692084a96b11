"""What follows from an outcome, for every class, with and without side effects, begun or not, early or late."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import RULES, Attempt, DeadLetterReason, Outcome, OutcomeClass
from reach_worker.core.recovery import (
    MICROSECONDS,
    Bury,
    Cancelled,
    Done,
    IdempotencyPolicy,
    Step,
    TimeoutPolicy,
    TryAgain,
    attempt_timeout_ms,
    next_step,
    not_again,
)
from reach_worker.core.success import WINDOW, Track

POLICY = RetryPolicy()
DRAW = 0.5
NOW_US = 1_000 * MICROSECONDS
TASK = Envelope("t1", "t1", "log.query", "alice", 0)
K = OutcomeClass


def outcome(kind: OutcomeClass, *, started: bool = False, crashed: bool = False) -> Outcome:
    return Outcome("d-now", "t1", "a", "a-1", kind, "boom", started=started, crashed=crashed)


def attempt(kind: OutcomeClass, number: int = 1, *, dispatch_id: str = "d-now", at: int = NOW_US) -> Attempt:
    return Attempt(number, "a", dispatch_id, "e", kind, "boom", at - 5, at)


def with_history(*kinds: OutcomeClass, **fields: Any) -> Envelope:
    attempts = tuple(attempt(kind, number, dispatch_id=f"d{number}") for number, kind in enumerate(kinds, 1))
    return replace(TASK, attempts=attempts, **fields)


def step(
    kind: OutcomeClass,
    envelope: Envelope = TASK,
    *,
    started: bool = False,
    crashed: bool = False,
    draw: float = DRAW,
    policy: RetryPolicy = POLICY,
) -> Step:
    said = outcome(kind, started=started, crashed=crashed)
    return next_step(envelope, attempt(kind, envelope.next_attempt), said, policy=policy, draw=draw)


def shape(result: Step) -> str:
    """The step in one word: the reason of a dead letter, and of another try whether it comes at once."""
    match result:
        case Bury(_, reason, _):
            return reason.value
        case TryAgain(_, delay_s):
            return "at once" if delay_s == 0 else "later"
        case Done() | Cancelled():
            return type(result).__name__.lower()


ALWAYS = {K.SUCCEEDED: "done", K.BAD_REQUEST: "bad_request", K.CANCELLED: "cancelled"}
"""Whatever else is so."""
SETTLED = [kind for kind in OutcomeClass if kind is not K.HANDOFF]
"""What follows from a handoff depends on where it goes: see test_handoff."""
FAILURES = (K.TIMEOUT, K.UNAVAILABLE, K.FAILED)
UNCERTAIN = (*FAILURES, K.RELEASED)
"""Once a handler has begun, nobody knows what these left behind."""


def expected(kind: OutcomeClass, *, side_effects: bool, started: bool, spent: int, deadline: str) -> str:
    if kind in ALWAYS:
        return ALWAYS[kind]
    if side_effects and started and kind in UNCERTAIN:
        return "outcome_unknown"
    if kind is K.RELEASED:
        return "at once"
    if RULES[kind].spends_retry and spent >= POLICY.max_retries:
        return "attempts_exhausted"
    later = kind in FAILURES
    if deadline == "passed" or (deadline == "soon" and later):
        return "expired"
    return "later" if later else "at once"


DEADLINES = {"none": None, "far": NOW_US + 3600 * MICROSECONDS, "soon": NOW_US + 1, "passed": NOW_US}


@pytest.mark.parametrize("deadline", DEADLINES)
@pytest.mark.parametrize("spent", [0, 1, 2, 3])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("side_effects", [False, True])
@pytest.mark.parametrize("kind", SETTLED)
def test_what_follows(
    kind: OutcomeClass, side_effects: bool, started: bool, spent: int, deadline: str
) -> None:
    envelope = with_history(*[K.FAILED] * spent, side_effects=side_effects, deadline=DEADLINES[deadline])

    result = shape(step(kind, envelope, started=started))

    assert result == expected(
        kind, side_effects=side_effects, started=started, spent=spent, deadline=deadline
    )


@pytest.mark.parametrize("kind", [kind for kind in SETTLED if kind not in (K.SUCCEEDED, K.RELEASED)])
def test_the_attempt_is_in_the_history(kind: OutcomeClass) -> None:
    result = step(kind)

    assert isinstance(result, TryAgain | Bury | Cancelled)
    assert result.envelope.attempts == (attempt(kind),)


@pytest.mark.parametrize(("retry", "bound"), [(1, 0.5), (2, 1.0), (3, 2.0)])
def test_retries_back_off(retry: int, bound: float) -> None:
    result = step(K.FAILED, with_history(*[K.FAILED] * (retry - 1)), draw=0.25)

    assert isinstance(result, TryAgain)
    assert result.delay_s == bound * 0.25


def test_three_retries_make_four_attempts() -> None:
    envelope, steps = TASK, []
    for _ in range(4):
        result = step(K.FAILED, envelope)
        steps.append(shape(result))
        assert isinstance(result, TryAgain | Bury)
        envelope = result.envelope

    assert steps == ["later", "later", "later", "attempts_exhausted"]
    assert [one.number for one in envelope.attempts] == [1, 2, 3, 4]


def test_no_retries_mean_one_attempt() -> None:
    assert shape(step(K.FAILED, policy=RetryPolicy(max_retries=0))) == "attempts_exhausted"


def test_exhausted_tells_how_often_and_the_last_error() -> None:
    result = step(K.TIMEOUT, with_history(K.FAILED, K.RATE_LIMITED, K.FAILED, K.FAILED))

    assert isinstance(result, Bury)
    assert result.error == "5 attempts, the last: timeout: boom"


def test_what_kills_its_process_is_poison() -> None:
    history = with_history(K.UNAVAILABLE, K.UNAVAILABLE, K.UNAVAILABLE)

    assert shape(step(K.UNAVAILABLE, history, crashed=True)) == "poison"
    assert shape(step(K.UNAVAILABLE, TASK, crashed=True)) == "later"


def test_rate_limits_spend_no_retry_but_do_not_go_on_for_ever() -> None:
    envelope, steps = TASK, []
    for _ in range(POLICY.max_dispatches):
        result = step(K.RATE_LIMITED, envelope)
        steps.append(shape(result))
        assert isinstance(result, TryAgain | Bury)
        envelope = result.envelope

    assert steps == ["at once"] * (POLICY.max_dispatches - 1) + ["attempts_exhausted"]


def test_rejections_spend_retries_without_a_delay() -> None:
    steps = [shape(step(K.REJECTED, with_history(*[K.REJECTED] * spent))) for spent in range(4)]

    assert steps == ["at once", "at once", "at once", "attempts_exhausted"]


def test_a_release_is_no_attempt() -> None:
    result = step(K.RELEASED)

    assert result == TryAgain(TASK.with_release("d-now"), 0.0)
    assert isinstance(result, TryAgain)
    assert result.envelope.next_attempt == 1


def test_releases_back_off_and_never_end_a_task() -> None:
    envelope, delays = TASK, []
    for number in range(30):
        said = attempt(K.RELEASED, dispatch_id=f"d{number}")
        result = next_step(envelope, said, outcome(K.RELEASED), policy=POLICY, draw=DRAW)
        assert isinstance(result, TryAgain)
        envelope = result.envelope
        delays.append(result.delay_s)

    assert delays[:5] == [0.0, 0.25, 0.5, 1.0, 2.0]
    assert delays == sorted(delays)
    assert delays[-1] == 30.0
    assert envelope.attempts == ()


def test_after_an_attempt_a_release_is_at_once_again() -> None:
    envelope = TASK.with_release("d1").with_release("d2").with_attempt(attempt(K.FAILED))

    assert shape(step(K.RELEASED, envelope)) == "at once"


@pytest.mark.parametrize("kind", UNCERTAIN)
def test_a_person_decides_where_nobody_can_know(kind: OutcomeClass) -> None:
    result = step(kind, replace(TASK, side_effects=True), started=True)

    assert isinstance(result, Bury)
    assert result.reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert result.error == f"{kind.value} after it had begun, and it has side effects: boom"
    assert result.envelope.attempts == (attempt(kind),)


def test_a_deadline_that_comes_before_the_next_attempt_ends_it() -> None:
    envelope = replace(TASK, deadline=NOW_US + MICROSECONDS // 4)

    assert shape(step(K.FAILED, envelope, draw=0.49)) == "later"
    result = step(K.FAILED, envelope, draw=0.5)
    assert isinstance(result, Bury)
    assert (result.reason, result.error) == (
        DeadLetterReason.EXPIRED,
        "no time left for another attempt after: boom",
    )


KINDS = st.sampled_from(SETTLED)


@given(
    st.lists(st.tuples(KINDS, st.booleans()), min_size=1, max_size=200),
    st.booleans(),
    st.integers(0, 5),
    st.integers(1, 20),
    st.floats(0, 1, exclude_max=True),
)
def test_every_task_comes_to_an_end(
    endings: list[tuple[OutcomeClass, bool]], side_effects: bool, retries: int, dispatches: int, draw: float
) -> None:
    """Whatever its agents say: attempts are bounded, and what may have run is never run again."""
    policy = RetryPolicy(max_retries=retries, max_dispatches=dispatches)
    envelope = replace(TASK, side_effects=side_effects)
    for count, (kind, started) in enumerate(endings):
        said = attempt(kind, envelope.next_attempt, dispatch_id=f"d{count}")
        result = next_step(envelope, said, outcome(kind, started=started), policy=policy, draw=draw)
        if not isinstance(result, TryAgain):
            break
        assert not (side_effects and started and kind in UNCERTAIN)
        assert 0.0 <= result.delay_s <= policy.cap_s
        envelope = result.envelope
        assert len(envelope.attempts) < dispatches
        assert envelope.retries_spent <= retries


# ------------------------------------------------------------------ time limits

TIMEOUTS = TimeoutPolicy()


def track_of(seconds: float, count: int) -> Track:
    track = Track()
    for _ in range(count):
        track.ended(0.0, good=True, seconds=seconds)
    return track


@pytest.mark.parametrize(
    ("declared_ms", "track", "remaining_ms", "limit_ms"),
    [
        # nothing known: as declared, else 8 s
        (None, None, None, 8_000),
        (20_000, None, None, 20_000),
        (500, None, None, 500),
        # fifty successes teach it: 1.5 times the 99th percentile
        (20_000, track_of(4.0, 49), None, 20_000),
        (20_000, track_of(4.0, 50), None, 6_000),
        # never below 2 s by learning, never above what is declared
        (20_000, track_of(0.01, 50), None, 2_000),
        (20_000, track_of(0.0, 50), None, 2_000),
        (1_000, track_of(0.01, 50), None, 1_000),
        (5_000, track_of(100.0, 50), None, 5_000),
        (None, track_of(100.0, 50), None, 8_000),
        # nor above what is left, but never nothing
        (20_000, None, 3_000, 3_000),
        (20_000, track_of(4.0, 50), 100, 100),
        (20_000, None, 0, 1),
        (20_000, None, -50, 1),
    ],
)
def test_how_long_an_attempt_may_take(
    declared_ms: int | None, track: Track | None, remaining_ms: int | None, limit_ms: int
) -> None:
    assert attempt_timeout_ms(declared_ms, track, TIMEOUTS, remaining_ms=remaining_ms) == limit_ms


def test_one_slow_success_in_a_hundred_does_not_lengthen_the_leash() -> None:
    track = track_of(2.0, 99)
    track.ended(0.0, good=True, seconds=60.0)

    assert attempt_timeout_ms(20_000, track, TIMEOUTS, remaining_ms=None) == 3_000


@pytest.mark.parametrize(
    ("outcomes", "limit_ms"),
    [
        ((), 3_000),
        ((OutcomeClass.FAILED, OutcomeClass.UNAVAILABLE), 3_000),
        ((OutcomeClass.TIMEOUT,), 20_000),
        ((OutcomeClass.TIMEOUT, OutcomeClass.UNAVAILABLE), 20_000),
    ],
)
def test_a_task_that_was_out_of_time_gets_what_is_declared(
    outcomes: tuple[OutcomeClass, ...], limit_ms: int
) -> None:
    tried = [attempt(outcome) for outcome in outcomes]
    limit = attempt_timeout_ms(20_000, track_of(2.0, 50), TIMEOUTS, remaining_ms=None, tried=tried)
    assert limit == limit_ms


@given(
    st.none() | st.integers(1, 10**8),
    st.floats(0, 10_000),
    st.integers(0, WINDOW + 10),
    st.none() | st.integers(-(10**6), 10**8),
)
def test_no_limit_leaves_its_bounds(
    declared_ms: int | None, seconds: float, count: int, remaining_ms: int | None
) -> None:
    limit = attempt_timeout_ms(declared_ms, track_of(seconds, count), TIMEOUTS, remaining_ms=remaining_ms)

    assert 1 <= limit <= (TIMEOUTS.attempt_ms if declared_ms is None else declared_ms)
    assert remaining_ms is None or limit <= max(1, remaining_ms)


@pytest.mark.parametrize(
    "fields", [{"min_successes": WINDOW + 1}, {"attempt_ms": 0}, {"factor": float("inf")}]
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TimeoutPolicy(**fields)


def test_every_class_was_asked_about() -> None:
    assert set(ALWAYS) | set(UNCERTAIN) | {K.RATE_LIMITED, K.REJECTED} == set(SETTLED)
    assert not set(itertools.chain(ALWAYS)) & set(UNCERTAIN)


def test_the_times_unless_they_are_set() -> None:
    memory = IdempotencyPolicy()

    assert (TIMEOUTS.attempt_ms, TIMEOUTS.floor_ms) == (8_000, 2_000)
    assert (TIMEOUTS.factor, TIMEOUTS.min_successes) == (1.5, 50)
    assert (TIMEOUTS.pickup_s, TIMEOUTS.backstop_s) == (60.0, 10.0)
    assert (memory.window_s, memory.long_task_s, memory.long_window_s) == (60.0, 60.0, 300.0)


@pytest.mark.parametrize(
    ("step", "cancelled"),
    [
        (TryAgain(TASK, 1.0), True),
        (Bury(TASK, DeadLetterReason.ATTEMPTS_EXHAUSTED, "x"), True),
        (Bury(TASK, DeadLetterReason.EXPIRED, "x"), True),
        (Cancelled(TASK, "by its agent"), True),
        (Bury(TASK, DeadLetterReason.OUTCOME_UNKNOWN, "x"), False),
        (Bury(TASK, DeadLetterReason.BAD_REQUEST, "x"), False),
        (Done(), False),
    ],
)
def test_what_nobody_wants_is_not_tried_again_and_what_it_has_come_to_stands(
    step: Step, cancelled: bool
) -> None:
    assert not_again(step, "because") == (Cancelled(TASK, "because") if cancelled else step)
