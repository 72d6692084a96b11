r"""The "combined" access log format of Apache and nginx, one line at a time.

    203.0.113.9 - alice [05/Mar/2025:14:02:11 +0000] "GET /a?b=c HTTP/1.1" 200 512 "https://x.example/" "curl"

From https://httpd.apache.org/docs/2.4/mod/mod_log_config.html: `%h %l %u %t "%r" %>s %b "%{Referer}i"
"%{User-agent}i"`. Inside quotes the server writes `"` as `\"`, a backslash as `\\` and odd bytes as `\xhh`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LINE = re.compile(
    rf"(\S+) \S+ (\S+) \[([^\]]*)\] {_QUOTED} (\d{{3}}) (\d{{1,15}}|-) {_QUOTED} {_QUOTED}",
    re.ASCII,
)
_TIME = re.compile(r"(\d\d)/([A-Z][a-z][a-z])/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)", re.ASCII)
_REQUEST = re.compile(r"([A-Z]{1,20}) (\S+)(?: HTTP/\d(?:\.\d)?)?", re.ASCII)
_ESCAPED = re.compile(r'\\(["\\])')
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, start=1)}

_EXAMPLES = 5
_EXAMPLE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. A request that is no HTTP (a TLS greeting, say) has `-` as its method and path."""

    line: int
    ip: str
    user: str
    time: datetime  # UTC
    method: str
    path: str
    query: str
    status: int
    size: int  # bytes; 0 where the log says `-`
    referer: str
    agent: str


@dataclass(frozen=True, slots=True)
class Log:
    """A parsed log. Blank lines are neither entries nor malformed."""

    entries: tuple[Entry, ...]
    malformed: int
    examples: tuple[tuple[int, str], ...]  # the first malformed lines: number and text, cut to 200 characters


def parse_log(lines: Iterable[str]) -> Log:
    """Read every line; what is not in the format is counted and kept as an example, never an error."""
    entries: list[Entry] = []
    odd: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        entry = parse_line(line.rstrip("\r\n"), number)
        if entry is None:
            odd.append((number, line[:_EXAMPLE_LENGTH]))
        else:
            entries.append(entry)
    return Log(tuple(entries), len(odd), tuple(odd[:_EXAMPLES]))


def parse_line(line: str, number: int) -> Entry | None:
    """The entry on this line, or None where the line is not in the format. Never raises."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    ip, user, stamp, request, status, size, referer, agent = match.groups()
    time = _moment(stamp)
    if time is None:
        return None
    method, path, query = _request(request)
    return Entry(
        line=number,
        ip=ip,
        user=user,
        time=time,
        method=method,
        path=path,
        query=query,
        status=int(status),
        size=0 if size == "-" else int(size),
        referer=_unescaped(referer),
        agent=_unescaped(agent),
    )


def _moment(stamp: str) -> datetime | None:
    """The time in UTC; None for a day, hour or zone that does not exist. `strptime` would read the locale."""
    match = _TIME.fullmatch(stamp)
    if match is None:
        return None
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = match.groups()
    offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    try:
        return datetime(
            int(year),
            _MONTHS[month],
            int(day),
            int(hour),
            int(minute),
            int(second),
            tzinfo=timezone(offset if sign == "+" else -offset),
        ).astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return None


def _request(request: str) -> tuple[str, str, str]:
    """Method, path and query string of the quoted request line."""
    match = _REQUEST.fullmatch(request)
    if match is None:
        return "-", "-", ""
    path, _, query = match[2].partition("?")
    return match[1], path, query


def _unescaped(quoted: str) -> str:
    return _ESCAPED.sub(r"\1", quoted)
