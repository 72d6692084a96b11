"""Fleets, tasks and policies of every kind: drawn by hypothesis, or rolled from a seed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from reach_worker.core.exploration import exploration_draw
from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import Ask
from reach_worker.core.policy import PRESETS, RoutingPolicy
from reach_worker.core.presence import PresenceState
from tests.core.agents import CAPABILITY, NOW, ask, fleet_of, manifest, occupy, there

Fields = Mapping[str, Any]
T = TypeVar("T")

AGENT: Final = st.fixed_dictionaries(
    {
        "cost": st.floats(-2, 8),
        "latency_ms": st.floats(0, 20_000),
        "tags": st.lists(st.sampled_from(["vision", "ocr"]), unique=True),
        "callable_by": st.sampled_from([["*"], ["alice"]]),
        "region": st.none() | st.sampled_from(["eu", "us"]),
        "team": st.none() | st.sampled_from(["red", "blue"]),
        "held": st.integers(0, 9),
        "gone": st.integers(0, 2),
        "smoothed_load": st.floats(0, 1),
        "tries": st.lists(st.booleans(), max_size=8),
        "age": st.floats(0, 4_000),
        "elsewhere": st.lists(st.booleans(), max_size=4),
        "seconds": st.lists(st.floats(0, 60), max_size=5),
        "feedback": st.lists(st.booleans(), max_size=3),
        "rejected": st.integers(0, 3),
    }
)
"""What an agent declares and what is known of it; ``age``: seconds since all of it happened."""
FLEET: Final = st.dictionaries(st.sampled_from("abcdef"), AGENT, min_size=1, max_size=6)
ASK: Final = st.builds(
    Ask,
    task_id=st.text(max_size=8),
    capability=st.just(CAPABILITY),
    payload=st.just({}),
    requires=st.lists(st.sampled_from(["vision", "ocr", "audio"]), max_size=2).map(tuple),
    caller=st.sampled_from(["anonymous", "alice"]),
    excluded=st.dictionaries(st.sampled_from("abc"), st.just("failed at attempt 1"), max_size=2),
    rejected_by=st.frozensets(st.sampled_from("abc"), max_size=2),
    visited=st.frozensets(st.sampled_from("abc"), max_size=1),
    to_agent=st.none() | st.sampled_from("abz"),
    session_id=st.none() | st.just("s"),
    attempt=st.integers(1, 4),
    waited_s=st.sampled_from([0.0, 4.0, 6.0]),
    match=st.none() | st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1)),
)
POLICY: Final = st.builds(
    RoutingPolicy,
    preset=st.sampled_from(list(PRESETS)),
    explore=st.none() | st.floats(0, 0.5),
    tie_break=st.sampled_from([None, "name", "spread"]),
    score_bonus=st.dictionaries(st.sampled_from("abc"), st.floats(-1, 1), max_size=2),
    region=st.sampled_from([None, "eu"]),
    team=st.sampled_from([None, "red"]),
    fallback=st.sampled_from([{}, {CAPABILITY: ("a", "b")}]),
)


def fleet_from(fields: Mapping[str, Fields]) -> Fleet:
    """A fleet of such agents; agent ``b`` had the last task of session ``s``."""
    fleet = fleet_of(
        manifest(
            agent_id,
            offers={"cost": one["cost"], "latency_ms": one["latency_ms"], "tags": one["tags"]},
            **{name: one[name] for name in ("callable_by", "region", "team") if one[name] is not None},
        )
        for agent_id, one in fields.items()
    )
    for agent_id, one in fields.items():
        live(fleet, agent_id, one)
    fleet.had_session("s", "b")
    return fleet


def live(fleet: Fleet, agent_id: str, one: Fields) -> None:
    """Let all that is known of the agent happen."""
    occupy(fleet, agent_id, one["held"])
    agent = fleet.agents[agent_id]
    agent.smoothed_load = one["smoothed_load"]
    for number in range(one["gone"]):
        there(agent, instance_id=f"{agent_id}-gone-{number}").state = PresenceState.DEAD
    then = NOW - one["age"]
    for good in one["elsewhere"]:
        fleet.record.touch(agent_id, "elsewhere").ended(then, good=good, seconds=None)
    track = fleet.record.touch(agent_id, CAPABILITY)
    for good in one["tries"]:
        track.ended(then, good=good, seconds=None)
    for seconds in one["seconds"]:
        track.service.add(seconds)
    for good in one["feedback"]:
        track.feedback.add(then, good=good)
    for _ in range(one["rejected"]):
        track.rejected(then)


class Dice:
    """Rolls that are the same for one seed, everywhere and for ever."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.rolled = 0

    def roll(self) -> float:
        """Uniform in [0, 1)."""
        self.rolled += 1
        return exploration_draw(self.seed, "roll", self.rolled)

    def below(self, end: int) -> int:
        return int(self.roll() * end)

    def one_of(self, several: Sequence[T]) -> T:
        return several[self.below(len(several))]

    def coins(self, most: int) -> list[bool]:
        good = self.roll()
        return [self.roll() < good for _ in range(self.below(most + 1))]


def rolled_agent(dice: Dice) -> Fields:
    return {
        "cost": dice.one_of([1, 2, 3, 3, 4, 5]),
        "latency_ms": dice.one_of([500, 2_000, 5_500, 9_000]),
        "tags": dice.one_of([[], ["vision"], ["vision", "ocr"]]),
        "callable_by": dice.one_of([["*"], ["*"], ["*"], ["alice"]]),
        "region": dice.one_of([None, "eu"]),
        "team": dice.one_of([None, "red"]),
        "held": dice.below(10),
        "gone": dice.below(3),
        "smoothed_load": dice.roll(),
        "tries": dice.coins(20),
        "age": dice.one_of([0.0, 30.0, 600.0, 90_000.0]),
        "elsewhere": dice.coins(9),
        "seconds": [10 * dice.roll() for _ in range(dice.below(6))],
        "feedback": dice.coins(4),
        "rejected": dice.one_of([0, 0, 0, 3]),
    }


def rolled_fleet(dice: Dice) -> Fleet:
    """Up to eight agents; now and then several are alike, so that ties are broken too."""
    alike = rolled_agent(dice)
    return fleet_from(
        {
            f"agent-{number}": alike if dice.roll() < 0.3 else rolled_agent(dice)
            for number in range(1 + dice.below(8))
        }
    )


def rolled_ask(dice: Dice, task_id: str) -> Ask:
    agents = [f"agent-{number}" for number in range(3)]
    return ask(
        task_id,
        requires=dice.one_of([(), (), ("vision",)]),
        caller=dice.one_of(["anonymous", "alice"]),
        excluded=dice.one_of([{}, {}, {"agent-0": "failed at attempt 1"}]),
        rejected_by=frozenset(dice.one_of([(), (), ("agent-1",)])),
        visited=frozenset(dice.one_of([(), (), ("agent-2",)])),
        session_id=dice.one_of([None, "s"]),
        attempt=1 + dice.below(4),
        match=dice.one_of([None, {agent_id: dice.roll() for agent_id in agents}]),
    )


def rolled_policy(dice: Dice) -> RoutingPolicy:
    return RoutingPolicy(
        preset=dice.one_of(list(PRESETS)),
        explore=dice.one_of([None, 0.0, 0.08, 0.5]),
        tie_break=dice.one_of([None, "name", "spread"]),
        score_bonus=dice.one_of([{}, {"agent-0": -0.2, "agent-2": 0.3}]),
        region=dice.one_of([None, "eu"]),
        fallback=dice.one_of([{}, {CAPABILITY: ("agent-0",)}]),
    )
