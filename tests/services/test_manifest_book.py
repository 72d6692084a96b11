"""Which manifest counts: the newest version, and of equal ones what was registered last."""

import logging

import pytest

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.fleet import Fleet
from reach_worker.core.manifest import Manifest
from reach_worker.core.message import Delivery
from reach_worker.core.slots import SlotPolicy
from reach_worker.core.tags import TagTable
from reach_worker.services.manifest_book import MOST_BROUGHT, ManifestBook, version_key
from reach_worker.services.news import News
from reach_worker.testing import SteppedClock
from tests.core.agents import there
from tests.services.scripted import manifest


class Book:
    """A book on a fleet of its own."""

    def __init__(self) -> None:
        self.fleet = Fleet(BreakerPolicy(), SlotPolicy())
        self.book = ManifestBook(self.fleet, TagTable({}), SteppedClock())

    def brings(self, brought: Manifest) -> News:
        news = News()
        body = brought.declaration.encode()
        self.book.bring(Delivery("router", body, None, routing_key="manifest.a"), news)
        return news

    def file(self, *manifests: Manifest) -> News:
        news = News()
        self.book.remember(manifests, news)
        return news

    def asks(self, heard: Manifest, *, starts: bool = False) -> bool:
        return self.book.is_new(heard.id, heard.hash, starts=starts)

    @property
    def offers(self) -> list[str]:
        return [capability.id for capability in self.fleet.agents["a"].manifest.capabilities]


ONE, TWO = manifest("a", "one"), manifest("a", "two")
NEWER = manifest("a", "newer", version="2")


def test_one_that_nobody_knows_is_asked_for() -> None:
    book = Book()

    assert book.asks(ONE)
    news = book.brings(ONE)
    assert not book.asks(ONE)
    assert (news.new_agents, news.new_capabilities, len(news.rows)) == ({"a"}, {"one"}, 1)


def test_of_equal_versions_the_later_counts_whoever_registers_it() -> None:
    book = Book()
    book.file(ONE)
    book.brings(TWO)
    assert book.offers == ["two"]
    book.file(ONE)
    assert book.offers == ["one"]


def test_what_was_brought_before_registers_nothing_until_an_instance_starts_with_it() -> None:
    book = Book()
    book.brings(ONE)
    book.brings(TWO)

    assert not book.asks(ONE)
    assert book.brings(ONE).rows == []
    assert book.offers == ["two"]

    assert book.asks(ONE, starts=True)
    book.brings(ONE)
    assert book.offers == ["one"]


def test_an_older_version_counts_for_nothing_and_is_asked_for_once() -> None:
    book = Book()
    book.brings(NEWER)

    assert book.asks(ONE)
    book.brings(ONE)
    book.file(ONE)

    assert book.offers == ["newer"]
    assert not book.asks(ONE)


def test_once_the_file_is_gone_what_a_live_agent_brings_counts_whatever_its_version() -> None:
    book = Book()
    book.brings(ONE)
    book.file(NEWER)
    there(book.fleet.agents["a"])

    book.book.forget({"a", "never known"}, News())

    assert book.offers == ["newer"]
    assert book.asks(ONE)
    book.brings(ONE)
    assert book.offers == ["one"]
    book.brings(NEWER)
    book.brings(TWO)
    assert book.offers == ["newer"]


def test_what_is_added_and_what_is_withdrawn_is_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    book = Book()
    book.file(manifest("a", "kept", "shared", "lost"), manifest("b", "shared"))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        news = book.brings(manifest("a", "kept", "new", version="1.1"))

    assert (news.new_capabilities, news.withdrawn) == ({"kept", "new"}, {"lost"})
    assert [record.getMessage() for record in caplog.records] == [
        "agent a 1.1: added new",
        "agent a 1.1: withdrawn lost, shared",
        'agent a 1.1: changed version "1" → "1.1"',
    ]


def test_brought_manifests_are_not_remembered_without_end() -> None:
    book = Book()
    for number in range(MOST_BROUGHT + 1):
        book.brings(manifest("a", f"c{number}"))

    book.brings(manifest("a", "c0"))
    assert book.offers == ["c0"]


@pytest.mark.parametrize(
    ("older", "newer"), [("1.9", "1.10"), ("1", "1.0"), ("1.0-rc", "1.0.0"), ("a", "1"), ("1-2", "1.3")]
)
def test_versions_have_the_order_that_people_mean(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)
