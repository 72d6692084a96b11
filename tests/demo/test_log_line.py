import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.demo.work.log_line import parse_line, parse_log

GOOD = '198.51.100.7 - - [03/Mar/2025:00:05:47 +0000] "GET /cart HTTP/1.1" 200 3551 "-" "Mozilla/5.0"'
almost = st.lists(
    st.sampled_from([*GOOD.split(" "), '"', "\\", "[", "]", "9" * 5000, "\n", "é", "日志", "\x00"])
).map(" ".join)


@given(st.text() | almost)
def test_no_text_whatever_makes_the_parser_raise(text: str) -> None:
    log = parse_log(text.split("\n"))
    assert len(log.entries) + log.malformed == sum(1 for line in text.split("\n") if line.strip())
    assert len(log.examples) == min(5, log.malformed)


@given(st.text(alphabet=st.characters(exclude_characters='"\\', exclude_categories=["Cs"])))
def test_whatever_an_agent_calls_itself_comes_back(agent: str) -> None:
    entry = parse_line(GOOD.replace("Mozilla/5.0", agent), 1)
    assert entry is not None
    assert entry.agent == agent


@given(st.text(alphabet='a"\\ '))
def test_quotes_and_backslashes_survive_the_servers_escaping(agent: str) -> None:
    written = agent.replace("\\", "\\\\").replace('"', '\\"')
    entry = parse_line(GOOD.replace("Mozilla/5.0", written), 1)
    assert entry is not None
    assert entry.agent == agent


@pytest.mark.parametrize(
    "line",
    [
        GOOD.replace("/Mar/", "/Mrz/"),
        GOOD.replace("03/Mar", "32/Mar"),
        GOOD.replace("00:05:47", "24:05:47"),
        GOOD.replace("+0000", "+9900"),
        GOOD.replace("03/Mar/2025", "01/Jan/0001").replace("+0000", "+0100"),
        GOOD.replace(" 200 ", " ok "),
        GOOD.replace("3551", "9" * 5000),
        GOOD[:-1],
        GOOD + " extra",
        GOOD.replace("2025", "\uff12\uff10\uff12\uff15"),
    ],
)
def test_what_is_not_in_the_format_is_no_entry(line: str) -> None:
    assert parse_line(line, 1) is None


@pytest.mark.parametrize(
    ("request_line", "method", "path", "query"),
    [
        ("GET / HTTP/1.1", "GET", "/", ""),
        ("GET /a?b?c HTTP/2", "GET", "/a", "b?c"),
        ("GET /old", "GET", "/old", ""),
        (r"\x16\x03\x01", "-", "-", ""),
        ("", "-", "-", ""),
        ("GET /with a space HTTP/1.1", "-", "-", ""),
    ],
)
def test_the_request_line_is_taken_apart(request_line: str, method: str, path: str, query: str) -> None:
    entry = parse_line(GOOD.replace("GET /cart HTTP/1.1", request_line), 1)
    assert entry is not None
    assert (entry.method, entry.path, entry.query) == (method, path, query)


def test_a_missing_size_is_zero() -> None:
    entry = parse_line(GOOD.replace("3551", "-"), 1)
    assert entry is not None
    assert entry.size == 0


def test_long_hostile_lines_take_linear_time() -> None:
    """At a million characters anything worse than linear would run into the suite's time limit."""
    for piece in ('"', "\\", '\\"', " ", "[", '" "', "- "):
        assert parse_line(GOOD[:-1] + piece * (1_000_000 // len(piece)), 1) is None or piece == '\\"'
