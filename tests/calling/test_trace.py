"""Which trace a task belongs to: what the caller says, what his process is in the middle of, or a new one."""

import re
from contextvars import copy_context

import pytest
from opentelemetry import trace

from reach_worker.calling.trace import current, trace_headers
from reach_worker.errors import BadInput
from reach_worker.testing import SteppedClock

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_new_trace_each_time_where_nothing_is_said() -> None:
    clock = SteppedClock()
    first, second = (trace_headers(None, clock)["traceparent"] for _ in range(2))
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", first)
    assert first[:35] != second[:35]


def test_what_is_said_counts_and_else_what_the_program_is_in() -> None:
    def inside() -> list[str]:
        current.set(OTHER)
        return [trace_headers(given, SteppedClock())["traceparent"] for given in (GIVEN, None)]

    assert copy_context().run(inside) == [GIVEN, OTHER]


@pytest.mark.parametrize(
    "wrong",
    ["", "17", GIVEN.upper(), GIVEN.replace("00-", "ff-", 1), f"00-{'0' * 32}-{'1' * 16}-01", GIVEN + " "],
)
def test_what_is_no_trace_is_refused(wrong: str) -> None:
    with pytest.raises(BadInput, match="no trace parent"):
        trace_headers(wrong, SteppedClock())


def test_a_span_of_opentelemetry_goes_along_with_its_state() -> None:
    span = trace.NonRecordingSpan(
        trace.SpanContext(
            trace_id=0x0AF7651916CD43DD8448EB211C80319C,
            span_id=0xB7AD6B7169203331,
            is_remote=False,
            trace_flags=trace.TraceFlags(1),
            trace_state=trace.TraceState([("vendor", "x")]),
        )
    )
    with trace.use_span(span):
        assert trace_headers(None, SteppedClock()) == {"traceparent": OTHER, "tracestate": "vendor=x"}
        assert trace_headers(GIVEN, SteppedClock()) == {"traceparent": GIVEN}
    assert trace_headers(None, SteppedClock())["traceparent"] != OTHER
