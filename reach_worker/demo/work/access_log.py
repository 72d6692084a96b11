"""Questions about a web server's access log: which requests, how many of each kind, which pages most."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from reach_worker.demo.work import fields, shipped
from reach_worker.demo.work.fields import PayloadError
from reach_worker.demo.work.log_filter import Filter
from reach_worker.demo.work.log_line import Entry, Log, parse_log

_ERRORS_FROM = 400

_KEYS: Mapping[str, Callable[[Entry], str]] = {
    "status": lambda entry: str(entry.status),
    "path": lambda entry: entry.path,
    "ip": lambda entry: entry.ip,
    "hour": lambda entry: f"{entry.time.isoformat()[:13]}:00Z",
    "method": lambda entry: entry.method,
}


def query(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The requests that pass every filter: how many, and the first `limit` (20) of them in log order.

    Filters, all optional: `status` (404, "404" or "5xx"), `from` (inclusive) and `to` (exclusive) in ISO
    8601, UTC where they name no zone, `path_prefix`, `method`. `lines` (a list or one text) replaces the
    shipped log. Times in the answer are ISO 8601 in UTC, sizes are bytes, line numbers count from 1.

    Raises:
        ValueError: a filter that cannot be understood.
    """
    log = _log(payload)
    entries = _matching(log, payload)
    limit = fields.whole(payload, "limit", default=20, at_most=1000)
    return {
        "count": len(entries),
        "entries": [_shown(entry) for entry in entries[:limit]],
        **_coverage(log),
    }


def count(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Requests grouped `by` status, path, ip, hour (UTC) or method: the `top` (10) groups, biggest first.

    Takes the filters of `query`. Groups of equal size are ordered by key. `count` and `bytes` cover all
    matching requests, also those outside the groups shown.

    Raises:
        ValueError: an unknown `by`, or a filter that cannot be understood.
    """
    by = payload.get("by", "status")
    if by not in _KEYS:
        raise PayloadError("by", f"must be one of {', '.join(_KEYS)}, not {by!r}")
    log = _log(payload)
    entries = _matching(log, payload)
    counts, sizes = _grouped(entries, _KEYS[by])
    top = fields.whole(payload, "top", default=10, at_most=1000)
    return {
        "by": by,
        "groups": [{"key": key, "count": n, "bytes": sizes[key]} for key, n in _biggest(counts, top)],
        "distinct": len(counts),
        "count": len(entries),
        "bytes": sizes.total(),
        **_coverage(log),
    }


def top_urls(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The `top` (10) most requested paths, with bytes, errors (status 400 and above) and their share, 0 to 1.

    Takes the filters of `query`; query strings do not tell paths apart.

    Raises:
        ValueError: a filter that cannot be understood.
    """
    log = _log(payload)
    entries = _matching(log, payload)
    counts, sizes = _grouped(entries, _KEYS["path"])
    errors = Counter(entry.path for entry in entries if entry.status >= _ERRORS_FROM)
    top = fields.whole(payload, "top", default=10, at_most=1000)
    urls = [
        {
            "path": path,
            "count": n,
            "bytes": sizes[path],
            "errors": errors[path],
            "share": round(n / len(entries), 4),
        }
        for path, n in _biggest(counts, top)
    ]
    return {"urls": urls, "distinct": len(counts), "count": len(entries), **_coverage(log)}


@cache
def _shipped_log() -> Log:
    return parse_log(shipped.log_text().split("\n"))


def _log(payload: Mapping[str, Any]) -> Log:
    lines = payload.get("lines")
    if lines is None:
        return _shipped_log()
    if isinstance(lines, str):
        return parse_log(lines.split("\n"))
    if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
        return parse_log(lines)
    raise PayloadError("lines", "must be a text or a list of texts")


def _matching(log: Log, payload: Mapping[str, Any]) -> list[Entry]:
    wanted = Filter.of(payload)
    return [entry for entry in log.entries if wanted.admits(entry)]


def _grouped(entries: Iterable[Entry], key: Callable[[Entry], str]) -> tuple[Counter[str], Counter[str]]:
    """Requests per key, and bytes per key."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for entry in entries:
        name = key(entry)
        counts[name] += 1
        sizes[name] += entry.size
    return counts, sizes


def _biggest(counts: Counter[str], top: int) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]


def _coverage(log: Log) -> dict[str, Any]:
    """What was read, and the first few lines that could not be."""
    return {
        "scanned": len(log.entries) + log.malformed,
        "malformed": {
            "count": log.malformed,
            "examples": [{"line": number, "text": text} for number, text in log.examples],
        },
    }


def _shown(entry: Entry) -> dict[str, Any]:
    return {
        "line": entry.line,
        "ip": entry.ip,
        "time": _iso(entry.time),
        "method": entry.method,
        "path": entry.path,
        "query": entry.query,
        "status": entry.status,
        "bytes": entry.size,
        "referer": entry.referer,
        "agent": entry.agent,
    }


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
