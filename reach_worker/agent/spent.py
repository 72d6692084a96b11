"""What an attempt has cost so far, by its handler's word."""

from dataclasses import dataclass


@dataclass(slots=True)
class Spent:
    """What an attempt has cost: money, and tokens where a model was asked."""

    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, cost: float, tokens_in: int, tokens_out: int) -> None:
        """Book some more. Raises ``ValueError`` for what is below 0 or no number."""
        if not 0 <= cost < float("inf") or tokens_in < 0 or tokens_out < 0:
            raise ValueError(f"cost and tokens are 0 or more, not {cost!r}, {tokens_in!r} and {tokens_out!r}")
        self.cost += float(cost)
        self.tokens_in += int(tokens_in)
        self.tokens_out += int(tokens_out)
