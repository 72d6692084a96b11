"""Exploration in closed form: how likely each agent is to be chosen, and the draw that chooses.

A share ε of the decisions goes to an agent drawn with a weight that grows with what its score may well be; the rest
goes to the best. So the probability of every choice is exact: (1 − ε) · [it is the best] + ε · wᵢ / Σw. Without it no
other policy can ever be judged from the log.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

TEMPERATURE: Final = 0.05
"""Weight of an agent: e^(optimistic score / temperature)."""


def probabilities(optimistic: Sequence[float], exploration: float, best: int = 0) -> list[float]:
    """How likely each is to be chosen, by the optimistic scores of those whose gates are open; ``best``: its place.

    They add up to 1. In another order each is the same to the last digit: the sum is rounded once.
    """
    if not optimistic:
        return []
    if exploration <= 0.0 or len(optimistic) == 1:
        shares = [0.0] * len(optimistic)
        shares[best] = 1.0
        return shares
    highest = max(optimistic)
    weights = [math.exp((value - highest) / TEMPERATURE) for value in optimistic]
    total = math.fsum(weights)
    shares = [exploration * weight / total for weight in weights]
    shares[best] += 1.0 - exploration
    return shares


def explores(among: int, exploration: float, draw: float) -> bool:
    """Whether a draw in [0, 1) falls into the exploring share, where there are so many to choose from."""
    return exploration > 0.0 and among > 1 and draw >= 1.0 - exploration


def pick(shares: Sequence[float], exploration: float, draw: float) -> tuple[int, bool]:
    """The place that a draw in [0, 1) falls on, and whether it fell into the exploring share.

    The best has the draws below 1 − ε; the exploring share lies above, in the order of the ranking.
    """
    if not explores(len(shares), exploration, draw):
        return 0, False
    left = draw - (1.0 - exploration)
    for place, share in enumerate(shares):
        left -= share - (1.0 - exploration if place == 0 else 0.0)
        if left < 0.0:
            return place, True
    return len(shares) - 1, True


def exploration_draw(seed: str, task_id: str, attempt: int) -> float:
    """Uniform in [0, 1), the same for one attempt of one task: two plans of one fleet for one task are equal."""
    text = f"{seed}\x00{task_id}\x00{attempt}".encode("utf-8", "surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest()) >> 11) / 2**53
