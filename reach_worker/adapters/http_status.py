"""What an HTTP status means for an attempt. Pure: it is handed the answer and the time."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import orjson

from reach_worker.adapters.endings import ending
from reach_worker.agent.outcomes import AgentOutcome
from reach_worker.core.outcome import OutcomeClass

SHOWN: Final = 300
"""Characters of an answer that an error text shows."""

USUAL: Final[Mapping[int, OutcomeClass]] = {
    401: OutcomeClass.UNAVAILABLE,
    403: OutcomeClass.UNAVAILABLE,
    405: OutcomeClass.UNAVAILABLE,
    407: OutcomeClass.UNAVAILABLE,
    408: OutcomeClass.TIMEOUT,
    425: OutcomeClass.UNAVAILABLE,
    429: OutcomeClass.RATE_LIMITED,
    500: OutcomeClass.FAILED,
    501: OutcomeClass.UNAVAILABLE,
    502: OutcomeClass.UNAVAILABLE,
    503: OutcomeClass.UNAVAILABLE,
    504: OutcomeClass.UNAVAILABLE,
    529: OutcomeClass.UNAVAILABLE,
}
"""Of the others 4xx are the caller's fault (``bad_request``), all the rest the server's (``failed``)."""

HINTS: Final[Mapping[int, str]] = {
    401: "the agent's key or its header is wrong",
    403: "the agent's key does not allow this",
    404: "nothing is at the adapter's url",
    405: "the adapter's method is not allowed there",
    407: "the proxy wants a key",
}
QUOTA: Final = b'"insufficient_quota"'
"""What OpenAI says with a 429 if there is no money left: no rest helps."""

_OVERLOADED: Final = (503, 529)


@dataclass(frozen=True, slots=True)
class Reading:
    """How statuses are read. ``address_varies``: the url takes fields of the payload; a 404 may be the caller's."""

    statuses: Mapping[int, OutcomeClass]
    rest_s: float
    longest_rest_s: float
    address_varies: bool = False


def problem_of(
    status: int, headers: Mapping[str, str], body: bytes, reading: Reading, *, utc_us: int
) -> AgentOutcome | None:
    """How an attempt ends whose request got this answer, ``None`` if it succeeded. Header names in lower case."""
    rest = retry_after_s(headers, utc_us=utc_us)
    kind = reading.statuses.get(status) or _kind(status, reading, asked_to_wait=rest is not None)
    if kind is OutcomeClass.RATE_LIMITED and QUOTA in body:
        kind = OutcomeClass.UNAVAILABLE
    if kind is OutcomeClass.SUCCEEDED:
        return None
    hint = None if status in reading.statuses else _hint(status, kind)
    said = words_of(body)
    message = f"HTTP {status}" + (f", {hint}" if hint else "") + (f": {said}" if said else "")
    return ending(kind, message, rest_s=min(reading.rest_s if rest is None else rest, reading.longest_rest_s))


def _kind(status: int, reading: Reading, *, asked_to_wait: bool) -> OutcomeClass:
    if 200 <= status < 300:  # noqa: PLR2004 - as HTTP has it
        return OutcomeClass.SUCCEEDED
    if status in _OVERLOADED and asked_to_wait:
        return OutcomeClass.RATE_LIMITED
    if status in (404, 410) and not reading.address_varies:
        return OutcomeClass.UNAVAILABLE
    if 400 <= status < 500:  # noqa: PLR2004 - as HTTP has it
        return USUAL.get(status, OutcomeClass.BAD_REQUEST)
    return USUAL.get(status, OutcomeClass.FAILED)


def _hint(status: int, kind: OutcomeClass) -> str | None:
    if 300 <= status < 400:  # noqa: PLR2004 - as HTTP has it
        return "a redirection, and none is followed"
    return HINTS.get(status) if kind is OutcomeClass.UNAVAILABLE else None


def retry_after_s(headers: Mapping[str, str], *, utc_us: int) -> float | None:
    """Seconds to wait as ``Retry-After`` says: as a number, or as a date, which the server's own clock is right for."""
    said = headers.get("retry-after", "").strip()
    if not said:
        return None
    try:
        seconds = float(said)
    except ValueError:
        until, now = _date(said), _date(headers.get("date", "")) or datetime.fromtimestamp(utc_us / 1e6, UTC)
        return None if until is None else max(0.0, (until - now).total_seconds())
    return seconds if 0 <= seconds < float("inf") else None


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def words_of(body: bytes) -> str:
    """What an error's body says, short and in one line: its message where it is JSON of a usual form."""
    text = body.decode("utf-8", "replace")
    with suppress(orjson.JSONDecodeError):
        text = _message(orjson.loads(body)) or text
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _message(document: Any) -> str | None:
    if not isinstance(document, dict):
        return None
    for name in ("error", "message", "detail", "title"):
        match document.get(name):
            case str() as said if said:
                return said
            case dict() as inner:
                return _message(inner)
            case _:
                continue
    return None
