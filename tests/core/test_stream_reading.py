"""What a caller sees of a stream, whatever order messages come in, and whoever else still speaks."""

from itertools import chain
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.stream_reading import (
    AHEAD,
    Chunk,
    ChunksLost,
    Event,
    Progress,
    Reading,
    Rerouted,
    Started,
    result_event,
)
from reach_worker.core.streaming import Speaker

A = Speaker("t1", "f1", "ann", 1, "a" * 32)
B = Speaker("t1", "f1", "bob", 2, "b" * 32)


def chunk(speaker: Speaker, seq: int) -> bytes:
    return speaker.chunk(seq, b'"%d"' % seq)


def read(*bodies: bytes, reading: Reading | None = None) -> list[Event]:
    taking = reading or Reading()
    return list(chain.from_iterable(taking.take(orjson.loads(body)) for body in bodies))


def seen(speaker: Speaker, *seqs: int) -> list[Event]:
    return [Chunk(str(seq), seq, speaker.agent_id, speaker.attempt) for seq in seqs]


def test_a_run_is_told_in_order() -> None:
    events = read(A.started(), chunk(A, 0), A.progress(0.5, "half"), chunk(A, 1), A.progress(None, "hm"))
    assert events == [
        Started("ann", 1),
        *seen(A, 0),
        Progress(0.5, "half", "ann", 1),
        *seen(A, 1),
        Progress(None, "hm", "ann", 1),
    ]


def test_another_run_is_marked_and_the_old_one_is_heard_no_more() -> None:
    events = read(
        A.started(),
        chunk(A, 0),
        B.started(),
        chunk(A, 1),
        chunk(B, 0),
        A.started(),
        A.progress(1, ""),
        chunk(B, 1),
    )
    assert events == [Started("ann", 1), *seen(A, 0), Rerouted("bob", 2), *seen(B, 0, 1)]


def test_a_run_that_begins_again_on_another_instance_is_marked_too() -> None:
    events = read(A.started(), chunk(A, 0), chunk(A, 1), A.started(), chunk(A, 0))
    assert events == [Started("ann", 1), *seen(A, 0, 1), Rerouted("ann", 1), *seen(A, 0)]


def test_what_is_sent_twice_is_told_once() -> None:
    events = read(A.started(), A.started(), chunk(A, 0), chunk(A, 0), chunk(A, 1), chunk(A, 0))
    assert events == [Started("ann", 1), *seen(A, 0, 1)]


def test_what_the_broker_refused_comes_later_and_is_put_in_its_place() -> None:
    events = read(A.started(), chunk(A, 0), chunk(A, 2), chunk(A, 3), chunk(A, 1), chunk(A, 2), chunk(A, 4))
    assert events == [Started("ann", 1), *seen(A, 0, 1, 2, 3, 4)]


def test_what_never_comes_is_told_as_lost_before_what_follows() -> None:
    reading = Reading()
    assert read(A.started(), chunk(A, 0), chunk(A, 3), reading=reading) == [Started("ann", 1), *seen(A, 0)]
    assert reading.end({"agent": "ann", "attempt": 1}) == [ChunksLost(2), *seen(A, 3)]


def test_it_is_not_waited_for_without_end() -> None:
    later = range(2, 2 + AHEAD + 1)
    events = read(A.started(), chunk(A, 0), *(chunk(A, seq) for seq in later))
    assert events == [Started("ann", 1), *seen(A, 0), ChunksLost(1), *seen(A, *later)]


def test_a_queue_that_lost_its_oldest_still_tells_who_speaks() -> None:
    reading = Reading()
    assert read(chunk(A, 7), reading=reading) == [Started("ann", 1)]
    assert reading.end({"agent": "ann", "attempt": 1}) == [ChunksLost(7), *seen(A, 7)]


def test_the_one_who_answers_need_not_be_the_one_who_spoke() -> None:
    reading = Reading()
    read(A.started(), chunk(A, 0), reading=reading)
    answer = {"agent": "bob", "attempt": 2, "result": "whole"}
    assert reading.end(answer) == [Rerouted("bob", 2)]
    assert result_event("whole", answer).agent == "bob"
    assert Reading().end(answer) == []


def test_what_is_missing_at_the_end_is_told_before_the_result() -> None:
    reading = Reading()
    read(A.started(), chunk(A, 0), reading=reading)
    assert reading.end({"agent": "ann", "attempt": 1, "chunks": 3}) == [ChunksLost(2)]
    assert reading.end({"agent": "ann", "attempt": 1, "chunks": 1}) == []
    assert reading.end({"agent": "ann", "attempt": 1}) == []
    assert reading.end({"agent": "bob", "attempt": 2, "chunks": 2}) == [Rerouted("bob", 2), ChunksLost(2)]
    assert Reading().end({"agent": "ann", "attempt": 1, "chunks": 2}) == [ChunksLost(2)]
    assert Reading().end({"agent": "ann", "attempt": 1, "chunks": "two"}) == []


def test_a_chunk_that_says_nothing_is_passed_over() -> None:
    reading = Reading()
    read(A.started(), reading=reading)
    said = orjson.loads(chunk(A, 0))
    assert reading.take({**said, "seq": "0"}) == []
    assert reading.take({name: value for name, value in said.items() if name != "chunk"}) == []


def test_a_connection_that_was_lost_is_told() -> None:
    assert Reading().interrupt() == [ChunksLost(None)]


JUNK = st.dictionaries(
    st.sampled_from(["status", "run", "agent", "attempt", "seq", "chunk", "progress", "note"]),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=3),
        st.sampled_from(["started", "streaming"]),
    ),
)


@given(st.lists(JUNK, max_size=20))
def test_nothing_that_is_sent_makes_it_stumble(junk: list[dict[str, Any]]) -> None:
    reading = Reading()
    for said in junk:
        reading.take(said)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_never_a_mixture_and_never_a_gap_that_is_not_told(said: list[tuple[bool, int]]) -> None:
    """Chunks of two runs in any order: after each marker they count on from 0, but for what is told as lost."""
    reading, events = Reading(), list[Event]()
    for other, seq in said:
        speaker = B if other else A
        events += read(speaker.started() if seq == 0 else chunk(speaker, seq - 1), reading=reading)
    events += reading.end({})
    who, turn = ("", 0), 0
    for event in events:
        match event:
            case Started(agent, attempt) | Rerouted(agent, attempt):
                who, turn = (agent, attempt), 0
            case Chunk(_, seq, agent, attempt):
                assert (agent, attempt) == who
                assert seq == turn
                turn += 1
            case ChunksLost(missing):
                turn += missing or 0
            case _:
                raise AssertionError(event)
