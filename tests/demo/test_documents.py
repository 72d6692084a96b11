from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.demo.work import shipped
from reach_worker.demo.work.documents import build, rank, score, search, snippet
from reach_worker.demo.work.terms import stem, terms


@pytest.mark.parametrize(
    ("query", "file"),
    [
        ("rotate logs without losing lines", "rotating-logs.md"),
        ("who is the incident commander", "incident-response.md"),
        ("exponential backoff with full jitter", "backoff-and-retries.md"),
        ("replay dead letters", "dead-letter-queues.md"),
        ("Little's law", "capacity-planning.md"),
        ("is there a test that fails without the change", "code-review-checklist.md"),
        ("swap the pager", "on-call-handover.md"),
        ("inbox table unique key", "idempotent-handlers.md"),
        ("故障复盘的根因", "postmortem-zh.md"),
        ("备份演练", "backup-and-restore-zh.md"),
        ("日志轮转", "backup-and-restore-zh.md"),
    ],
)
def test_the_page_that_answers_comes_first(query: str, file: str) -> None:
    assert search({"query": query})["hits"][0]["file"] == file


def test_a_hit_points_at_its_line() -> None:
    hit = search({"query": "事务日志 校验和"})["hits"][0]
    assert hit["title"] == "数据库备份与恢复"
    lines = shipped.documents()[hit["file"]].splitlines()
    assert lines[hit["line"] - 1].strip() == hit["snippet"]
    assert "事务日志" in hit["snippet"]


def test_every_hit_holds_a_word_of_the_query_in_falling_order() -> None:
    answer = search({"query": "queue retry 备份", "limit": 50})
    scores = [hit["score"] for hit in answer["hits"]]
    assert answer["count"] == len(scores)
    assert scores == sorted(scores, reverse=True)
    for hit in answer["hits"]:
        assert {"queue", "retry", "备份"} & set(terms(shipped.documents()[hit["file"]]))


def test_limit_cuts_the_hits_and_not_the_count() -> None:
    answer = search({"query": "message", "limit": 1})
    assert len(answer["hits"]) == 1
    assert answer["count"] > 1


def test_bm25_by_hand() -> None:
    index = build({"a": "queue queue broker", "b": "queue"})
    # N = 2, mean length 2; `broker` is in one document, once, of length 3
    idf = log(1 + 1.5 / 1.5)
    assert score(index, index.documents[0], ["broker"]) == pytest.approx(
        idf * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / 2))
    )
    assert score(index, index.documents[1], ["broker"]) == 0


def test_equal_documents_are_ordered_by_file_name() -> None:
    index = build({"b": "queue", "a": "queue", "c": "other"})
    assert [document.file for document, _ in rank(index, ["queue"])] == ["a", "b"]


def test_a_long_line_is_cut_around_the_word() -> None:
    assert snippet(f"{'x ' * 100}needle{' y' * 100}", ["needle"]) == f"…{'x ' * 20}needle{' y' * 57}…"
    assert snippet("  short  ", ["needle"]) == "short"


@pytest.mark.parametrize("query", ["", "  ", "!?"])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match="query: "):
        search({"query": query})


def test_nothing_found_is_an_answer() -> None:
    assert search({"query": "xylophone"}) == {"query": "xylophone", "count": 0, "hits": []}


@given(st.text(min_size=1))
def test_any_query_is_answered_or_refused_in_words(query: str) -> None:
    try:
        answer = search({"query": query})
    except ValueError as error:
        assert str(error).startswith("query: ")  # noqa: PT017 - both ends are fine, this is the second
    else:
        assert all(len(hit["snippet"]) <= 162 for hit in answer["hits"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Retries, LOGS and Logs", ["retry", "log", "and", "log"]),
        ("日志轮转", ["日志", "志轮", "轮转"]),
        ("用Python写日志", ["用", "python", "写日", "日志"]),
        ("ＲＰＯ目标", ["rpo", "目标"]),
        ("snake_case", ["snake", "case"]),
        ("the broker's queue", ["the", "broker", "queue"]),
        ("", []),
    ],
)
def test_terms_in_both_languages(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("queries", "query"),
        ("queues", "queue"),
        ("logs", "log"),
        ("status", "status"),
        ("class", "class"),
        ("is", "is"),
    ],
)
def test_plural_endings(word: str, expected: str) -> None:
    assert stem(word) == expected
