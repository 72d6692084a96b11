"""How long a task waits before it is tried again, and on which rung of the retry ladder."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

RUNGS_MS: Final = (
    250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 30_000, 60_000, 300_000, 900_000, 1_800_000,
)  # fmt: skip
"""The delays that exist as queues. A drawn delay is rounded up to one, so no odd number needs a queue of its own."""


class RetryPolicy(BaseModel):
    """When a task is tried again."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_retries: int = Field(3, ge=0, le=39, description="retries after the first attempt")
    base_s: float = Field(0.5, gt=0, le=3600, description="upper bound of the first delay, seconds")
    factor: float = Field(2.0, ge=1, le=10, description="growth of the bound with each retry")
    cap_s: float = Field(60.0, gt=0, le=1800, description="largest bound, seconds")
    max_dispatches: int = Field(
        20, ge=1, le=40, description="dispatches of one task in all, also those that spend no retry"
    )
    budget_share: float = Field(
        0.2, ge=0, le=40, description="retries in all are at most this share of recent first attempts"
    )
    budget_floor_per_min: float = Field(
        10.0, gt=0, le=1_000_000, description="but so many a minute always; a retry over the budget waits"
    )


def delay_s(retry: int, draw: float, policy: RetryPolicy) -> float:
    """Seconds before retry number ``retry`` (from 1): exponential backoff with full jitter.

    ``draw`` is uniform in [0, 1). Source: "full jitter", M. Brooker, "Exponential Backoff And Jitter" (AWS, 2015):
    uniform(0, min(cap, base · factor^(retry − 1))).
    """
    if retry < 1:
        raise ValueError("retries count from 1")
    bound = min(policy.cap_s, policy.base_s * policy.factor ** min(retry - 1, 64))
    return draw * bound


def rung_ms(delay: float) -> int:
    """The rung for a delay in seconds: the smallest that is not shorter; the longest one where none is.

    A wait longer than the longest rung hops: the task comes back, sees that its time has not come and takes
    another rung.
    """
    wanted = delay * 1000
    for rung in RUNGS_MS:
        if rung >= wanted:
            return rung
    return RUNGS_MS[-1]
