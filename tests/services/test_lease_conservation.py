"""Runs that last among everything else that happens: no lease is lost, none stays, and no task ends twice."""

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.services.test_conservation import BOTH, DONE, EFFECTS, EVENTS, ONE, AgentKilled, Play, Turn
from tests.services.test_leases import park


@dataclass(frozen=True)
class Lasts:
    """What an agent has held longest runs for so long that it parks a lease, perhaps after it said that it began."""

    index: int
    said_so: bool = True

    async def happen(self, play: Play) -> None:
        agent = play.agents[self.index]
        work = next((work for work in agent.held if agent.bus.current(work.delivery)), None)
        if work is None or not agent.alive:
            return
        if self.said_so:
            await agent.say_started(work)
        await park(play.stage, agent, work)


LASTS = st.builds(Lasts, st.integers(0, 2), st.booleans())
DIES, COMES_BACK = AgentKilled(0, back=False), AgentKilled(0, back=True)


@example(events=[ONE, Turn(0.5), Lasts(0), DIES, Turn(35.0), Turn(12.0)])
@example(events=[BOTH, Turn(0.5), Lasts(0), COMES_BACK, Turn(35.0), DONE])
@example(events=[EFFECTS, Turn(0.5), Lasts(2), AgentKilled(2, back=False), Turn(35.0)])
@example(events=[ONE, Turn(0.5), Lasts(0), DONE, DIES, Turn(35.0)])
@pytest.mark.parametrize("routers", [1, 2])
@settings(
    max_examples=60,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),  # the same ones in CI every time; new ones everywhere else
    suppress_health_check=[HealthCheck.too_slow],
)
@given(events=st.lists(st.one_of(EVENTS, LASTS, LASTS), min_size=3, max_size=25))
def test_nothing_is_lost_and_nothing_ends_twice(routers: int, events: list[Any]) -> None:
    play = Play()
    asyncio.run(play.run(events, routers))
    play.check()
