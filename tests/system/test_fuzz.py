"""Ten thousand odd messages among a thousand good ones, on a real broker, with a router and an agent as processes.

Every good one is done once. Every odd one that the broker takes is done, is a dead letter with a reason, or waits among
the unmatched; each is looked for by its own number. No session is renewed over any of them.
"""

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tenacity import RetryError

from reach_worker import wiring
from reach_worker.core.dead_letter import DeadLetter, Filter
from reach_worker.core.names import Names
from reach_worker.settings import load_settings
from tests.bus.hostile_publisher import OddMessage, RawPublisher, properties
from tests.system.fuzz_agent import NOTES
from tests.system.letters import ready
from tests.system.odd_tasks import LIMIT, odd_tasks
from tests.system.processes import Processes, Running
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

SEED: Final = int(os.environ.get("FUZZ_SEED", "1"))
ODD: Final = int(os.environ.get("FUZZ_MESSAGES", "10000"))
GOOD: Final = 1_000
PUBLISHERS: Final = 8
LIMIT_S: Final = 200.0
LINE: Final = re.compile(r"(?:\d{4}-\d\d-\d\dT\S+ (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) |    )")


def good_task(number: int) -> OddMessage:
    """As any client would send it."""
    body = json.dumps({"capability": "text.echo", "payload": {"text": f"good-{number:05d};"}}).encode()
    return OddMessage("good", properties(delivery_mode=b"\x02"), (body,))


def mixed(seed: int, prefix: str) -> Iterator[tuple[int | None, OddMessage]]:
    """All messages, the good ones spread among the odd ones; with the number of an odd one."""
    step = max(1, ODD // GOOD)
    good = iter(range(GOOD))
    for number, odd in enumerate(odd_tasks(seed, ODD, prefix)):
        if number % step == 0 and (one := next(good, None)) is not None:
            yield None, good_task(one)
        yield number, odd
    yield from ((None, good_task(one)) for one in good)


async def publish_all(url: str, names: Names) -> set[int]:
    """Publish them; the numbers of the odd ones that the broker took. Every good one it must take."""
    messages = mixed(SEED, names.prefix)
    taken: set[int] = set()

    async def publish() -> None:
        async with RawPublisher(url, timeout_s=60) as publisher:
            for number, message in messages:
                answer = await publisher.publish(message, exchange=names.tasks, routing_key="any.key")
                if number is None:
                    assert answer.taken, answer.reason
                elif answer.taken:
                    taken.add(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(PUBLISHERS):
            group.create_task(publish())
    return taken


async def letters(processes: Processes, *, unmatched: bool) -> list[DeadLetter]:
    settings = load_settings(None, dict(processes.environment))
    async with wiring.dead_letters(settings, unmatched=unmatched) as tools:
        return [item.letter for item in await tools.look(Filter())]


def number_of(letter: DeadLetter) -> int | None:
    """The number of an odd message, from its body or the correlation id."""
    seen = letter.body.replace(b"\0", b"") + (letter.envelope.correlation_id or "").encode()
    found = re.search(rb"odd-(\d{5});", seen)
    return int(found[1]) if found else None


def noted(notes: Path, kind: str) -> Counter[int]:
    found = re.findall(rf"^{kind}-(\d{{5}});$", notes.read_text() if notes.exists() else "", re.MULTILINE)
    return Counter(map(int, found))


@pytest.mark.timeout(300)
def test_odd_messages_stop_nobody_and_take_no_good_one_along(
    processes: Processes, names: Names, channel: BlockingChannel, broker_url: str
) -> None:
    notes = processes.folder / "notes"
    processes.agent("tests.system.fuzz_agent:echo", **{NOTES: str(notes)})
    processes.router(REACH_INTAKE__MAX_BODY_BYTES=str(LIMIT))

    taken = asyncio.run(publish_all(broker_url, names))
    assert len(taken) > ODD * 0.9

    def settled() -> bool:
        ends = ready(channel, names.dlq) + ready(channel, names.unmatched)
        return len(noted(notes, "good")) == GOOD and len(noted(notes, "odd")) + ends >= len(taken)

    with suppress(RetryError):  # what is missing is told below
        wait_until(settled, LIMIT_S)
    for running in processes.running:
        goes_on(running)

    assert noted(notes, "good") == dict.fromkeys(range(GOOD), 1)
    done = noted(notes, "odd")
    dead = asyncio.run(letters(processes, unmatched=False))
    waiting = asyncio.run(letters(processes, unmatched=True))
    ended = Counter(number_of(letter) for letter in (*dead, *waiting))
    missing = sorted(taken - done.keys() - ended.keys())
    assert missing == []
    assert [letter for letter in (*dead, *waiting) if not letter.error] == []
    assert {number: count for number, count in done.items() if count > 1} == {}
    assert sum(ended.values()) + len(done) == len(taken), "none has two ends"
    assert {letter.task_id for letter in dead} & {"victim"} == set()
    for queue in (names.intake, names.returns, names.outcomes("router-1"), names.agent("echo")):
        assert ready(channel, queue) == 0


def goes_on(running: Running) -> None:
    """It runs, in its first session, and its log is one of records that nobody forged."""
    assert running.process.poll() is None
    log = running.log()
    assert "broker session ended" not in log
    assert "Traceback" not in log
    for line in log.splitlines():
        assert LINE.match(line), line
        assert line.isprintable(), line
