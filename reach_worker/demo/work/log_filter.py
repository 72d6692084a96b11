"""Which requests of a log are asked for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reach_worker.demo.work.fields import PayloadError
from reach_worker.demo.work.log_line import Entry

_CLASS = re.compile(r"([1-5])xx", re.ASCII | re.IGNORECASE)
_EXACT = re.compile(r"[1-5]\d\d", re.ASCII)
_EVERY_STATUS = range(1000)


@dataclass(frozen=True, slots=True)
class Filter:
    """A request passes when it passes every part; a part that is None or empty passes everything."""

    statuses: range
    since: datetime | None  # inclusive
    until: datetime | None  # exclusive
    path_prefix: str
    method: str

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "Filter":
        """Read `status`, `from`, `to`, `path_prefix` and `method`; raises `ValueError` naming the bad one."""
        since, until = _moment(payload, "from"), _moment(payload, "to")
        if since is not None and until is not None and until <= since:
            raise PayloadError("to", "must be later than from")
        return cls(
            statuses=_statuses(payload.get("status")),
            since=since,
            until=until,
            path_prefix=_word(payload, "path_prefix"),
            method=_word(payload, "method").upper(),
        )

    def admits(self, entry: Entry) -> bool:
        """Whether the request is asked for."""
        return (
            entry.status in self.statuses
            and (self.since is None or entry.time >= self.since)
            and (self.until is None or entry.time < self.until)
            and entry.path.startswith(self.path_prefix)
            and self.method in {"", entry.method}
        )


def _statuses(status: object) -> range:
    if status is None:
        return _EVERY_STATUS
    if isinstance(status, float) and status.is_integer():
        status = int(status)
    wanted = str(status)
    if of_class := _CLASS.fullmatch(wanted):
        first = int(of_class[1]) * 100
        return range(first, first + 100)
    if _EXACT.fullmatch(wanted):
        return range(int(wanted), int(wanted) + 1)
    raise PayloadError("status", f"must be a status such as 404 or a class such as 5xx, not {status!r}")


def _moment(payload: Mapping[str, Any], field: str) -> datetime | None:
    """The time in UTC; one without a zone is taken as UTC."""
    written = payload.get(field)
    if written is None:
        return None
    try:
        moment = datetime.fromisoformat(written)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise PayloadError(field, f"must be an ISO 8601 time, not {written!r}") from None


def _word(payload: Mapping[str, Any], field: str) -> str:
    value = payload.get(field, "")
    if not isinstance(value, str):
        raise PayloadError(field, f"must be a string, not {value!r}")
    return value
