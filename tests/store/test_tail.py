"""Following the reach log while somebody writes it."""

from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.outcome import OutcomeClass
from reach_worker.errors import StoreUnavailable
from reach_worker.ports import BreakerMoved, Dispatched, Ended, OutcomeSeen
from reach_worker.store import SqliteStore
from reach_worker.store.tail import Tail
from tests.store.sample import NOON, accepted, decided, dispatched, seen, succeeded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reach.db"


async def test_every_row_comes_once_and_in_the_order_of_time(path: Path) -> None:
    first: list[Dispatched | BreakerMoved] = [
        dispatched(at=NOON + 1),
        BreakerMoved("grep", "r1", "open", NOON + 2, "why"),
    ]
    then: list[BreakerMoved | OutcomeSeen | Ended] = [
        seen(OutcomeClass.FAILED, at=NOON + 2),
        BreakerMoved("sed", "r1", "open", NOON + 2, "at the same moment"),
        succeeded(at=NOON + 3),
    ]
    async with SqliteStore.open(path, clock=SystemClock(), wait_s=10) as store, Tail(path) as tail:
        assert await tail.news() == []
        assert await store.record([accepted(), decided(), *reversed(first)])
        assert await tail.news() == first
        assert await tail.news() == []
        assert await store.record([*reversed(then), *first])  # some of it again, as after a crash
        assert sorted(await tail.news(), key=repr) == sorted(then, key=repr)
        assert await tail.news() == []


async def test_it_tells_lives_apart(path: Path) -> None:
    async with SqliteStore.open(path, clock=SystemClock(), wait_s=10) as store, Tail(path) as tail:
        assert await store.record(
            [accepted(), dispatched(), accepted(life=1), dispatched(life=1, dispatch_id="d2")]
        )
        assert await tail.news() == [dispatched(), dispatched(life=1, dispatch_id="d2")]


async def test_without_a_store_it_says_so(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="there is no store yet"):
        async with Tail(path):
            pass
