"""Rows on their way to the database."""

import asyncio

from reach_worker.ports import Row
from reach_worker.store.unwritten import Entry, Unwritten
from tests.store.sample import accepted, dispatched, joined, manifest, seen, started


def entry(*rows: Row) -> Entry:
    return Entry(rows, asyncio.get_running_loop().create_future())


async def test_entries_are_taken_whole_and_stay_until_they_are_written() -> None:
    waiting = Unwritten()
    first, second, third = entry(accepted("t1"), accepted("t2")), entry(accepted("t3")), entry(accepted("t4"))
    for one in (first, second, third):
        waiting.add(one)

    assert waiting.take(1) == [first]
    assert waiting.take(3) == [first, second]
    assert waiting.rows == 4
    waiting.put_back()
    assert waiting.take(100) == [first, second, third]
    waiting.drop_taken()
    assert (waiting.rows, waiting.take(1), waiting.all_rows()) == (0, [], [])


async def test_the_newest_give_way_but_not_what_is_on_its_way() -> None:
    waiting = Unwritten()
    entries = [entry(accepted(f"t{number}")) for number in range(5)]
    for one in entries:
        waiting.add(one)
    waiting.take(2)

    assert waiting.drop_newest(4) == entries[4:]
    assert waiting.drop_newest(0) == entries[2:4]
    assert waiting.rows == 2
    waiting.drop_taken()
    assert waiting.drop_newest(0) == []


async def test_rows_are_found_by_what_they_are_about_until_they_are_gone() -> None:
    waiting = Unwritten()
    rows: list[Row] = [accepted(), dispatched(), started(), joined(), seen()]
    waiting.add(entry(*rows[:3], manifest()))
    waiting.add(entry(*rows[3:], accepted("t2")))

    assert waiting.of_tasks(["t1", "t9"]) == [rows[0], rows[1], rows[3], rows[4]]
    assert waiting.of_dispatches(["d1", "d9"]) == [rows[1], rows[2], rows[4]]
    waiting.take(1)
    waiting.drop_taken()
    assert waiting.of_tasks(["t1"]) == [rows[3], rows[4]]
    assert waiting.of_dispatches(["d1"]) == [rows[4]]
    waiting.drop_newest(0)
    assert waiting.of_tasks(["t1", "t2"]) == waiting.of_dispatches(["d1"]) == []


async def test_the_same_row_twice_goes_once_at_a_time() -> None:
    waiting = Unwritten()
    waiting.add(entry(accepted()))
    waiting.add(entry(accepted()))
    waiting.take(1)
    waiting.drop_taken()

    assert waiting.of_tasks(["t1"]) == [accepted()]


async def test_whoever_waits_is_told_once() -> None:
    one = entry(accepted())
    one.settle(written=True)
    one.settle(written=False)

    assert one.written.result()
