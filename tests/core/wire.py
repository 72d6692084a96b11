"""Strategies for what travels: envelopes and dispatches as we write them, and headers as somebody else may."""

from typing import Any

from hypothesis import strategies as st

from reach_worker.core import dispatch as dispatch_headers
from reach_worker.core import envelope as envelope_headers
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.envelope import LARGEST_NUMBER, Envelope
from reach_worker.core.outcome import Attempt, Outcome, OutcomeClass
from reach_worker.core.visits import Visit

HEX = "0123456789abcdef"
TEXT = st.text(max_size=20)
NAME = st.text(min_size=1, max_size=20)
DISPATCH_ID = st.text(HEX, min_size=1, max_size=32)
TIME = st.integers(0, LARGEST_NUMBER)
OUR_HEADERS = sorted(
    value
    for module in (envelope_headers, dispatch_headers)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str) and value.startswith("x-reach-")
)

ATTEMPT = st.builds(
    Attempt,
    number=st.integers(1, 40),
    agent_id=NAME,
    dispatch_id=DISPATCH_ID,
    decision_id=DISPATCH_ID,
    outcome=st.sampled_from(OutcomeClass),
    message=TEXT,
    dispatched_at=TIME,
    ended_at=TIME,
)

ENVELOPE = st.builds(
    Envelope,
    task_id=NAME,
    flow_id=NAME,
    capability=TEXT,
    caller=NAME,
    first_seen=TIME,
    deadline=st.none() | TIME,
    side_effects=st.booleans(),
    life=st.integers(0, 100),
    reply_to=st.none() | TEXT,
    correlation_id=st.none() | TEXT,
    content_type=st.none() | TEXT,
    attempts=st.lists(ATTEMPT, max_size=3).map(tuple),
    past=st.none() | TEXT,
    replays=st.integers(0, 100),
    not_before=TIME,
    to_agent=st.none() | TEXT,
    passed_on=st.none().map(lambda _: (("traceparent", "00-ab-cd-01"),)) | st.just(()),
    released=st.lists(DISPATCH_ID, max_size=8).map(tuple),
    from_agent=st.none() | TEXT,
    hops=st.integers(0, 100),
    visited=st.lists(st.builds(Visit, TEXT, TEXT), max_size=3).map(tuple),
)

DISPATCH = st.builds(
    Dispatch,
    envelope=ENVELOPE,
    dispatch_id=DISPATCH_ID,
    decision_id=DISPATCH_ID,
    agent_id=NAME,
    owner=NAME,
    dispatched_at=st.integers(1, LARGEST_NUMBER),
    start_by=TIME,
    timeout_ms=st.integers(1, LARGEST_NUMBER),
)

OUTCOME = st.builds(
    Outcome,
    dispatch_id=DISPATCH_ID,
    task_id=NAME,
    agent_id=NAME,
    instance_id=TEXT,
    outcome=st.sampled_from(OutcomeClass),
    message=TEXT,
    retry_after_ms=st.none() | st.integers(0, dispatch_headers.LONGEST_REST_MS),
    duration_ms=st.none() | st.integers(0, 10**9).map(float),
    started=st.booleans(),
    crashed=st.booleans(),
    chunks=st.integers(0, 10**9),
)

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=20)
    | TEXT
    | st.sampled_from(
        ["[]", "{}", "[1]", '["a"]', '[{"attempt": 1}]', '[{"attempt": 1e400}]', "null", "started"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
"""What AMQP lets anybody write into a header, and more."""

JUNK_HEADERS = st.dictionaries(
    st.sampled_from([*OUR_HEADERS, "traceparent", "x-death"]) | TEXT, JUNK, max_size=12
)
