"""The Store port: one suite for every store."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.success import WINDOW, Track
from reach_worker.ports import AnswerLost, BreakerMoved, Claimed, Row, Standing, Store, Unclaimed, Unsent
from reach_worker.store import MemoryStore, SqliteStore
from tests.store.sample import (
    NOON,
    SECOND,
    accepted,
    dead,
    decided,
    dispatched,
    joined,
    manifest,
    parked,
    seen,
    started,
    succeeded,
)

Opened = AbstractAsyncContextManager[Store]


@asynccontextmanager
async def in_sqlite(folder: Path) -> AsyncIterator[Store]:
    async with SqliteStore.open(folder / "reach.db", clock=SystemClock(), wait_s=10) as store:
        yield store


@asynccontextmanager
async def in_memory(_: Path) -> AsyncIterator[Store]:
    yield MemoryStore()


@pytest.fixture(params=[in_sqlite, in_memory])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    make: Callable[[Path], Opened] = request.param
    return make(tmp_path)


async def known(store: Store, *rows: Row) -> KnownTask | None:
    """What is known of t1 after these rows."""
    assert await store.record(rows)
    return (await store.known_tasks(["t1"])).get("t1")


async def test_a_store_that_knows_nothing_says_so(opened: Opened) -> None:
    async with opened as store:
        assert await store.known_tasks(["t1"]) == {}
        assert await store.known_tasks([]) == {}
        assert await store.known_dispatches(["d1"]) == {}
        assert await store.open_dispatches("r1") == []
        assert await store.waiters(["t1"]) == {}
        assert await store.manifests() == []
        assert (await store.track_record()).tracks == {}


async def test_an_accepted_task_is_under_way(opened: Opened) -> None:
    async with opened as store:
        assert await known(store, accepted()) == KnownTask(
            "t1",
            0,
            TaskState.UNDER_WAY,
            "r1",
            dispatch_id=None,
            attempts_ended=0,
            remember_until=0,
            answer=None,
        )


async def test_a_dispatch_is_out_until_its_current_outcome(opened: Opened) -> None:
    async with opened as store:
        out = await known(store, accepted(), decided(), dispatched(router="r2"))
        late = await known(store, seen(standing=Standing.STALE))
        back = await known(store, seen(OutcomeClass.FAILED))

    assert out is not None
    assert (out.dispatch_id, out.router, out.attempts_ended) == ("d1", "r2", 0)
    assert late == out
    assert back == replace(out, dispatch_id=None, attempts_ended=1)


async def test_a_released_dispatch_is_no_attempt(opened: Opened) -> None:
    async with opened as store:
        task = await known(store, accepted(), dispatched(), seen(OutcomeClass.RELEASED))

        assert task is not None
        assert (task.dispatch_id, task.attempts_ended) == (None, 0)


async def test_attempts_are_counted_by_dispatch(opened: Opened) -> None:
    async with opened as store:
        task = await known(
            store,
            accepted(),
            dispatched(),
            seen(OutcomeClass.TIMEOUT),
            seen(OutcomeClass.SUCCEEDED),
            dispatched(dispatch_id="d2", attempt=2),
        )

        assert task is not None
        assert (task.dispatch_id, task.attempts_ended) == ("d2", 1)


async def test_the_latest_dispatch_is_the_one_that_is_out(opened: Opened) -> None:
    async with opened as store:
        task = await known(
            store,
            accepted(),
            dispatched(dispatch_id="d3", attempt=2, at=NOON),
            dispatched(dispatch_id="d1", attempt=1, at=NOON + 9),
            dispatched(dispatch_id="d2", attempt=2, at=NOON - 1),
        )

        assert task is not None
        assert task.dispatch_id == "d3"


async def test_an_ended_task_keeps_its_answer(opened: Opened) -> None:
    async with opened as store:
        task = await known(
            store, accepted(), dispatched(), seen(), succeeded(at=NOON + SECOND, answer=b"\xff\x00 4")
        )

        assert task is not None
        assert (task.state, task.answer) == (TaskState.SUCCEEDED, b"\xff\x00 4")
        assert task.remember_until == NOON + 61 * SECOND


async def test_accepting_the_same_life_again_changes_nothing(opened: Opened) -> None:
    async with opened as store:
        ended = await known(store, accepted(), dead())

        assert await known(store, accepted(at=NOON + SECOND)) == ended


async def test_a_higher_life_begins_anew(opened: Opened) -> None:
    async with opened as store:
        await known(store, accepted(), dispatched(), seen(OutcomeClass.FAILED), dead(), parked())
        anew = await known(store, accepted(life=1))

        assert anew == KnownTask("t1", 1, TaskState.UNDER_WAY, "r1", None, 0, 0, None)
        assert await known(store, succeeded(life=0), parked(life=0), dispatched(dispatch_id="d2")) == anew


async def test_the_first_end_counts(opened: Opened) -> None:
    async with opened as store:
        first = await known(store, accepted(), dead())

        assert await known(store, succeeded(at=NOON + 1), dead(at=NOON + 2)) == first


async def test_a_late_success_resolves_an_unknown_outcome(opened: Opened) -> None:
    async with opened as store:
        await known(store, accepted(), dead(reason=DeadLetterReason.OUTCOME_UNKNOWN))
        task = await known(store, succeeded(at=NOON + 1))

        assert task is not None
        assert (task.state, task.answer) == (TaskState.SUCCEEDED, b"{}")
        assert await known(store, dead(reason=DeadLetterReason.OUTCOME_UNKNOWN, at=NOON + 2)) == task


async def test_a_parked_task_waits_until_it_is_dispatched(opened: Opened) -> None:
    async with opened as store:
        waits = await known(store, accepted(), dispatched(), parked(at=NOON + 1))
        goes_on = await known(store, dispatched(dispatch_id="d2", at=NOON + 2))

        assert waits is not None
        assert waits.state is TaskState.UNMATCHED
        assert goes_on is not None
        assert (goes_on.state, goes_on.dispatch_id) == (TaskState.UNDER_WAY, "d2")


async def test_rows_may_come_before_the_one_that_accepts(opened: Opened) -> None:
    async with opened as store:
        early = await known(store, decided(), seen(), dispatched())
        task = await known(store, accepted())

        assert early is not None
        assert (early.state, early.router) == (TaskState.UNDER_WAY, "r1")
        assert task == early


async def test_a_dispatch_tells_whether_it_started_and_is_settled(opened: Opened) -> None:
    async with opened as store:
        await store.record([accepted(), dispatched(), dispatched(dispatch_id="d2", attempt=2)])
        fresh = await store.known_dispatches(["d1", "d2", "d9"])
        await store.record([started(), seen(dispatch_id="d2", standing=Standing.STALE)])
        running = await store.known_dispatches(["d1", "d2"])
        await store.record([seen(OutcomeClass.TIMEOUT)])
        settled = await store.known_dispatches(["d1", "d2"])

    assert set(fresh) == {"d1", "d2"}
    one = fresh["d1"]
    assert (one.task_id, one.life, one.attempt, one.agent_id, one.at) == ("t1", 0, 1, "grep", NOON)
    assert (one.capability, one.decision_id, one.router) == ("log.query", "x1", "r1")
    assert (one.started, one.settled) == (False, False)
    assert running == {"d1": replace(one, started=True), "d2": fresh["d2"]}
    assert settled == {"d1": replace(one, started=True, settled=True), "d2": fresh["d2"]}


async def test_open_dispatches_are_those_that_may_still_come_back(opened: Opened) -> None:
    async with opened as store:
        await store.record(
            [
                *(accepted(f"t{number}") for number in range(1, 6)),
                dispatched("t1", dispatch_id="d1", at=NOON + 2),
                dispatched("t2", dispatch_id="d2", at=NOON + 1),
                dispatched("t3", dispatch_id="d3", router="r2"),
                dispatched("t4", dispatch_id="d4"),
                seen(OutcomeClass.FAILED, "d4", "t4"),
                dispatched("t5", dispatch_id="d5"),
                succeeded("t5"),
            ]
        )

        assert [one.dispatch_id for one in await store.open_dispatches("r1")] == ["d2", "d1"]
        assert [one.dispatch_id for one in await store.open_dispatches("r2")] == ["d3"]


async def test_each_waiter_is_kept_once_in_the_order_they_came(opened: Opened) -> None:
    first, second, third = (
        joined(at=NOON),
        joined(correlation_id=None, at=NOON + 1),
        joined(reply_to="q2", at=NOON + 2),
    )
    async with opened as store:
        await store.record([third, first, joined("t2"), first])
        await store.record([second, second, replace(first, at=NOON + 5)])

        assert await store.waiters(["t1", "t9"]) == {"t1": [first, second, third]}


async def test_statistics_are_the_ones_of_the_core(opened: Opened) -> None:
    outcomes = [
        OutcomeClass.SUCCEEDED, OutcomeClass.FAILED, OutcomeClass.RATE_LIMITED, OutcomeClass.REJECTED,
        OutcomeClass.SUCCEEDED, OutcomeClass.TIMEOUT, OutcomeClass.RELEASED, OutcomeClass.UNAVAILABLE,
        OutcomeClass.BAD_REQUEST, OutcomeClass.CANCELLED, OutcomeClass.SUCCEEDED,
        OutcomeClass.HANDOFF,
    ]  # fmt: skip
    times = [NOON + 7 * SECOND * number + number for number in range(len(outcomes))]
    rows = [
        seen(outcome, f"d{number}", f"t{number}", at=at, duration_ms=10.0 * number)
        for number, (outcome, at) in enumerate(zip(outcomes, times, strict=True))
    ]
    by_hand = Track()
    for row in rows:
        now = row.at / 1e6
        if row.outcome is OutcomeClass.SUCCEEDED:
            by_hand.ended(now, good=True, seconds=(row.duration_ms or 0.0) / 1000)
        elif row.outcome is OutcomeClass.HANDOFF:
            by_hand.ended(now, good=True, seconds=None)
        elif row.outcome in {OutcomeClass.FAILED, OutcomeClass.TIMEOUT, OutcomeClass.UNAVAILABLE}:
            by_hand.ended(now, good=False, seconds=None)
        elif row.outcome is OutcomeClass.REJECTED:
            by_hand.rejected(now)

    async with opened as store:
        for row in rows[:3]:
            await store.record([row])
        await store.record(rows[3:])
        record = await store.track_record()

    assert list(record.tracks) == [("grep", "log.query")]
    track = record.tracks["grep", "log.query"]
    assert (track.slow, track.fast, track.rejections) == (by_hand.slow, by_hand.fast, by_hand.rejections)
    assert list(track.service.recent) == list(by_hand.service.recent) == [0.0, 0.04, 0.1]


async def test_an_outcome_counts_once(opened: Opened) -> None:
    async with opened as store:
        await store.record([seen(), seen()])
        await store.record([seen(), seen(at=NOON + SECOND), seen(OutcomeClass.FAILED)])
        await store.record([seen(OutcomeClass.FAILED, "d2", standing=Standing.STALE)])
        track = (await store.track_record()).of("grep", "log.query")

    assert track is not None
    assert (track.slow.good, track.slow.tries) == (1.0, 1.0)


async def test_agents_that_nothing_counts_for_or_against_have_no_record(opened: Opened) -> None:
    async with opened as store:
        await store.record([seen(OutcomeClass.RELEASED), seen(OutcomeClass.RATE_LIMITED, "d2")])

        assert (await store.track_record()).of("grep", "log.query") is None


async def test_the_last_service_times_are_remembered(opened: Opened) -> None:
    rows = [
        seen(dispatch_id=f"d{number}", at=NOON + number, duration_ms=float(number))
        for number in range(WINDOW + 44)
    ]
    async with opened as store:
        await store.record([*rows, seen(dispatch_id="unknown", at=NOON + WINDOW + 44)])
        track = (await store.track_record()).of("grep", "log.query")

    assert track is not None
    assert [round(seconds * 1000) for seconds in track.service.recent] == list(range(44, WINDOW + 44))


async def test_the_manifest_seen_last_is_the_one(opened: Opened) -> None:
    async with opened as store:
        await store.record(
            [manifest("sed", "h1"), manifest("grep", "h2", at=NOON + 1), manifest("grep", "h1")]
        )
        assert await store.manifests() == [manifest("grep", "h2").body, manifest("sed", "h1").body]

        await store.record([manifest("grep", "h1", at=NOON + 2)])
        assert await store.manifests() == [manifest("grep", "h1").body, manifest("sed", "h1").body]


async def test_who_published_a_task_is_known_once_it_was_accepted(opened: Opened) -> None:
    async with opened as store:
        before = await known(store, dispatched())
        after = await known(store, accepted())

    assert before is not None
    assert after is not None
    assert (before.caller, after.caller) == ("", "anonymous")


async def test_everything_may_be_recorded_twice(opened: Opened) -> None:
    rows: list[Row] = [
        accepted(), decided(), dispatched(), started(), seen(OutcomeClass.FAILED), parked(), dead(), joined(),
        AnswerLost("t1", "q1", NOON), BreakerMoved("grep", "r1", "open", NOON, "5 in a row"), manifest(),
    ]  # fmt: skip
    async with opened as store:
        assert await store.record(rows)
        once = await everything(store)
        assert await store.record(rows[::-1])

        assert await everything(store) == once


async def everything(store: Store) -> tuple[object, ...]:
    return (
        await store.known_tasks(["t1"]),
        await store.known_dispatches(["d1"]),
        await store.open_dispatches("r1"),
        await store.waiters(["t1"]),
        (await store.track_record()).tracks,
        await store.manifests(),
    )


async def test_many_are_asked_for_at_once(opened: Opened) -> None:
    ids = [f"t{number}" for number in range(2000)]
    async with opened as store:
        await store.record([accepted(task_id) for task_id in ids[::2]])
        tasks = await store.known_tasks(ids)

        assert sorted(tasks) == sorted(ids[::2])


async def test_nothing_may_be_recorded(opened: Opened) -> None:
    async with opened as store:
        assert await store.record([])


# -- claims: who begins


async def holder(store: Store, *rows: Row) -> tuple[int, str, int] | None:
    """Life, router and time of the claim of t1 that counts after these rows."""
    task = await known(store, *rows)
    return (task.life, task.claimed_by, task.claimed_at) if task is not None and task.claimed_by else None


async def test_the_first_claim_counts(opened: Opened) -> None:
    async with opened as store:
        assert await holder(store, Claimed("t1", 0, "r1", NOON)) == (0, "r1", NOON)
        assert await holder(store, Claimed("t1", 0, "r2", NOON + 1)) == (0, "r1", NOON)
        task = (await store.known_tasks(["t1"]))["t1"]
        assert (task.state, task.dispatch_id, task.answer) == (TaskState.UNDER_WAY, None, None)


async def test_a_router_renews_its_claim_and_another_takes_it_over_by_name(opened: Opened) -> None:
    async with opened as store:
        assert await holder(store, Claimed("t1", 0, "r1", NOON)) == (0, "r1", NOON)
        assert await holder(store, Claimed("t1", 0, "r1", NOON + 5)) == (0, "r1", NOON + 5)
        late = Claimed("t1", 0, "r2", NOON + 6, instead_of="r1", instead_at=NOON)
        assert await holder(store, late) == (0, "r1", NOON + 5), "it was renewed meanwhile"
        right = Claimed("t1", 0, "r2", NOON + 7, instead_of="r1", instead_at=NOON + 5)
        assert await holder(store, right) == (0, "r2", NOON + 7)


async def test_all_claims_of_a_router_until_a_time_are_given_up(opened: Opened) -> None:
    async with opened as store:
        assert await holder(store, Claimed("t1", 0, "r1", NOON), Unclaimed("r1", NOON - 1)) is not None
        assert await holder(store, Unclaimed("r2", NOON)) is not None
        assert await known(store, Unclaimed("r1", NOON)) is None


async def test_an_accepted_life_has_no_claim(opened: Opened) -> None:
    async with opened as store:
        assert await holder(store, Claimed("t1", 0, "r1", NOON), accepted()) is None
        assert await holder(store, Claimed("t1", 0, "r2", NOON + 1)) is None, "it came too late"


async def test_the_next_life_is_claimed_over_the_end_of_the_one_before(opened: Opened) -> None:
    async with opened as store:
        ended = await known(store, accepted(), dead())
        assert ended is not None
        assert ended.state is TaskState.DEAD_LETTER
        assert await holder(store, Claimed("t1", 1, "r2", NOON + 9)) == (1, "r2", NOON + 9)
        assert await known(store, Unclaimed("r2", NOON + 9)) == ended


# -- lines: which dispatch came after which


async def line(store: Store, *rows: Row) -> tuple[tuple[str, str], ...]:
    task = await known(store, *rows)
    assert task is not None
    return task.sent


def sent(dispatch_id: str, after: str = "", **fields: Any) -> Row:
    return replace(dispatched(dispatch_id=dispatch_id), after=after, **fields)


async def test_dispatches_are_known_in_the_order_in_which_they_were_recorded(opened: Opened) -> None:
    async with opened as store:
        assert await line(store, accepted(), sent("z")) == (("z", ""),)
        assert await line(store, sent("a"), sent("m", "z")) == (("z", ""), ("a", ""), ("m", "z"))
        task = (await store.known_tasks(["t1"]))["t1"]
        assert task.out == {"z", "a", "m"}


async def test_one_whose_outcome_nobody_acted_on_is_no_part_of_the_line(opened: Opened) -> None:
    async with opened as store:
        rows = [accepted(), sent("z"), sent("a"), seen(dispatch_id="z", standing=Standing.STALE)]
        assert await line(store, *rows) == (("a", ""),)
        assert await line(store, seen(dispatch_id="z")) == (("z", ""), ("a", ""))
        assert (await store.known_tasks(["t1"]))["t1"].out == {"a"}


async def test_what_must_be_the_first_in_its_place_is_recorded_only_there(opened: Opened) -> None:
    async with opened as store:
        assert await line(store, accepted(), sent("z", only_first=True)) == (("z", ""),)
        assert await line(store, sent("a", only_first=True)) == (("z", ""),)
        assert await store.known_dispatches(["a"]) == {}
        assert await line(store, sent("z", only_first=True)) == (("z", ""),), "it is the first"
        assert await line(store, sent("b", "z", only_first=True)) == (("z", ""), ("b", "z"))


async def test_what_was_never_sent_stands_in_nobodys_place(opened: Opened) -> None:
    async with opened as store:
        assert await line(store, accepted(), sent("z", only_first=True), Unsent("z", "t1", 0)) == ()
        assert await line(store, sent("a", only_first=True)) == (("a", ""),)


async def test_it_may_be_said_before_it_is_recorded(opened: Opened) -> None:
    async with opened as store:
        assert await line(store, accepted(), Unsent("z", "t1", 0)) == ()
        assert await line(store, sent("z", only_first=True), sent("a", only_first=True)) == (("a", ""),)
