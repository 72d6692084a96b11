"""Replays that are killed and that meet each other, with a router and agents: no letter is lost, none runs twice."""

import random  # noqa: TID251 - only with a seed: the same moments every time
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tenacity import RetryError

from reach_worker.core.dead_letter import dead_letter_from
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.replaying import Anew, HeldBack, replayed
from reach_worker.services.router.messages import returned_message
from tests.bus.private_node import Node
from tests.system.conftest import fresh_prefix, fresh_processes, open_channel
from tests.system.crew import CREW, NOTES, WORK, runs
from tests.system.letters import declare, letter, put, ready
from tests.system.processes import Processes, Running
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

LETTERS = 600


@pytest.fixture
def notes(processes: Processes, names: Names, channel: BlockingChannel) -> Path:
    """Where the crew writes down what it runs. It is at work."""
    declare(channel, names)
    notes = processes.folder / "notes"
    for agent_id in ("crew-1", "crew-2"):
        processes.agent(CREW[agent_id], **{NOTES: str(notes)})
    processes.router()
    return notes


def letters_of(names: Names, count: int) -> list[Message]:
    return [letter(names, f"t-{number}", capability=WORK, payload={"n": number}) for number in range(count)]


def test_a_replay_whose_acknowledgement_is_lost_runs_once(
    processes: Processes, names: Names, channel: BlockingChannel, notes: Path
) -> None:
    """The letter lies there still, and is replayed again: both copies are the same life."""
    (message,) = letters_of(names, 1)
    again = replayed(
        dead_letter_from(Delivery(names.dlq, message.body, None, message.headers)), Anew(1, 1000, "new")
    )
    assert not isinstance(again, HeldBack)
    put(channel, message, returned_message(names, *again))
    wait_until(lambda: runs(notes)["t-0"] == 1)
    put(channel, returned_message(names, *again))
    put(channel, letter(names, "last", capability=WORK))
    wait_until(lambda: ready(channel, names.dlq) == 2)

    # With the store at hand the command knows; without it the routers do.
    held = processes.reach("dlq", "replay", "--task-id", "t-0")
    blind = processes.reach("dlq", "replay", REACH_STORE__PATH=str(processes.folder / "no-such.db"))

    assert (held.status, blind.status) == (1, 0)
    assert (
        "held back t-0: its task began anew since (replayed, or published again) and has succeeded"
        in held.out
    )
    assert "2 are meant, 2 replayed, 0 held back, 0 failed; 0 left" in blind.out
    wait_until(lambda: runs(notes)["last"] == 1)
    for router in processes.running:
        router.stop()
    assert runs(notes) == {"t-0": 1, "last": 1}


def test_killed_replays_lose_nothing_and_double_nothing(
    processes: Processes, names: Names, channel: BlockingChannel, notes: Path
) -> None:
    """Two at a time on one queue, killed in the middle, again and again; the last pair is left alone."""
    rng = random.Random(4)
    messages = letters_of(names, LETTERS)
    put(channel, *messages)
    wait_until(lambda: ready(channel, names.dlq) == LETTERS)
    # The store would tell a letter that was left behind; that the routers do is to be seen here.
    blind = {**processes.environment, "REACH_STORE__PATH": str(processes.folder / "no-such.db")}
    replays = Processes(processes.folder / "replays", blind, processes.running)
    replays.folder.mkdir()

    killed = 0
    for rate in ("100", "400", "100", "400"):
        pair = [replays.start("dlq", "replay", "--rate", rate) for _ in range(2)]
        killed += sum(kill_when_it_has_begun(one, rng.randrange(1, 40), notes) for one in pair)
    pair = [replays.start("dlq", "replay") for _ in range(2)]
    for one in pair:
        one.wait_end()
    leftovers = replays.reach("dlq", "replay")

    assert killed >= 4
    assert " 0 left" in leftovers.out
    wait_until(lambda: len(runs(notes)) == LETTERS)
    for running in processes.running:
        if running.process.poll() is None:
            running.stop()
    assert runs(notes) == {f"t-{number}": 1 for number in range(LETTERS)}
    assert ready(channel, names.dlq) == 0


def kill_when_it_has_begun(replay: Running, more: int, notes: Path) -> bool:
    """SIGKILL it once so many more have run; whether it was still at it."""
    before = len(runs(notes))
    with suppress(RetryError):
        wait_until(lambda: len(runs(notes)) >= before + more, 5)
    replay.signal(signal.SIGKILL)
    return replay.wait_end() == -signal.SIGKILL


def test_a_slow_replay_outlives_the_brokers_patience(node: Node, tmp_path: Path) -> None:
    """It holds the letters that are not meant until it ends; the broker ends the session over that, in this test soon."""
    with (
        fresh_prefix(node.url) as prefix,
        fresh_processes(node.url, prefix, tmp_path) as processes,
        impatient(node),
        open_channel(node.url) as channel,
    ):
        names = Names(prefix)
        declare(channel, names)
        meant = DeadLetterReason.POISON
        reasons = (meant, DeadLetterReason.EXPIRED)
        put(channel, *(letter(names, f"t-{number}", reason=reasons[number % 2]) for number in range(80)))
        wait_until(lambda: ready(channel, names.dlq) == 80)

        done = processes.reach("dlq", "replay", "--reason", meant.value, "--rate", "5", limit=60)

        assert done.status == 0, done.err
        assert "timed out" in done.err
        assert "looked at 80 of 80: 40 are meant, 40 replayed, 0 held back, 0 failed; 40 left" in done.out
        # One whose confirm was lost with the session is sent once more; the routers run it once.
        wait_until(lambda: ready(channel, names.returns) >= 40 and ready(channel, names.dlq) == 40)


@contextmanager
def impatient(node: Node) -> Iterator[None]:
    """Within the block the node waits three seconds for an acknowledgement, in place of half an hour."""
    setting = "application:set_env(rabbit, consumer_timeout, {}), application:set_env(rabbit, channel_tick_interval, {})."
    node.ctl("eval", setting.format(3_000, 1_000))
    try:
        yield
    finally:
        node.ctl("eval", setting.format(1_800_000, 60_000))
