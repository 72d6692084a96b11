"""Thresholds from the log's quantiles."""

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.recovery import TimeoutPolicy
from reach_worker.core.tuning import Ended, Proposal, Quantiles, proposals, quantile, quantiles


def ended(
    outcome: OutcomeClass = OutcomeClass.SUCCEEDED, seconds: float | None = 1.0, agent: str = "a"
) -> Ended:
    return Ended(agent, "log.query", outcome, seconds, 0.0)


def propose(
    table: list[Quantiles],
    *,
    days: float = 1.0,
    timeout_ms: int | None = None,
    breaker: BreakerPolicy | None = None,
) -> dict[str, Proposal]:
    found = proposals(
        table,
        days=days,
        declared_timeouts={("a", "log.query"): timeout_ms},
        timeouts=TimeoutPolicy(),
        breaker=breaker or BreakerPolicy(rate_floor=None),
    )
    return {proposal.setting: proposal for proposal in found}


def test_quantiles_by_agent_and_capability() -> None:
    times = [ended(seconds=number / 10) for number in range(1, 101)]
    others = [
        ended(OutcomeClass.FAILED, None),
        ended(OutcomeClass.REJECTED, None),
        ended(OutcomeClass.RATE_LIMITED, None),
    ]
    (row,) = quantiles([*times, *others])

    assert (row.attempts, row.p50, row.p95, row.p99) == (103, 5.0, 9.5, 9.9)
    assert row.success == 100 / 101
    assert row.rejections == 1 / 103


def test_quantile_of_nothing() -> None:
    assert quantile([], 0.5) is None
    assert quantiles([ended(OutcomeClass.RELEASED, None)])[0].success is None


def test_timeout_is_proposed_where_it_is_far_off() -> None:
    table = quantiles([ended(seconds=4.0)] * 60)

    assert propose(table, timeout_ms=60_000)["a log.query: timeout_ms"].proposed == "6000"
    assert "a log.query: timeout_ms" not in propose(table, timeout_ms=7_000)


def test_few_successes_propose_no_timeout() -> None:
    assert propose(quantiles([ended(seconds=4.0)] * 49), timeout_ms=60_000) == {}


def test_streak_grows_with_what_chance_reaches() -> None:
    """2,000 attempts a day, a fifth fails: five in a row come 0.6 times a day, seven less than once in ten days."""
    items = [ended()] * 1600 + [ended(OutcomeClass.FAILED, None)] * 400

    assert propose(quantiles(items))["breaker.streak"].proposed == "7"


def test_streak_is_left_where_it_fits() -> None:
    items = [ended()] * 1600 + [ended(OutcomeClass.FAILED, None)] * 400

    assert "breaker.streak" not in propose(quantiles(items), breaker=BreakerPolicy(streak=7, rate_floor=None))


def test_shorter_streak_where_failures_are_rare() -> None:
    items = [ended()] * 999 + [ended(OutcomeClass.FAILED, None)]

    assert propose(quantiles(items))["breaker.streak"].proposed == "2"


def test_floor_follows_the_usual_rate() -> None:
    items = [ended()] * 99 + [ended(OutcomeClass.FAILED, None)]

    assert (
        propose(quantiles(items), breaker=BreakerPolicy(rate_floor=0.4))["breaker.rate_floor"].proposed
        == "0.74"
    )
    assert "breaker.rate_floor" not in propose(quantiles(items), breaker=BreakerPolicy(rate_floor=0.7))
