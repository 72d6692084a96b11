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
from reach_worker.core.outcome import OutcomeClass
from reach_worker.testing import Fate
from tests.services.flowing import FlowingStage
from tests.services.stage import rules
from tests.services.test_conservation import (
    AFTER,
    BEFORE,
    DONE_TWICE,
    EFFECTS,
    EVENTS,
    LIMITED,
    ONE,
    RELEASED,
    RETRIES,
    TIMEOUT,
    Event,
    Mishap,
    Outcome,
    Play,
    RouterKilled,
    SessionLost,
    StoreAway,
    Turn,
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
@example(  # two routers began it while the store was away: the branch that was let go must not count afterwards
    delays=[16],
    events=[
        SessionLost(None, 0),
        StoreAway(away=True),
        replace(ONE, task_id="t1"),
        ONE,
        ONE,
        replace(DONE_TWICE, to="text.one"),
        replace(LIMITED, started=True, unacknowledged=True, to="text.one"),
        RouterKilled(AFTER, 0),
        Turn(35.0),
        SessionLost(BEFORE, 0),
        Outcome(OutcomeClass.UNAVAILABLE, started=True, twice=True, unacknowledged=False),
        replace(TIMEOUT, unacknowledged=True),
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
