"""All ways to choose that the bench knows, by name: the stand-ins, and every preset of ``core``."""

from collections.abc import Mapping
from typing import Final

from reach_worker.bench.knowledge import Knowledge
from reach_worker.bench.router import Contender
from reach_worker.bench.stand_ins import STAND_INS
from reach_worker.core.gates import Ask
from reach_worker.core.policy import PRESETS, RoutingPolicy
from reach_worker.core.routing import plan

LEFT_OUT: Final[Mapping[str, str]] = {
    "semantic": "it scores the match with an intent, and the tasks of the bench name their capability",
}
"""Presets that would have nothing to work with, and why."""


def preset(name: str) -> Contender:
    """A shipped policy, as it decides in a router."""
    policy = RoutingPolicy.model_validate({"preset": name})

    def choose(ask: Ask, knowledge: Knowledge, now: float) -> str | None:
        return plan(ask, knowledge.fleet, policy, now).agent_id

    return choose


def known_contenders() -> tuple[str, ...]:
    """Their names, presets first."""
    return (*(name for name in PRESETS if name not in LEFT_OUT), *STAND_INS)


def contender(name: str) -> Contender:
    """The one with this name."""
    stand_in = STAND_INS.get(name)
    return preset(name) if stand_in is None else stand_in
