"""The W3C trace context that goes with a task: https://www.w3.org/TR/trace-context/.

It is the argument ``traceparent``, else what OpenTelemetry is in the middle of in this process, else :data:`current`,
else a new trace. The routers pass it on through every retry and hop.
"""

import re
import sys
from contextvars import ContextVar
from importlib import import_module
from typing import Final

from reach_worker.core.envelope import PASSED_ON
from reach_worker.errors import BadInput, Problem
from reach_worker.ports import Clock

current: ContextVar[str | None] = ContextVar("reach_traceparent", default=None)
"""For programs without OpenTelemetry: the trace that whatever is called from here belongs to."""

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_headers(traceparent: str | None, clock: Clock) -> dict[str, str]:
    """The headers of a task. Raises :class:`BadInput` for a trace parent that is none."""
    if traceparent is None and (telling := _of_opentelemetry()):
        return telling
    given = current.get() if traceparent is None else traceparent
    if given is None:
        given = f"00-{clock.new_id()}-{clock.new_id()[-16:]}-01"
    elif _FORM.fullmatch(given) is None:
        hint = "it looks like 00-<32 hexadecimal digits>-<16 of them>-01"
        raise BadInput(Problem(f"{given[:80]!r} is no trace parent", field="/traceparent", hint=hint))
    return {"traceparent": given}


def _of_opentelemetry() -> dict[str, str]:
    """What it would send along; nothing where this process does not use it. It is not imported for that."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    carrier: dict[str, str] = {}
    import_module("opentelemetry.propagate").inject(carrier)
    return (
        {name: value for name, value in carrier.items() if name in PASSED_ON}
        if "traceparent" in carrier
        else {}
    )
