"""The log questions, checked against counts made another way: by cutting the lines at their quotes."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from reach_worker.demo.work import shipped
from reach_worker.demo.work.access_log import count, query, top_urls

OUTAGE = {"from": "2025-03-05T14:00:00Z", "to": "2025-03-05T15:00:00Z"}
LINE = (
    '203.0.113.9 - al [05/Mar/2025:14:02:11 +0800] "GET /a?b=c HTTP/1.1" 200 512 "https://x.example/" "curl"'
)


def cut(line: str) -> list[str] | None:
    """The parts between the quotes, for a line that has all of them."""
    parts = line.split('"')
    return parts if len(parts) >= 7 and "/Mar/2025:" in parts[0] and " - " in parts[0] else None


@pytest.fixture(scope="module")
def requests() -> list[list[str]]:
    return [parts for line in shipped.log_text().splitlines() if (parts := cut(line)) is not None]


def status_of(parts: list[str]) -> str:
    return parts[2].split()[0]


def bytes_of(parts: list[str]) -> int:
    return int(parts[2].split()[1].replace("-", "0"))


def path_of(parts: list[str]) -> str:
    return parts[1].split()[1].split("?")[0] if " " in parts[1] else "-"


def hour_of(parts: list[str]) -> str:
    day, hour = parts[0].split("[")[1].split("/Mar/2025:")
    return f"2025-03-{day}T{hour[:2]}:00Z"


def test_the_shipped_log_is_what_it_claims_to_be(requests: list[list[str]]) -> None:
    answer = count({})
    assert answer["scanned"] == 3000
    assert answer["count"] == len(requests) == 2985
    assert answer["malformed"]["count"] == 15
    assert [example["line"] for example in answer["malformed"]["examples"]] == [147, 199, 301, 326, 389]


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("status", status_of),
        ("path", path_of),
        ("hour", hour_of),
        ("ip", lambda parts: parts[0].split()[0]),
        ("method", lambda parts: parts[1].split()[0] if " " in parts[1] else "-"),
    ],
)
def test_groups_are_those_of_a_plain_count(requests: list[list[str]], by: str, key: object) -> None:
    assert callable(key)
    expected = Counter(key(parts) for parts in requests)
    answer = count({"by": by, "top": 1000})
    assert {group["key"]: group["count"] for group in answer["groups"]} == expected
    assert answer["distinct"] == len(expected)
    assert answer["groups"] == sorted(answer["groups"], key=lambda group: (-group["count"], group["key"]))
    assert answer["bytes"] == sum(map(bytes_of, requests)) == sum(g["bytes"] for g in answer["groups"])


def test_the_outage_stands_out() -> None:
    answer = count({"by": "hour", "status": "5xx", "top": 2})
    assert answer["count"] == 52
    assert answer["groups"][0] == {"key": "2025-03-05T14:00Z", "count": 45, "bytes": 7450}
    assert answer["groups"][1]["count"] == 2


def test_query_gives_the_requests_of_one_class_in_one_hour(requests: list[list[str]]) -> None:
    expected = [p for p in requests if hour_of(p) == "2025-03-05T14:00Z" and status_of(p)[0] == "5"]
    answer = query({"status": "5xx", **OUTAGE, "limit": 1000})
    assert answer["count"] == len(expected) == 45
    assert [entry["path"] for entry in answer["entries"]] == [path_of(parts) for parts in expected]
    assert all(entry["time"].startswith("2025-03-05T14:") for entry in answer["entries"])


def test_query_shows_the_first_few_and_counts_all(requests: list[list[str]]) -> None:
    expected = [p for p in requests if status_of(p) == "404" and path_of(p).startswith("/products/")]
    answer = query({"status": 404, "path_prefix": "/products/", "limit": 5})
    assert answer["count"] == len(expected) == 28
    assert len(answer["entries"]) == 5
    lines = shipped.log_text().splitlines()
    for entry in answer["entries"]:
        assert f'"GET {entry["path"]} HTTP/1.1" 404 {entry["bytes"]} ' in lines[entry["line"] - 1]


@pytest.mark.parametrize("status", [404, "404", 404.0])
def test_a_status_may_be_written_as_number_or_text(status: object) -> None:
    assert query({"status": status})["count"] == 94


def test_top_urls_count_errors_and_shares(requests: list[list[str]]) -> None:
    paths = Counter(map(path_of, requests))
    errors = Counter(path_of(parts) for parts in requests if int(status_of(parts)) >= 400)
    answer = top_urls({"top": 7})
    assert [(url["path"], url["count"]) for url in answer["urls"]] == paths.most_common(7)
    assert all(url["errors"] == errors[url["path"]] for url in answer["urls"])
    assert answer["urls"][0]["share"] == round(349 / 2985, 4)


def test_times_are_compared_in_utc() -> None:
    found = query({"lines": LINE, "from": "2025-03-05T06:02:11Z", "to": "2025-03-05T14:02:12+08:00"})
    assert found["entries"] == [
        {
            "line": 1,
            "ip": "203.0.113.9",
            "time": "2025-03-05T06:02:11Z",
            "method": "GET",
            "path": "/a",
            "query": "b=c",
            "status": 200,
            "bytes": 512,
            "referer": "https://x.example/",
            "agent": "curl",
        }
    ]
    assert query({"lines": LINE, "from": "2025-03-05T14:02:11"})["count"] == 0


def test_the_end_is_exclusive_and_the_start_inclusive() -> None:
    assert query({"lines": [LINE], "from": "2025-03-05T06:02:11Z"})["count"] == 1
    assert query({"lines": [LINE], "to": "2025-03-05T06:02:11Z"})["count"] == 0


def test_own_lines_as_text_or_list_with_blank_and_broken_ones() -> None:
    text = f"{LINE}\r\n\n  \nnonsense\n{LINE}\n"
    for lines in (text, text.split("\n")):
        answer = count({"by": "status", "lines": lines})
        assert answer["groups"] == [{"key": "200", "count": 2, "bytes": 1024}]
        assert answer["scanned"] == 3
        assert answer["malformed"] == {"count": 1, "examples": [{"line": 4, "text": "nonsense"}]}


def test_nothing_found_is_an_answer() -> None:
    assert query({"path_prefix": "/nowhere"})["entries"] == []
    assert top_urls({"lines": ""}) | {"malformed": None} == {
        "urls": [],
        "distinct": 0,
        "count": 0,
        "scanned": 0,
        "malformed": None,
    }


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"status": "many"}, "status"),
        ({"status": True}, "status"),
        ({"status": 99}, "status"),
        ({"from": "yesterday"}, "from"),
        ({"to": 5}, "to"),
        ({"from": "0001-01-01T00:00:00+14:00"}, "from"),
        ({"from": "2025-03-06", "to": "2025-03-05"}, "to"),
        ({"limit": 0}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"limit": True}, "limit"),
        ({"method": 7}, "method"),
        ({"lines": 7}, "lines"),
        ({"lines": ["a", 7]}, "lines"),
    ],
)
def test_what_cannot_be_understood_names_its_field(payload: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        query(payload)


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(ValueError, match="by: must be one of status, path, ip, hour, method, not 'moon'"):
        count({"by": "moon"})


def test_the_log_spans_five_days_and_is_in_order() -> None:
    entries = query({"limit": 1000})["entries"] + query({"from": "2025-03-07", "limit": 1000})["entries"]
    times = [entry["time"] for entry in entries]
    assert times == sorted(times)
    last = datetime.fromisoformat(times[-1])
    assert datetime(2025, 3, 7, 20, tzinfo=UTC) < last < datetime(2025, 3, 8, tzinfo=UTC)
