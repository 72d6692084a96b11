"""What a message says where nobody says otherwise."""

from reach_worker.core.message import Delivery, Message


def test_a_message_is_kept_and_must_find_a_queue_unless_it_says_otherwise() -> None:
    message = Message("queue", b"")

    assert (message.exchange, message.persistent, message.mandatory) == ("", True, True)
    assert message.expiration_ms is None
    assert message.content_type == "application/json"


def test_a_delivery_claims_nothing() -> None:
    delivery = Delivery("queue", b"", 1)

    assert delivery.headers == {}
    assert (delivery.message_id, delivery.user_id, delivery.fault) == (None, None, None)
    assert delivery.redelivered is False
