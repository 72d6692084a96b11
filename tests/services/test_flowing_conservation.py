"""The same as ``test_conservation``, with routers that decide while what they decided before is still on its way."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.testing import Fate
from tests.services.flowing import FlowingStage
from tests.services.stage import rules
from tests.services.test_conservation import (
    AFTER,
    EFFECTS,
    EVENTS,
    ONE,
    RELEASED,
    RETRIES,
    Event,
    Mishap,
    Play,
    SessionLost,
)


async def flow(delays: Sequence[int], routers: int, events: Sequence[Event]) -> None:
    stage = FlowingStage(
        policies=rules(retry=RetryPolicy(max_retries=RETRIES)),
        breaker=BreakerPolicy(streak=4, open_s=10.0),
        delays=delays,
    )
    play = Play(stage)
    try:
        await play.run(events, routers)
        play.check()
    finally:
        await stage.all_over()


@example(  # what was waited for, and behind an earlier outcome that came again with it, cast doubt on it
    delays=[22, 11, 9, 36, 6],
    events=[
        SessionLost(AFTER, 1),
        Mishap(2, Fate.REFUSED, 0),
        Mishap(2, Fate.LOST, 0),
        EFFECTS,
        replace(RELEASED, unacknowledged=True, to="text.one"),
        ONE,
    ],
)
@pytest.mark.parametrize("routers", [1, 2])
@settings(
    max_examples=60,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),  # the same ones in CI every time; new ones everywhere else
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    delays=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    events=st.lists(EVENTS, min_size=3, max_size=25),
)
def test_nothing_is_lost_and_nothing_ends_twice(routers: int, delays: list[int], events: list[Event]) -> None:
    asyncio.run(flow(delays, routers, events))
