"""Errors say whose fault it is, carry data, and read as sentences."""

import pickle

import pytest

from reach_worker.errors import (
    BadInput,
    BrokerUnavailable,
    OurBug,
    OutsideWorld,
    Problem,
    ReachError,
    StoreForeign,
    StoreNewer,
    StoreUnavailable,
    TopologyMismatch,
    WrongCredentials,
)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("is wrong"), "is wrong"),
        (Problem("is wrong", "/a"), "/a: is wrong"),
        (Problem("is wrong", file="f"), "f: is wrong"),
        (Problem("is wrong", "/a", "f", 3), "f:3: /a: is wrong"),
        (Problem("is wrong", "/a", "f", 3, 5, "mend it"), "f:3:5: /a: is wrong (mend it)"),
    ],
)
def test_a_problem_is_one_line(problem: Problem, text: str) -> None:
    assert problem.render() == text


def test_bad_input_is_one_line_per_problem() -> None:
    error = BadInput([Problem("one", "/a"), Problem("two", "/b")])

    assert str(error) == "/a: one\n/b: two"
    assert [problem.field for problem in error.problems] == ["/a", "/b"]


def test_bad_input_takes_one_problem_or_a_text() -> None:
    assert BadInput(Problem("one")).problems == (Problem("one"),)
    assert BadInput("one").problems == (Problem("one"),)


def test_a_topology_mismatch_names_queue_and_argument() -> None:
    error = TopologyMismatch("reach.v1.dlq", "x-queue-type", expected="quorum", found="classic", detail="406")

    assert (error.queue, error.argument) == ("reach.v1.dlq", "x-queue-type")
    assert "'reach.v1.dlq' exists on the broker with another 'x-queue-type'" in str(error)
    assert "expected 'quorum', found 'classic' (406)" in str(error)
    assert "expected" not in str(TopologyMismatch("q", "durable"))


@pytest.mark.parametrize(
    "kind",
    [BrokerUnavailable, WrongCredentials, TopologyMismatch, StoreUnavailable, StoreForeign, StoreNewer],
)
def test_the_outside_world_is_neither_the_callers_fault_nor_ours(kind: type[Exception]) -> None:
    assert issubclass(kind, OutsideWorld)
    assert not issubclass(kind, BadInput | OurBug)
    assert issubclass(kind, ReachError)


@pytest.mark.parametrize(
    "error", [BadInput([Problem("x", "/a"), Problem("y")]), TopologyMismatch("q", "a", expected=1, found=2)]
)
def test_an_error_survives_the_way_between_processes(error: ReachError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes

    assert str(again) == str(error)
