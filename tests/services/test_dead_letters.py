"""Dead letters sent on their way again: nothing is lost, nothing runs for ever, and the report is true."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence

import pytest

from reach_worker.core.dead_letter import DeadLetter, Filter, dead_letter_from
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.replaying import HeldBack
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Sent
from reach_worker.services.dead_letters import DeadLetters
from reach_worker.services.letter_queue import BATCH
from reach_worker.services.replay_order import ReplayOrder, ReplayReport
from reach_worker.services.router.messages import dead_letter_message
from reach_worker.testing import Fate, MemoryBroker, MemoryBus, Moment, SteppedClock
from tests.services.stage import Killed, die

ALL = Filter()


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def broker(clock: SteppedClock) -> MemoryBroker:
    broker = MemoryBroker(clock)
    for number in range(5):
        put(broker, f"t-{number}")
    return broker


@pytest.fixture
def bus(broker: MemoryBroker) -> Iterator[MemoryBus]:
    bus = MemoryBus(broker)
    bus.connect()
    yield bus
    bus.disconnect()


@pytest.fixture
def letters(bus: MemoryBus, broker: MemoryBroker, clock: SteppedClock) -> DeadLetters:
    return DeadLetters(bus, broker.names, clock, broker.names.dlq)


def put(broker: MemoryBroker, task_id: str) -> None:
    body = b'{"task_id": "%s", "capability": "c"}' % task_id.encode()
    envelope = Envelope(task_id, task_id, "c", "anonymous", 0)
    broker.publish(dead_letter_message(broker.names, envelope, body, DeadLetterReason.EXPIRED, "late", 0))


def ids(broker: MemoryBroker, queue: str) -> list[str]:
    return [dead_letter_from(delivery).task_id for delivery in broker.messages(queue)]


def everywhere(broker: MemoryBroker) -> list[str]:
    return sorted({*ids(broker, broker.names.dlq), *ids(broker, broker.names.returns)})


EVERYBODY = [f"t-{number}" for number in range(5)]


async def test_looking_changes_nothing(letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker) -> None:
    found = await letters.look(ALL)
    bus.disconnect()

    assert [item.letter.task_id for item in found] == EVERYBODY
    assert sorted(ids(broker, broker.names.dlq)) == EVERYBODY


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("before", range(3))
async def test_whoever_dies_while_replaying_loses_nothing(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker, moment: Moment, before: int
) -> None:
    if before:
        await letters.replay(ReplayOrder(ALL, limit=before))
        bus.end_session()
    bus.once(moment, die)

    with pytest.raises(Killed):
        await letters.replay(ReplayOrder(ALL))
    bus.disconnect()

    assert everywhere(broker) == EVERYBODY


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNROUTABLE])
async def test_what_the_broker_does_not_take_stays(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker, fate: Fate
) -> None:
    bus.fail_next(fate)

    report = await letters.replay(ReplayOrder(ALL, limit=5))
    bus.disconnect()

    assert report.failed == [("t-0", f"the broker did not take it: {fate.value}")]
    assert everywhere(broker) == EVERYBODY
    assert "t-0" in ids(broker, broker.names.dlq)


async def test_what_may_have_been_lost_is_sent_again_in_the_next_session(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker, clock: SteppedClock
) -> None:
    """What was confirmed and not acknowledged before the session ended is only removed then."""
    bus.fail_next(Fate.LOST)

    report = await finished(letters.replay(ReplayOrder(ALL)), clock)

    assert sorted(report.replayed) == EVERYBODY
    assert (report.seen, report.matched, report.failed, report.not_removed, report.left) == (5, 5, [], [], 0)
    assert sorted(ids(broker, broker.names.returns)) == EVERYBODY, "none was sent twice"
    assert ids(broker, broker.names.dlq) == []


async def test_one_bad_message_does_not_stop_the_rest(letters: DeadLetters, bus: MemoryBus) -> None:
    bus.fail_next(Fate.REFUSED)

    report = await letters.replay(ReplayOrder(ALL))

    assert report.failed == [("t-0", f"the broker did not take it: {Sent.REFUSED.value}")]
    assert report.replayed == EVERYBODY[1:]
    assert (report.there, report.seen, report.matched, report.left) == (5, 5, 5, 1)


async def test_a_run_is_bounded_by_what_was_there_when_it_began(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker
) -> None:
    bus.once(Moment.AFTER_PUBLISH, lambda: put(broker, "newcomer"))

    report = await letters.replay(ReplayOrder(ALL))

    assert report.replayed == EVERYBODY
    assert ids(broker, broker.names.dlq) == ["newcomer"]


async def test_a_lost_connection_ends_a_run_and_the_report_says_how_far_it_came(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker, clock: SteppedClock
) -> None:
    bus.once(Moment.BEFORE_ACK, bus.disconnect)

    report = await finished(letters.replay(ReplayOrder(ALL)), clock)

    assert report.replayed == EVERYBODY
    assert report.not_removed == EVERYBODY
    assert (report.there, report.left) == (5, 5)
    assert everywhere(broker) == EVERYBODY


async def test_a_session_that_ends_between_two_batches_ends_the_run(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker
) -> None:
    for number in range(2 * BATCH):
        put(broker, f"more-{number}")
    bus.once(Moment.BEFORE_PUBLISH, bus.end_session)

    report = await letters.replay(ReplayOrder(ALL))
    bus.disconnect()

    assert (report.there, report.seen, report.left) == (2 * BATCH + 5, 0, 2 * BATCH + 5)
    assert report.failed == []
    assert len(ids(broker, broker.names.dlq)) == 2 * BATCH + 5


async def test_a_run_goes_on_after_its_session_ended(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker, clock: SteppedClock
) -> None:
    """As when the broker does not wait any longer for those that are not meant. Each is counted once."""
    for number in range(BATCH):
        put(broker, f"more-{number}")
    sessions = iter(range(3))

    async def edit(letter: DeadLetter) -> bytes | HeldBack:
        if letter.task_id in ("t-3", "more-50", "more-100") and next(sessions, None) is not None:
            bus.end_session()
        return HeldBack("not this one") if letter.task_id == "t-1" else letter.body

    order = ReplayOrder(Filter(task_ids=frozenset([*EVERYBODY, *(f"more-{n}" for n in range(0, BATCH, 2))])),
                        rate=100, edit=edit)  # fmt: skip
    report = await finished(letters.replay(order), clock)

    matched = len(EVERYBODY) + BATCH // 2
    assert bus.sessions > 2
    assert (report.there, report.seen, report.matched) == (BATCH + 5, BATCH + 5, matched)
    assert report.held_back == [("t-1", "not this one")]
    assert (len(report.replayed), report.failed, report.left) == (matched - 1, [], BATCH // 2 + 1)
    sent = ids(broker, broker.names.returns)
    assert len(set(sent)) == len(sent) == matched - 1


async def test_a_replay_that_a_crash_cut_short_is_finished_by_the_next(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker
) -> None:
    """Its letter is sent a second time; the copies are of one life, so the routers run it once."""
    bus.once(Moment.BEFORE_ACK, die)
    with pytest.raises(Killed):
        await letters.replay(ReplayOrder(ALL))
    bus.end_session()

    report = await letters.replay(ReplayOrder(ALL))

    lives = [(dead_letter_from(copy).task_id, dead_letter_from(copy).envelope.life)
             for copy in broker.messages(broker.names.returns)]  # fmt: skip
    assert (report.replayed, report.left) == (EVERYBODY, 0)
    assert sorted(lives) == sorted((task_id, 1) for task_id in [*EVERYBODY, *EVERYBODY])
    assert ids(broker, broker.names.dlq) == []


async def test_two_at_once_share_the_letters(
    letters: DeadLetters, broker: MemoryBroker, clock: SteppedClock
) -> None:
    for number in range(3 * BATCH):
        put(broker, f"more-{number}")
    other_bus = MemoryBus(broker)
    other_bus.connect()
    other = DeadLetters(other_bus, broker.names, clock, broker.names.dlq)

    async with asyncio.TaskGroup() as group:
        one, two = (group.create_task(each.replay(ReplayOrder(ALL))) for each in (letters, other))
    other_bus.disconnect()

    sent = ids(broker, broker.names.returns)
    assert sorted([*one.result().replayed, *two.result().replayed]) == sorted(sent)
    assert len(set(sent)) == len(sent) == 3 * BATCH + 5
    assert ids(broker, broker.names.dlq) == []


def known(task_id: str, life: int, state: TaskState) -> KnownTask:
    return KnownTask(task_id, life, state, "r1", None, 1, 0, None)


async def test_what_has_gone_on_since_is_held_back(
    bus: MemoryBus, broker: MemoryBroker, clock: SteppedClock
) -> None:
    async def store(task_ids: Sequence[str]) -> Mapping[str, KnownTask]:
        found = [
            known("t-0", 0, TaskState.SUCCEEDED),
            known("t-1", 1, TaskState.SUCCEEDED),
            known("t-2", 0, TaskState.DEAD_LETTER),
            known("t-3", 0, TaskState.UNDER_WAY),
        ]
        return {one.task_id: one for one in found if one.task_id in task_ids}

    letters = DeadLetters(bus, broker.names, clock, broker.names.dlq, store)
    past = await letters.past([item.letter for item in await letters.look(ALL)])
    bus.end_session()

    report = await letters.replay(ReplayOrder(ALL))
    bus.end_session()
    forced = await letters.replay(ReplayOrder(ALL, force=True))

    assert [why is not None for why in past] == [True, True, False, False, False]
    assert [task_id for task_id, _ in report.held_back] == ["t-0", "t-1"]
    assert "has succeeded after all" in report.held_back[0][1]
    assert "began anew since" in report.held_back[1][1]
    assert forced.replayed == ["t-0"], "the routers would let the other one go"


async def test_messages_without_an_id_are_not_taken_for_one(
    letters: DeadLetters, broker: MemoryBroker
) -> None:
    """A publisher gave none, and the broker itself gave them up: they look alike, and each is a task of its own."""
    for _ in range(3):
        broker.put_message(broker.names.dlq, b'{"capability": "c"}')

    report = await letters.replay(ReplayOrder(ALL))

    assert len(report.replayed) == 8
    sent = ids(broker, broker.names.returns)
    assert len(set(sent)) == len(sent) == 8


async def test_a_walk_that_cannot_go_on_says_so(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker
) -> None:
    for number in range(200):
        put(broker, f"more-{number}")

    async def walk() -> None:
        async for _ in letters.walk(ALL):
            bus.disconnect()

    with pytest.raises(OutsideWorld, match="no broker connection"):
        await walk()


async def test_a_walk_that_somebody_else_shortens_is_no_fault(
    letters: DeadLetters, broker: MemoryBroker, clock: SteppedClock
) -> None:
    for number in range(200):
        put(broker, f"more-{number}")
    other = MemoryBus(broker)
    other.connect()
    seen = 0

    async for _ in letters.walk(ALL):
        seen += 1
        if seen == 1:
            await DeadLetters(other, broker.names, clock, broker.names.dlq).drop(ALL, limit=50)

    assert seen < 205
    other.disconnect()


async def test_only_what_is_gone_for_certain_counts_as_removed(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker
) -> None:
    found = await letters.look(ALL, limit=2)

    assert await letters.remove(found) == ["t-0", "t-1"]

    others = await letters.look(ALL)
    bus.end_session()
    assert await letters.remove(others) == []
    assert sorted(ids(broker, broker.names.dlq)) == EVERYBODY[2:]


async def test_each_body_is_edited_or_its_letter_stays(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker
) -> None:
    async def edit(letter: DeadLetter) -> bytes | HeldBack:
        if letter.task_id == "t-1":
            return HeldBack("not this one")
        return letter.body.replace(b'"c"', b'"d"')

    report = await letters.replay(ReplayOrder(ALL, edit=edit))
    bus.disconnect()

    assert report.held_back == [("t-1", "not this one")]
    assert all(b'"capability": "d"' in message.body for message in broker.messages(broker.names.returns))
    assert ids(broker, broker.names.dlq) == ["t-1"]


async def test_a_dry_run_sends_nothing_and_shows_the_way(
    letters: DeadLetters, bus: MemoryBus, broker: MemoryBroker
) -> None:
    seen: list[int] = []

    def note(report: ReplayReport) -> None:
        seen.append(report.seen)

    report = await letters.replay(ReplayOrder(ALL, dry_run=True), note)

    assert (report.replayed, report.left) == (EVERYBODY, 5)
    assert seen == [1, 2, 3, 4, 5]
    assert bus.journal == []
    assert broker.messages(broker.names.returns) == []


async def test_a_rate_is_kept(letters: DeadLetters, broker: MemoryBroker, clock: SteppedClock) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(letters.replay(ReplayOrder(ALL, rate=2.0)))
        counts: list[int] = []
        while not running.done():
            for _ in range(20):
                await breathe()
            counts.append(len(broker.messages(broker.names.returns)))
            clock.advance(0.5)

    assert counts[:5] == [1, 2, 3, 4, 5]


async def finished(run: Coroutine[None, None, ReplayReport], clock: SteppedClock) -> ReplayReport:
    """What a run reports, while time passes."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run)
        while not running.done():
            for _ in range(20):
                await breathe()
            clock.advance(0.5)
    return running.result()


async def breathe() -> None:
    """Let whatever can run do so."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()
