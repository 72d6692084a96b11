"""What a decision and a message cost, held against a loop of plain Python in the same process.

Both are CPU time of this thread, the least of several tries, taken in turns: neither another process, nor the machine,
nor a pause of the interpreter moves their ratio by much. Three times what it is now would be no accident. What measures
coverage is suspended meanwhile: it traces one of the two.
"""

import gc
import itertools
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pamqp import frame
from pamqp.commands import Basic

from reach_worker.bench.live.decide import asks
from reach_worker.bench.live.known_fleet import known_fleet
from reach_worker.bus.bypass import Bypass
from reach_worker.bus.codec import delivery_of, read_deliver
from reach_worker.bus.confirms import Batch, Confirms
from reach_worker.bus.frames import ack_frames, publish_frames
from reach_worker.bus.transport import FrameMender
from reach_worker.clock import SystemClock
from reach_worker.core.message import Delivery, Message
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.record import DecisionRecord
from reach_worker.core.routing import Chosen, plan
from reach_worker.core.slots import Lease

TRIES = 7
UNDER_WAY = 20
DECISIONS = 40
REFERENCE = 2_000
WORTH = {4: 30.0, 20: 60.0, 200: 350.0, 1_000: 2_000.0}
"""By number of agents: steps of the reference loop that a decision may cost, three times what it costs (4 agents: 10).

To be lowered whenever deciding becomes cheaper."""
WORTH_IN_A_ROUTER = {4: 125.0, 200: 600.0}
"""The same where something changes between any two decisions, as it does in a router: with that, and with its record."""


def reference(steps: int) -> float:
    """Arithmetic, a dictionary, a tuple and a sort: what deciding is made of."""
    total = 0.0
    for step in range(steps):
        parts = {name: (name, step * 0.5, math.exp(-step / 1000)) for name in ("a", "b", "c", "d")}
        total += math.fsum(sorted(value * weight for _, weight, value in parts.values()))
    return total


def least_cpu_s(*works: Callable[[], object]) -> list[float]:
    """Of each, the least CPU time of several tries, in turns."""
    least = [math.inf] * len(works)
    with untraced():
        for _ in range(TRIES):
            for place, work in enumerate(works):
                began = time.thread_time()
                work()
                least[place] = min(least[place], time.thread_time() - began)
    return least


@contextmanager
def untraced() -> Iterator[None]:
    """Within the block nothing is traced in this thread."""
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)


@pytest.mark.parametrize("agents", WORTH)
def test_a_decision_costs_no_more_than_it_should(agents: int) -> None:
    now = SystemClock().monotonic()
    fleet, policy = known_fleet(agents, now), RoutingPolicy()
    wanted = asks(max(4, DECISIONS * 4 // agents))

    def decide() -> None:
        for ask in wanted:
            ask.checked.clear()
            assert isinstance(plan(ask, fleet, policy, now).choice, Chosen)

    gc.collect()
    deciding, looping = least_cpu_s(decide, lambda: reference(REFERENCE))
    cost = (deciding / len(wanted)) / (looping / REFERENCE)
    assert cost < WORTH[agents], (
        f"a decision among {agents} agents costs {cost:.0f} steps of the reference loop"
    )


@pytest.mark.parametrize("agents", WORTH_IN_A_ROUTER)
def test_a_decision_after_a_change_costs_no_more_than_it_should(agents: int) -> None:
    """A slot is taken, another one comes back, its outcome is counted, and time passes."""
    now = SystemClock().monotonic()
    fleet, policy = known_fleet(agents, now), RoutingPolicy()
    wanted = asks(max(8, DECISIONS * 4 // agents))
    out: deque[Lease] = deque()
    times = itertools.count(1)

    def route() -> None:
        for ask in wanted:
            then = now + next(times) / 3_000
            ask.checked.clear()
            decision = plan(ask, fleet, policy, then)
            assert isinstance(decision.choice, Chosen)
            assert DecisionRecord(decision).json()
            out.append(
                Lease(f"d{then}", decision.choice.agent_id, ask.task_id, then, then, 1_000, probe=False)
            )
            fleet.leases.add(out[-1])
            if len(out) > UNDER_WAY:
                done = out.popleft()
                fleet.leases.release(done.dispatch_id)
                fleet.record.touch(done.agent_id, ask.capability).ended(then, good=True, seconds=0.5)

    gc.collect()
    routing, looping = least_cpu_s(route, lambda: reference(REFERENCE))
    cost = (routing / len(wanted)) / (looping / REFERENCE)
    assert cost < WORTH_IN_A_ROUTER[agents], (
        f"a decision among {agents} agents costs {cost:.0f} steps of the reference loop in a router"
    )


MESSAGES = 200
WORTH_OF_A_MESSAGE = 55.0
"""Steps of the reference loop that a message may cost from publisher to consumer, three times what it does (18)."""


def test_a_message_costs_no_more_than_it_should() -> None:
    """Framed with the headers of a dispatch, written, confirmed with the others, read and taken: all but the socket."""
    headers = {f"x-reach-field-{number}": "a value of some length" for number in range(14)} | {"attempt": 1}
    messages = [Message("agent.a", bytes(1024), headers, correlation_id=f"c{n}") for n in range(MESSAGES)]
    confirmed = ack_frames(1, [(MESSAGES, True)])[7:-1]
    arrived: list[Delivery] = []

    def take(method: bytes, header: bytes, body: bytes) -> None:
        arrived.append(delivery_of("agent.a", read_deliver(method), header, body, None))

    bypass = Bypass()
    bypass.watch(1, {}, {Basic.Deliver.index.to_bytes(4): take})
    deliver = frame.marshal(Basic.Deliver("ctag1.abc", 7, exchange="", routing_key="agent.a"), 1)

    def pass_on() -> None:
        confirms, batch, sent = Confirms(), Batch(MESSAGES), []
        for at, message in enumerate(messages):
            sent.append(publish_frames(message, f"m{at}", 1, 131_072))
            confirms.sent(batch, at, f"m{at}")
        confirms.acked(confirmed)
        arrived.clear()
        FrameMender(bypass).feed(b"".join(deliver + b"".join(frames[1:]) for frames in sent))
        assert len(arrived) == MESSAGES
        assert not batch.awaited

    passed, looped = least_cpu_s(pass_on, lambda: reference(REFERENCE))
    steps = passed / MESSAGES / (looped / REFERENCE)
    assert steps < WORTH_OF_A_MESSAGE, f"a message costs {steps:.0f} steps of the reference loop"
