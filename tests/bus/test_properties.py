from hypothesis import given
from hypothesis import strategies as st
from pamqp import frame
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from reach_worker.bus.codec import delivery_from, delivery_of, read_deliver
from reach_worker.bus.properties import read_properties
from tests.bus.any_header import headers, texts
from tests.bus.delivering import FIXED_SIZE, delivered, payload_of


@given(headers)
def test_what_is_read_is_what_pamqp_reads(header: ContentHeader) -> None:
    data = frame.marshal(header, 7)
    theirs = frame.unmarshal(data)[2]
    assert isinstance(theirs, ContentHeader)
    ours = read_properties(payload_of(data))
    for name in Basic.Properties.__slots__:
        if name == "timestamp":
            instant = theirs.properties.timestamp
            assert ours.timestamp_s == (instant.timestamp() if instant else None)
        elif name != "cluster_id":  # absent is empty to pamqp; nobody writes one
            found, wanted = getattr(ours, name), getattr(theirs.properties, name)
            assert repr(found) == repr(wanted)  # not a number is equal to itself there


@given(headers, st.sampled_from(["", "reach.v1.tasks"]), texts, st.integers(1, 2**63 - 1), st.booleans())
def test_a_delivery_is_the_same_by_way_of_aiormq(
    header: ContentHeader, exchange: str, key: str, tag: int, again: bool
) -> None:
    method = Basic.Deliver("tag", tag, redelivered=again, exchange=exchange, routing_key=key)
    message = delivered(method, header, b"body")
    theirs = delivery_from(message, "work", None)
    arrival = read_deliver(payload_of(frame.marshal(method, 7)))
    ours = delivery_of("work", arrival, payload_of(frame.marshal(header, 7)), b"body", None)
    assert repr(ours) == repr(theirs)
    assert (arrival.consumer, arrival.tag) == ("tag", tag)


def test_a_header_without_properties_says_nothing() -> None:
    empty = payload_of(frame.marshal(ContentHeader(0, 3), 7))
    assert len(empty) == FIXED_SIZE + 2
    found = read_properties(empty)
    assert {getattr(found, name) for name in found.__slots__} == {None}
