"""A router's report: how it travels, how it is read, and what in it is wrong."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.announcement import Unreadable
from reach_worker.core.names import Names
from reach_worker.core.status import (
    LIMIT,
    LONGEST_TEXT,
    MOST,
    AgentNow,
    Health,
    Report,
    Waits,
    may_be_told,
    report_body,
    report_from,
    wrong,
)

TEXT = st.text(max_size=40)
NAME = st.text(min_size=1, max_size=40)
COUNT = st.integers(0, 2**40)
SECONDS = st.none() | st.floats(0, 1e9)
WAITS = st.builds(
    Waits, capability=NAME, count=COUNT, oldest_s=SECONDS, task=TEXT, reason=TEXT, lane=COUNT, lane_s=SECONDS
)
AGENT = st.builds(
    AgentNow,
    agent=NAME,
    in_flight=COUNT,
    slots=COUNT,
    presence=TEXT,
    breaker=TEXT,
    breaker_s=SECONDS,
    held_to=SECONDS,
    rests_s=SECONDS,
)
REPORT = st.builds(
    Report,
    router=NAME,
    since_us=COUNT,
    unready=TEXT,
    session=COUNT,
    session_s=SECONDS,
    waiting=COUNT,
    window=COUNT,
    in_flight=COUNT,
    in_flight_limit=COUNT,
    waits=st.lists(WAITS, max_size=3).map(tuple),
    more_waits=COUNT,
    agents=st.lists(AGENT, max_size=3).map(tuple),
    more_agents=COUNT,
    counts=st.dictionaries(TEXT, COUNT, max_size=3),
    store=st.dictionaries(TEXT, st.none() | COUNT | st.booleans() | TEXT, max_size=3),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
FIELDS = sorted(Report.__dataclass_fields__)


@given(REPORT)
def test_a_report_comes_back_as_it_was(report: Report) -> None:
    assert report_from(report_body(report)) == report


@given(REPORT, st.sampled_from([name for name in FIELDS if name != "router"]))
def test_what_another_version_leaves_out_reads_as_not_known(report: Report, left_out: str) -> None:
    data = orjson.loads(report_body(report))
    del data[left_out]
    data["something_new"] = {"a": [1]}
    read = report_from(orjson.dumps(data))
    assert isinstance(read, Report)
    assert getattr(read, left_out) == getattr(Report(report.router), left_out)
    assert all(getattr(read, name) == getattr(report, name) for name in FIELDS if name != left_out)


@given(REPORT, st.dictionaries(st.sampled_from(FIELDS), JSON), st.binary(max_size=50))
def test_nothing_that_comes_can_raise(report: Report, odd: dict[str, Any], junk: bytes) -> None:
    read = report_from(orjson.dumps({**orjson.loads(report_body(report)), **odd}))
    assert isinstance(read, Report | Unreadable)
    assert isinstance(report_from(junk), Report | Unreadable)
    if isinstance(read, Report):
        wrong(read)
        assert isinstance(report_from(report_body(read)), Report)


@pytest.mark.parametrize("body", [b"", b"junk", b"[]", b"{}", b'{"router": 7}', b'{"router": ""}'])
def test_what_names_no_router_is_no_report(body: bytes) -> None:
    read = report_from(body)
    assert isinstance(read, Unreadable)
    assert read.error.startswith("no report")


def test_entries_without_a_name_are_passed_over() -> None:
    data = {"router": "r1", "waits": [{"count": 1}, 7, {"capability": "a", "count": "x"}], "agents": [[]]}
    assert report_from(orjson.dumps(data)) == Report("r1", waits=(Waits("a"),))


@pytest.mark.parametrize("text", ["x", "é", "\x00", "\ud800"])
def test_however_much_there_is_to_say_it_stays_small_and_tells_what_it_leaves_out(text: str) -> None:
    waits = tuple(Waits(f"c{n}", reason=text * 3000, task=text * 3000) for n in range(500))
    agents = tuple(AgentNow(f"a{n}", presence=text * 3000) for n in range(300))
    body = report_body(
        Report("r1", waits=waits, agents=agents, more_agents=5, store={"last_error": text * 9999})
    )
    assert len(body) <= LIMIT
    read = report_from(body)
    assert isinstance(read, Report)
    assert 0 < len(read.waits) <= MOST
    assert [each.capability for each in read.waits] == [f"c{n}" for n in range(len(read.waits))]
    assert len(read.waits) + read.more_waits == 500
    assert len(read.agents) + read.more_agents == 305
    assert all(len(each.reason) <= LONGEST_TEXT for each in read.waits)


@pytest.mark.parametrize(
    ("reply_to", "told"),
    [
        ("reach-listens.mailbox.1f", True),
        (None, False),
        ("", False),
        ("reach-listens", False),
        ("reach.v1.intake", False),
        ("reach.v1.agent.a", False),
        ("orders", False),
        ("amq.rabbitmq.reply-to.g1h.x", False),
        ("reach-listens." + "x" * 255, False),
        ("reach-listens.\ud800", True),
    ],
)
def test_only_a_private_queue_of_a_command_is_told(reply_to: str | None, told: bool) -> None:
    assert may_be_told(reply_to, Names("reach.v1")) is told


def test_a_prefix_that_looks_like_a_private_queue_is_still_ours() -> None:
    assert not may_be_told("reach-listens.intake", Names("reach-listens"))


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (Report("r1", unready="it stops"), "router r1 takes no tasks: it stops"),
        (
            Report("r1", store={"away": True, "last_error": "locked", "waiting": 7, "spilled": 2}),
            "the store of router r1 is away (locked): 7 rows wait in memory, 2 were spilled",
        ),
        (Report("r1", store={"away": True}), "is away: 0 rows wait"),
        (Report("r1", store={"lost": 3}), "has lost 3 rows"),
        (Report("r1", store={"refused": 3}), "left out 3 rows"),
    ],
)
def test_what_is_wrong_is_said(report: Report, words: str) -> None:
    (said,) = wrong(report)
    assert words in said


def test_what_ends_by_itself_is_not_wrong() -> None:
    slow = AgentNow("a", breaker="open", breaker_s=30, held_to=0.5, presence="dead")
    waits = Waits("c", 3, 4000.0, "t1", "at max concurrency 1/1")
    store: Health = {
        "away": False,
        "lost": 0,
        "refused": 0,
        "last_error": "locked, a while ago",
        "spilled": 9,
    }
    assert wrong(Report("r1", agents=(slow,), waits=(waits,), store=store)) == []
