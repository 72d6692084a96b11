"""Names of queues and exchanges, and which of them are ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.backoff import RUNGS_MS
from reach_worker.core.identifier import identifier
from reach_worker.core.names import LONGEST, Names, in_ascii

NAMES = Names("reach.v1")
LONGEST_NAME = 255
"""Bytes that AMQP has for a queue's name."""


def test_every_name_is_under_the_prefix() -> None:
    assert [
        NAMES.tasks,
        NAMES.events,
        NAMES.lost,
        NAMES.intake,
        NAMES.returns,
        NAMES.dlq,
        NAMES.unmatched,
        NAMES.lane("log.query"),
        NAMES.agent("log-analyst"),
        NAMES.retry(250),
        NAMES.outcomes("router-1"),
    ] == [
        "reach.v1.tasks",
        "reach.v1.events",
        "reach.v1.lost",
        "reach.v1.intake",
        "reach.v1.returns",
        "reach.v1.dlq",
        "reach.v1.unmatched",
        "reach.v1.lane.log.query",
        "reach.v1.agent.log-analyst",
        "reach.v1.retry.250",
        "reach.v1.outcomes.router-1",
    ]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("reach.v1", True),
        ("reach.v1.intake", True),
        ("reach.v1.anything.at.all", True),
        ("reach.v10.intake", True),
        ("reach.v0", True),
        ("reach.vx.intake", False),
        ("reach.v1x.intake", False),
        ("reach.v", False),
        ("my.reach.v1.intake", False),
        ("Reach.v1.intake", False),
        ("amq.rabbitmq.reply-to.g1", False),
        ("", False),
    ],
)
def test_what_is_ours(name: str, ours: bool) -> None:
    assert NAMES.ours(name) is ours


@given(st.text(min_size=1, max_size=100))
def test_no_id_makes_a_name_that_the_broker_refuses(text: str) -> None:
    try:
        name = identifier(text)
    except ValueError:
        return
    names = Names("p" * 40)

    for queue in (names.lane(name), names.agent(name), names.outcomes(name)):
        assert queue.isascii()
        assert len(queue) <= LONGEST_NAME


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("log.query", "log.query"),
        ("日志", "xn--m6tr8k"),
        ("日志.query", "xn--.query-oq3l431b"),
        ("größe", "xn--gre-6ka8i"),
        ("xn--m6tr8k", "xh--e0ae4acb4917362e44a10643f4f40efe"),
    ],
)
def test_a_queues_name_is_ascii(name: str, written: str) -> None:
    assert in_ascii(name) == written


ID = st.text(st.characters(categories=["L", "N"], min_codepoint=128), min_size=1, max_size=66)


@given(ID, ID)
def test_two_ids_have_two_queues(one: str, other: str) -> None:
    assert (in_ascii(one) == in_ascii(other)) is (one == other)
    assert len(in_ascii(one)) <= LONGEST


def test_an_endless_id_becomes_a_hash() -> None:
    written = in_ascii("".join(chr(0x4E00 + 97 * number) for number in range(100)))

    assert written.startswith("xh--")
    assert len(written) == 36


def test_each_rung_has_a_queue_of_its_own() -> None:
    assert len({NAMES.retry(rung) for rung in RUNGS_MS}) == len(RUNGS_MS)
