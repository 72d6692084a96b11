"""The breaker's settings, and the numbers that a routing preset keeps."""

from typing import Any

import pytest

from reach_worker.core.breaker import DECLARED_BREAKER, BreakerPolicy
from reach_worker.settings import Settings
from reach_worker.wiring import breaker_policy


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({}, BreakerPolicy()),
        ({"routing": {"preset": "declared"}}, DECLARED_BREAKER),
        ({"breaker": {"mode": "observe"}}, BreakerPolicy(mode="observe")),
        (
            {"routing": {"preset": "declared"}, "breaker": {"mode": "observe"}},
            DECLARED_BREAKER.model_copy(update={"mode": "observe"}),
        ),
        (
            {"routing": {"preset": "declared"}, "breaker": {"streak": 5, "rate_floor": 0.6}},
            DECLARED_BREAKER.model_copy(update={"streak": 5, "rate_floor": 0.6}),
        ),
    ],
)
def test_what_is_not_given_is_the_presets(given: dict[str, Any], policy: BreakerPolicy) -> None:
    assert breaker_policy(Settings.model_validate(given)) == policy
