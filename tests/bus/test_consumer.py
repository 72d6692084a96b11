import asyncio
from random import Random  # noqa: TID251 - seeded: the same acknowledgements every time

import pytest
from yarl import URL

from reach_worker.bus import topology
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.bus.topology import Topology, resting
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.ports import Sent
from reach_worker.testing.tcp_proxy import Direction, TcpProxy
from tests.bus.bench import arrivals, bodies, to, until_session
from tests.bus.conftest import MakeBus
from tests.bus.until import until
from tests.bus.wire import Wire

pytestmark = pytest.mark.broker

ACK_FRAME = 21  # bytes of a basic.ack on the wire


@pytest.fixture
async def queue(wire: Wire, prefix: str) -> str:
    """A queue that is declared again in every session of a bus made by ``consuming``."""
    return await wire.queue(f"{prefix}.work", resting("any").arguments)


def consuming(make_bus: MakeBus, queue: str, prefetch: int, *urls: str, wanted: bool = True) -> RabbitBus:
    bus = make_bus(*urls, wanted=Topology((), (resting(queue),), ()))
    bus.subscribe("work", queue, prefetch, wanted=wanted)
    return bus


async def fill(wire: Wire, queue: str, count: int) -> list[bytes]:
    """Publish numbers from 0."""
    made = [b"%d" % number for number in range(count)]
    for body in made:
        await wire.publish(queue, body)
    return made


async def trusted(bus: RabbitBus) -> None:
    """Let the consumer of ``work`` have its first acknowledgement, and so its full prefetch."""
    (first,) = await arrivals(bus, "work", 1)
    await bus.ack([first])


# ---- Slow start


async def test_one_at_first_and_the_full_number_after_the_first_acknowledgement(
    wire: Wire, queue: str, make_bus: MakeBus
) -> None:
    await fill(wire, queue, 10)
    async with consuming(make_bus, queue, 4).running() as bus:
        first = await arrivals(bus, "work", 1)
        await wire.until_there(queue, 9)
        await bus.ack(first)
        assert bodies(await arrivals(bus, "work", 4)) == [b"1", b"2", b"3", b"4"]
        await wire.until_there(queue, 5)
        assert bus.inbox.take("work") == []


async def test_every_session_starts_slowly(wire: Wire, queue: str, make_bus: MakeBus) -> None:
    """Whatever ends sessions wears out the one message it met: no other is ever marked as delivered."""
    await fill(wire, queue, 3)
    async with consuming(make_bus, queue, 50).running() as bus:
        for number in range(1, 4):
            await until_session(bus, number)
            (met,) = await arrivals(bus, "work", 1)
            assert (met.body, met.redelivered) == (b"0", number > 1)
            await bus.publish([Message("", b"", exchange="gone")])  # ends the session
        await until_session(bus, 4)
        (met,) = await arrivals(bus, "work", 1)
        assert met.headers["x-delivery-count"] == 3
        await bus.ack([met])
        for neighbour in (b"1", b"2"):
            (met,) = await arrivals(bus, "work", 1)
            assert (met.body, met.redelivered) == (neighbour, False)
            await bus.ack([met])


# ---- Acknowledging


async def test_a_batch_is_acknowledged_in_one_frame(
    wire: Wire, queue: str, broker_url: str, make_bus: MakeBus
) -> None:
    await fill(wire, queue, 101)
    url = URL(broker_url)
    async with TcpProxy(url.host or "", url.port or 0) as proxy:
        through = str(url.with_port(proxy.url_port))
        async with consuming(make_bus, queue, 100, through).running() as bus:
            await trusted(bus)
            batch = await arrivals(bus, "work", 100)
            before = proxy.forwarded[Direction.TO_TARGET]
            await bus.ack(batch)
            await until(lambda: proxy.forwarded[Direction.TO_TARGET] > before)
            assert proxy.forwarded[Direction.TO_TARGET] - before == ACK_FRAME
    assert await wire.get_all(queue) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_exactly_what_was_acknowledged_is_gone(
    wire: Wire, queue: str, make_bus: MakeBus, seed: int
) -> None:
    """In batches of any shape and order; the rest comes back when the session ends."""
    rng = Random(seed)
    await fill(wire, queue, 60)
    async with consuming(make_bus, queue, 100).running() as bus:
        await trusted(bus)
        left = await arrivals(bus, "work", 59)
        rng.shuffle(left)
        while len(left) > 15:
            size = rng.randrange(1, 8)
            batch, left = left[:size], left[size:]
            await bus.ack(batch)
            await bus.ack(batch[:1])  # twice is not more
    await wire.until_there(queue, len(left))
    kept = sorted(int(found.body) for found in await wire.get_all(queue))
    assert kept == sorted(int(delivery.body) for delivery in left)


@pytest.mark.parametrize("count", [1, 7, 200])
async def test_acknowledgements_just_before_closing_are_kept(
    wire: Wire, queue: str, make_bus: MakeBus, count: int
) -> None:
    await fill(wire, queue, count + 1)
    async with consuming(make_bus, queue, 500).running() as bus:
        await trusted(bus)
        for delivery in reversed(await arrivals(bus, "work", count)):  # one frame each
            await bus.ack([delivery])
    assert await wire.get_all(queue) == []


async def test_acknowledgements_of_an_old_session_are_let_go(
    wire: Wire, queue: str, make_bus: MakeBus
) -> None:
    await fill(wire, queue, 6)
    async with consuming(make_bus, queue, 5).running() as bus:
        await trusted(bus)
        old = await arrivals(bus, "work", 5)
        assert all(bus.current(delivery) for delivery in old)
        await bus.publish([Message("", b"", exchange="gone")])
        await until_session(bus, 2)
        assert not any(bus.current(delivery) for delivery in old)
        await bus.ack(old)
        again = await arrivals(bus, "work", 1)
        while len(again) < 5:
            await bus.ack([*old, again[-1]])
            again += await arrivals(bus, "work", 1)
        assert sorted(bodies(again)) == bodies(old)
        assert (bus.ready, bus.sessions) == (True, 2)


async def test_what_lay_in_the_inbox_goes_with_its_session(wire: Wire, queue: str, make_bus: MakeBus) -> None:
    await fill(wire, queue, 1)
    async with consuming(make_bus, queue, 5).running() as bus:
        await until(lambda: bool(bus.inbox.waiting.get("work")))
        await bus.publish([Message("", b"", exchange="gone")])
        await until_session(bus, 2)
        (again,) = await arrivals(bus, "work", 1)
        assert (again.redelivered, bus.current(again), bus.inbox.take("work")) == (True, True, [])


# ---- Stopping and resuming


async def test_nothing_comes_until_it_is_wanted(wire: Wire, queue: str, make_bus: MakeBus) -> None:
    await fill(wire, queue, 2)
    async with consuming(make_bus, queue, 5, wanted=False).running() as bus:
        assert bus.ready
        await wire.until_there(queue, 2, consumers=0)
        await bus.want("work", wanted=True)
        assert bodies(await arrivals(bus, "work", 1)) == [b"0"]


async def test_a_pause_takes_no_more_and_keeps_what_was_delivered(
    wire: Wire, queue: str, make_bus: MakeBus
) -> None:
    await fill(wire, queue, 3)
    async with consuming(make_bus, queue, 2).running() as bus:
        await trusted(bus)
        held = await arrivals(bus, "work", 2)
        await bus.want("work", wanted=False)
        await wire.publish(queue, b"later")
        await bus.ack(held)
        await wire.until_there(queue, 1, consumers=0)
        await bus.want("work", wanted=True)
        (later,) = await arrivals(bus, "work", 1)
        assert (later.body, later.redelivered) == (b"later", False)


async def test_a_pause_outlives_the_session(wire: Wire, queue: str, make_bus: MakeBus) -> None:
    async with consuming(make_bus, queue, 2).running() as bus:
        await bus.want("work", wanted=False)
        await bus.publish([Message("", b"", exchange="gone")])
        await until_session(bus, 2)
        await wire.until_there(queue, 0, consumers=0)
        await bus.want("work", wanted=True)
        await wire.until_there(queue, 0, consumers=1)


async def test_what_was_called_harmless_counts_like_all_else(
    wire: Wire, queue: str, make_bus: MakeBus
) -> None:
    """Nothing waits here that another instance could take."""
    await fill(wire, queue, 20)
    async with consuming(make_bus, queue, 4).running() as bus:
        held = await arrivals(bus, "work", 1)
        await bus.trust("work")
        held += await arrivals(bus, "work", 3)
        await wire.until_there(queue, 16)
        await bus.trust("work")
        await bus.ack(held[:1])
        held += await arrivals(bus, "work", 1)
        await wire.until_there(queue, 15)
        assert (bodies(held), bus.inbox.take("work")) == ([b"0", b"1", b"2", b"3", b"4"], [])


@pytest.mark.parametrize("prefetch", [1, 3, 8])
async def test_the_prefetch_can_be_changed(wire: Wire, queue: str, make_bus: MakeBus, prefetch: int) -> None:
    await fill(wire, queue, 100)
    async with consuming(make_bus, queue, 4).running() as bus:
        held, acked = await arrivals(bus, "work", 1), 0
        for changed in (prefetch, 4, prefetch):
            await bus.set_prefetch("work", changed)
            for _ in range(3):  # what is held now may be more: it goes before less counts
                await bus.ack(held)
                acked += len(held)
                held = await arrivals(bus, "work", min(changed, 4))
                assert not any(delivery.redelivered for delivery in held)
            await wire.until_there(queue, 100 - acked - changed)


async def test_a_change_of_prefetch_marks_nothing_as_delivered_before(
    wire: Wire, queue: str, make_bus: MakeBus
) -> None:
    """That mark is how an agent knows that a task has killed its process."""
    await fill(wire, queue, 200)
    found: list[Delivery] = []
    async with consuming(make_bus, queue, 5).running() as bus:
        while len(found) < 200:
            batch = await arrivals(bus, "work", 1)
            found += batch
            await bus.set_prefetch("work", 1 + len(found) % 9)
            await bus.ack(batch)
    assert bodies(found) == [b"%d" % number for number in range(200)]
    assert not any(delivery.redelivered for delivery in found)


async def test_wishes_at_any_moment_are_followed_in_the_end(
    wire: Wire, queue: str, make_bus: MakeBus, prefix: str
) -> None:
    """Also those that come while a session is being opened, from several tasks at once."""
    bus = consuming(make_bus, queue, 4)
    rng = Random(7)
    for number in range(6):
        bus.subscribe(f"other {number}", await wire.queue(f"{prefix}.{number}"), 1)

    async def wish(count: int) -> None:
        for _ in range(count):
            await bus.want("work", wanted=rng.random() < 0.5)
            await bus.set_prefetch("work", rng.randrange(1, 9))
            await asyncio.to_thread(lambda: None)

    async with bus.running():
        for number in range(1, 13):
            wanted = number % 2 == 0
            async with asyncio.TaskGroup() as group:
                group.create_task(bus.publish([Message("", b"", exchange="gone")]))
                group.create_task(wish(number * 3))
                group.create_task(wish(number * 3))
            await bus.want("work", wanted=wanted)
            await until_session(bus, number + 1)
            await wire.until_there(queue, 0, consumers=int(wanted))


# ---- Consumers that the broker ends


async def test_a_consumer_that_the_broker_cancelled_consumes_again(
    wire: Wire, queue: str, make_bus: MakeBus
) -> None:
    async with consuming(make_bus, queue, 5).running() as bus:
        await wire.delete(queue)
        await until_session(bus, 2)
        await wire.publish(queue, b"after")
        assert bodies(await arrivals(bus, "work", 1)) == [b"after"]


async def test_one_more_queue_can_be_consumed(wire: Wire, queue: str, make_bus: MakeBus, prefix: str) -> None:
    async with consuming(make_bus, queue, 5).running() as bus:
        more = await wire.queue(f"{prefix}.more")
        await bus.add_subscription("more", more, 5)
        await bus.add_subscription("more", more, 5)
        await wire.until_there(more, 0, consumers=1)
        await bus.publish([Message("", b"", exchange="gone")])
        await until_session(bus, 2)
        await wire.until_there(more, 0, consumers=1)


# ---- Mailboxes


async def test_a_mailbox_has_a_new_name_in_every_session(wire: Wire, make_bus: MakeBus, prefix: str) -> None:
    await wire.channel.exchange_declare(f"{prefix}.events", exchange_type="topic")
    bus = make_bus()
    bus.subscribe_mailbox("instance", [(f"{prefix}.events", "who"), (f"{prefix}.events", "cancel.#")])
    async with bus.running():
        first = bus.mailbox
        assert first.startswith(f"{prefix}.instance.")
        await wire.publish("cancel.a", b"1", exchange=f"{prefix}.events")
        await wire.publish("presence.a", b"2", exchange=f"{prefix}.events")
        await wire.publish(first, b"3")
        (told,) = await arrivals(bus, "instance", 1)
        assert (told.routing_key, told.body) == ("cancel.a", b"1")
        await bus.ack([told])
        (asked,) = await arrivals(bus, "instance", 1)
        assert (asked.routing_key, asked.body) == (first, b"3")
        await bus.publish([Message("", b"", exchange="gone")])
        await until_session(bus, 2)
        second = bus.mailbox
        assert second != first
        await wire.publish("who", b"4", exchange=f"{prefix}.events")
        assert bodies(await arrivals(bus, "instance", 1)) == [b"4"]
        assert await bus.publish(to(first, b"to the old one")) == [Sent.UNROUTABLE]
    assert await wire.look(second) is None
    await wire.channel.exchange_delete(f"{prefix}.events")


# ---- Getting and looking


async def test_getting_takes_what_there_is_up_to_the_limit(wire: Wire, queue: str, make_bus: MakeBus) -> None:
    await fill(wire, queue, 5)
    async with make_bus().running() as bus:
        got, left = await bus.get(queue, 3)
        assert (bodies(got), left) == ([b"0", b"1", b"2"], 2)
        rest, none_left = await bus.get(queue, 10)
        assert (bodies(rest), none_left) == ([b"3", b"4"], 0)
        assert await bus.get(queue, 10) == ([], 0)
        await bus.ack([got[1], *rest])
    assert [found.body for found in await wire.get_all(queue)] == [b"0", b"2"]


@pytest.mark.parametrize("count", [1, 40, 150])
async def test_what_was_got_and_acknowledged_is_gone(
    wire: Wire, queue: str, make_bus: MakeBus, count: int
) -> None:
    await fill(wire, queue, count + 1)
    async with make_bus().running() as bus:
        got, _ = await bus.get(queue, count)
        for delivery in reversed(got):
            await bus.ack([delivery])
    await wire.until_there(queue, 1)


async def test_looking_takes_nothing(wire: Wire, queue: str, make_bus: MakeBus, prefix: str) -> None:
    await fill(wire, queue, 2)
    async with consuming(make_bus, queue, 1).running() as bus:
        await arrivals(bus, "work", 1)
        await wire.until_there(queue, 1, consumers=1)
        assert await bus.depth(queue) == (1, 1)
        assert await bus.depth(f"{prefix}.nowhere") is None
        assert (bus.ready, bus.sessions) == (True, 1)


async def test_a_queue_that_is_gone_is_declared_again_when_asked(
    wire: Wire, make_bus: MakeBus, names: Names
) -> None:
    async with make_bus(wanted=topology.base(names)).running() as bus:
        lane = names.lane("c")
        for _ in range(2):
            await bus.declare_queue(lane)
            assert await bus.publish(to(lane, b"")) == [Sent.CONFIRMED]
            await wire.delete(lane)
            assert await bus.publish(to(lane, b"")) == [Sent.UNROUTABLE]
        await bus.publish([Message("", b"", exchange="gone")])
        await until_session(bus, 2)
        assert await bus.publish(to(lane, b"")) == [Sent.CONFIRMED]


async def test_a_foreign_lane_costs_neither_this_session_nor_the_next(
    wire: Wire, make_bus: MakeBus, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_bus(wanted=topology.base(names)).running() as bus:
        await wire.queue(names.lane("c"))
        await bus.declare_queue(names.lane("c"))
        assert "exists on the broker with another" in caplog.text
        await bus.publish([Message("", b"", exchange="gone")])
        await until_session(bus, 2)
        assert await bus.publish(to(names.intake, b"")) == [Sent.CONFIRMED]
