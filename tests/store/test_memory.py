"""The store in memory, where it is more than the port: a test may look inside, and send it away."""

from reach_worker.core.outcome import OutcomeClass
from reach_worker.store import MemoryStore
from tests.store.sample import accepted, dispatched, joined, manifest, seen


async def test_what_is_recorded_can_be_looked_at() -> None:
    store = MemoryStore()
    await store.record([accepted(), dispatched()])
    await store.record([accepted()])

    assert store.rows == [accepted(), dispatched(), accepted()]


async def test_while_it_is_away_it_keeps_rows_and_knows_nothing() -> None:
    store = MemoryStore()
    await store.record([accepted("t0")])
    store.away = True

    assert not await store.record([accepted(), dispatched(), seen(OutcomeClass.FAILED), joined(), manifest()])
    assert await store.known_tasks(["t0", "t1"]) == {}
    assert await store.known_dispatches(["d1"]) == {}
    assert await store.open_dispatches("r1") == []
    assert await store.waiters(["t1"]) == {}
    assert await store.manifests() == []
    assert (await store.track_record()).tracks == {}

    store.away = False
    assert set(await store.known_tasks(["t0", "t1"])) == {"t0", "t1"}
    assert await store.waiters(["t1"]) == {"t1": [joined()]}
    assert await store.manifests() == [manifest().body]


async def test_statistics_handed_out_are_the_askers_own() -> None:
    store = MemoryStore()
    await store.record([seen()])
    (await store.track_record()).touch("grep", "log.query").slow.tries = 99.0

    assert (await store.track_record()).touch("grep", "log.query").slow.tries == 1.0
