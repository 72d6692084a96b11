"""Nothing is held unacknowledged for half of the broker's consumer timeout, neither by a router nor by a worker."""

import pytest

from reach_worker.settings import Settings
from reach_worker.settings.model import BrokerSettings
from reach_worker.wiring import router_policies, worker_policy


@pytest.mark.parametrize(("timeout_s", "hold_s"), [(1800.0, 30.0), (60.0, 30.0), (10.0, 5.0)])
def test_a_router_holds_a_waiting_task_for_half_a_minute_at_most(timeout_s: float, hold_s: float) -> None:
    settings = Settings(broker=BrokerSettings(consumer_timeout_s=timeout_s))
    assert router_policies(settings).hold_s == hold_s


def test_a_worker_knows_the_time_that_it_has() -> None:
    settings = Settings(broker=BrokerSettings(consumer_timeout_s=10.0))
    assert worker_policy(settings).consumer_timeout_s == 10.0
    assert worker_policy(Settings()).consumer_timeout_s == 1800.0
