import pytest

from reach_worker.bench.knowledge import Knowledge, beat_of, fleet_for, manifest_of
from reach_worker.bench.tasks import ATTEMPT_S, CAPABILITY, Attempt, Ended, Luck, Task
from reach_worker.core.breaker import BreakerState
from reach_worker.core.gates import Ask
from reach_worker.core.outcome import OutcomeClass
from tests.bench.small_fleets import agent

MANIFEST = manifest_of(agent("a", slots=4))


def known(*, routers: int = 1, early: bool = False) -> Knowledge:
    knowledge = Knowledge(fleet_for(routers, early=early), lambda: 0.5)
    knowledge.meet(MANIFEST, 0.0)
    return knowledge


def attempt(name: str, *, at: float = 0.0, limit_s: float = ATTEMPT_S) -> Attempt:
    task = Task(Ask(name, CAPABILITY, {}), at, (Luck(0.5, 0.5),))
    return Attempt(task, 1, "a", at, at + limit_s, lambda _attempt, _ended: None)


def test_the_manifest_says_what_the_agent_says() -> None:
    (capability,) = MANIFEST.capabilities
    assert (capability.latency_ms, capability.cost, MANIFEST.max_concurrency) == (1000, 3, 4)


@pytest.mark.parametrize(("routers", "early", "slots"), [(1, False, 4), (4, False, 1), (4, True, 100_000)])
def test_slots(routers: int, early: bool, slots: int) -> None:
    assert known(routers=routers, early=early).fleet.free_slots(CAPABILITY, 0.0) == slots


def test_the_load_is_its_own_at_once_and_that_of_others_late_and_smoothed() -> None:
    knowledge = known(routers=2)
    knowledge.send(attempt("t1"))
    assert knowledge.under_way("a") == 1.0
    knowledge.hear(beat_of(MANIFEST, ()), 10, 3.0)
    assert knowledge.under_way("a") == pytest.approx(1.0 + 0.7 * 10)
    knowledge.hear(beat_of(MANIFEST, ()), 0, 6.0)
    assert knowledge.under_way("a") == pytest.approx(1.0 + 0.3 * 7)


def test_an_outcome_gives_the_slot_back_and_counts() -> None:
    knowledge, sent = known(), attempt("t1")
    knowledge.send(sent)
    knowledge.settle(sent, Ended(OutcomeClass.SUCCEEDED, 1.5), 1.5)
    track = knowledge.fleet.record.of("a", CAPABILITY)
    assert track is not None
    assert (track.success(), track.service.quantile(0.5), len(knowledge.fleet.leases)) == (1.0, 1.5, 0)


def test_failures_open_the_breaker_and_its_probe_is_leased() -> None:
    knowledge = known()
    reopens = [fail(knowledge, f"t{n}", at=1.0) for n in range(5)]
    assert reopens == [None, None, None, None, 31.0]
    breaker = knowledge.fleet.agents["a"].breaker
    knowledge.fleet.free_slots(CAPABILITY, 31.0)
    probe = attempt("probe", at=31.0)
    knowledge.send(probe)
    assert breaker.probe == probe.dispatch_id
    knowledge.settle(probe, Ended(OutcomeClass.SUCCEEDED, 1.0), 32.0)
    assert breaker.state is BreakerState.CLOSED


def test_a_time_out_that_the_deadline_made_is_nobodys_fault() -> None:
    knowledge = known()
    for n in range(10):
        cut = attempt(f"t{n}", limit_s=2.0)
        knowledge.send(cut)
        assert knowledge.settle(cut, Ended(OutcomeClass.TIMEOUT, 2.0), 2.0) is None
    assert knowledge.fleet.record.of("a", CAPABILITY) is None
    assert len(knowledge.fleet.leases) == 0


def fail(knowledge: Knowledge, name: str, *, at: float) -> float | None:
    sent = attempt(name)
    knowledge.send(sent)
    return knowledge.settle(sent, Ended(OutcomeClass.FAILED, 1.0), at)
