"""Where an answer may go."""

import pytest

from reach_worker.core.names import Names
from reach_worker.core.reply_address import is_direct, why_not_answered

NAMES = Names("reach.v1")
GIVEN = "amq.rabbitmq.reply-to.g1h2AA5yZXBseUAyNzMzMzQ3NgAAeoYAAAABaw1dDA==.GUC4urnfGEsH6Iw/aaHpWQ=="
"""As RabbitMQ 3.10 makes them."""


@pytest.mark.parametrize("address", [GIVEN, "amq.rabbitmq.reply-to", "mine", "", "amq.gen-x", "reach.v1x"])
def test_other_peoples_queues_are_answered(address: str) -> None:
    assert why_not_answered(address, NAMES) is None


@pytest.mark.parametrize("address", ["reach.v1.dlq", "reach.v1", "reach.v2.intake"])
def test_our_own_queues_are_not(address: str) -> None:
    assert "one of the router's own queues" in (why_not_answered(address, NAMES) or "")


@pytest.mark.parametrize("parts", ["", "x", "x.y", "g1h2.", ".k", "g1h2.k.l", "AAAA.k", "g1h2AA5y.k%", "ü.k"])
def test_made_up_direct_addresses_are_not(parts: str) -> None:
    assert "no address that the broker gave" in (
        why_not_answered(f"amq.rabbitmq.reply-to.{parts}", NAMES) or ""
    )


def test_direct_addresses_are_told_from_queues() -> None:
    assert is_direct(GIVEN)
    assert not is_direct("amq.rabbitmq.reply-to")
    assert not is_direct("amq.gen-x")
