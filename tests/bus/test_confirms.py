from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pamqp import frame
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from reach_worker.bus.confirms import Batch, Confirms
from reach_worker.ports import Sent
from tests.bus.delivering import payload_of


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return payload_of(frame.marshal(Basic.Ack(tag, multiple=multiple), 1))


def nack(tag: int, *, multiple: bool = False) -> bytes:
    return payload_of(frame.marshal(Basic.Nack(tag, multiple=multiple, requeue=False), 1))


def header(message_id: str) -> bytes:
    return payload_of(frame.marshal(ContentHeader(0, 0, Basic.Properties(message_id=message_id)), 1))


def sent(confirms: Confirms, *ids: str) -> Batch:
    batch = Batch(len(ids))
    for at, message_id in enumerate(ids):
        confirms.sent(batch, at, message_id)
    return batch


def test_each_answer_is_for_its_message() -> None:
    confirms = Confirms()
    batch = sent(confirms, "a", "b", "c", "d")
    confirms.nacked(nack(2))
    confirms.returned(b"", header("c"), b"")
    confirms.acked(ack(3))
    confirms.acked(ack(1))
    assert batch.results == [Sent.CONFIRMED, Sent.REFUSED, Sent.UNROUTABLE, Sent.UNCERTAIN]
    assert batch.awaited == 1


def test_one_answer_may_be_for_all_before_it_over_batches() -> None:
    confirms = Confirms()
    first, second = sent(confirms, "a", "b"), sent(confirms, "c", "d")
    confirms.acked(ack(3, multiple=True))
    assert (first.results, first.awaited) == ([Sent.CONFIRMED] * 2, 0)
    assert (second.results, second.awaited) == ([Sent.CONFIRMED, Sent.UNCERTAIN], 1)


def test_none_stands_for_all() -> None:
    confirms = Confirms()
    batch = sent(confirms, "a", "b")
    confirms.nacked(nack(0, multiple=True))
    assert batch.results == [Sent.REFUSED] * 2


def test_of_equal_ids_each_return_is_the_next_one() -> None:
    confirms = Confirms()
    batch = sent(confirms, "same", "same", "other", "same")
    confirms.returned(b"", header("same"), b"")
    confirms.returned(b"", header("same"), b"")
    confirms.acked(ack(4, multiple=True))
    assert batch.results == [Sent.UNROUTABLE, Sent.UNROUTABLE, Sent.CONFIRMED, Sent.CONFIRMED]


def test_a_return_that_is_nacked_stays_unroutable() -> None:
    confirms = Confirms()
    batch = sent(confirms, "a")
    confirms.returned(b"", header("a"), b"")
    confirms.nacked(nack(1))
    assert (batch.results, batch.awaited) == ([Sent.UNROUTABLE], 0)


@pytest.mark.parametrize("method", [ack(7), ack(7, multiple=True)])
def test_an_answer_to_nothing_is_let_go(method: bytes) -> None:
    confirms = Confirms()
    confirms.acked(method)
    confirms.returned(b"", header("x"), b"")
    confirms.returned(b"", b"", b"")
    batch = sent(confirms, "x")
    confirms.acked(ack(1))
    assert (batch.results, batch.awaited) == ([Sent.CONFIRMED], 0)


async def test_the_end_wakes_who_waits_and_leaves_it_open() -> None:
    confirms = Confirms()
    batch = sent(confirms, "a", "b")
    confirms.acked(ack(2))
    confirms.end()
    await batch.wait(3600)
    assert batch.results == [Sent.UNCERTAIN, Sent.CONFIRMED]


async def test_waiting_ends_with_the_time() -> None:
    batch = sent(Confirms(), "a")
    await batch.wait(0.001)
    assert batch.awaited == 1


def test_what_was_not_sent_is_refused() -> None:
    assert Batch(2).results == [Sent.REFUSED] * 2


@dataclass
class Published:
    batch: Batch
    at: int
    message_id: str
    returned: bool = False
    result: Sent = field(default=Sent.UNCERTAIN)


class Broker(RuleBasedStateMachine):
    """Answers in any order that a broker may choose; every message gets its own answer."""

    def __init__(self) -> None:
        super().__init__()
        self.confirms = Confirms()
        self.all: list[Published] = []
        self.looked_at = 0

    @rule(ids=st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
    def publish(self, ids: list[str]) -> None:
        batch = sent(self.confirms, *ids)
        self.all += [Published(batch, at, message_id) for at, message_id in enumerate(ids)]

    @precondition(lambda self: self.looked_at < len(self.all))
    @rule(passed=st.integers(0, 3))
    def return_one(self, passed: int) -> None:
        """Some are routed, the next is not."""
        at = min(self.looked_at + passed, len(self.all) - 1)
        self.looked_at = at + 1
        one = self.all[at]
        twins = any(
            other.message_id == one.message_id and other.result is Sent.UNCERTAIN and not other.returned
            for other in self.all[:at]
        )
        if one.result is Sent.UNCERTAIN and not twins:  # of twins nobody can tell which it was
            self.confirms.returned(b"", header(one.message_id), b"")
            one.returned = True

    @precondition(lambda self: self.all)
    @rule(data=st.data(), multiple=st.booleans(), good=st.booleans())
    def answer(self, data: st.DataObject, multiple: bool, good: bool) -> None:
        tag = data.draw(st.integers(1, len(self.all)))
        if good:
            self.confirms.acked(ack(tag, multiple=multiple))
        else:
            self.confirms.nacked(nack(tag, multiple=multiple))
        for one in self.all[: tag if multiple else 0] or self.all[tag - 1 : tag]:
            if one.result is Sent.UNCERTAIN:
                plain = Sent.CONFIRMED if good else Sent.REFUSED
                one.result = Sent.UNROUTABLE if one.returned else plain

    @invariant()
    def everybody_knows(self) -> None:
        for one in self.all:
            known = Sent.UNROUTABLE if one.returned else one.result
            assert one.batch.results[one.at] is known


TestBroker = Broker.TestCase
