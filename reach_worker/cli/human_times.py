"""Times and durations as people read and write them."""

import re
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400


def local(at_us: int) -> str:
    """UTC microseconds as local time, ISO 8601 with its zone, to the millisecond."""
    return _local(at_us).isoformat(timespec="milliseconds")


def local_second(at_us: int) -> str:
    """As :func:`local`, to the second: for tables."""
    return _local(at_us).isoformat(timespec="seconds")


def _local(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / 1e6, UTC).astimezone()


def took(seconds: float) -> str:
    """A duration in its two largest units: ``350 ms``, ``2.4 s``, ``3 min 5 s``, ``2 h 5 min``, ``3 d 4 h``."""
    short = f"{seconds * 1000:.3g}"
    if float(short) < 1000:  # noqa: PLR2004 - milliseconds, as they are shown
        return f"{short} ms"
    short = f"{seconds:.3g}"
    if float(short) < _MINUTE:
        return f"{short} s"
    whole = round(seconds)
    if whole < _HOUR:
        return _two(whole, _MINUTE, "min", 1, "s")
    if whole < _DAY:
        return _two(whole, _HOUR, "h", _MINUTE, "min")
    return _two(whole, _DAY, "d", _HOUR, "h")


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    count, rest = divmod(seconds, large)
    left = rest // small
    return f"{count} {large_name} {left} {small_name}" if left else f"{count} {large_name}"


def ago(at_us: int, now_us: int) -> str:
    """How long before ``now_us`` that was."""
    return f"{took(max(0.0, (now_us - at_us) / 1e6))} ago"


def seconds_in(text: str) -> float:
    """The seconds in ``90s``, ``10m``, ``2h``, ``1d`` or several together, ``1h30m``. Raises ``ValueError``."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write 30s, 10m, 2h, 1d or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
