"""``reach audit`` on a real broker: what is well, what is under way, and what is nowhere."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.bus import topology
from reach_worker.clock import SystemClock
from reach_worker.core.envelope import Envelope
from reach_worker.core.names import Names
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import Row
from reach_worker.services.router.messages import lane_message, retry_message
from reach_worker.store import SqliteStore
from reach_worker.store.row_lines import to_line
from tests.store.sample import accepted, dead, dispatched, seen, succeeded
from tests.store.sample import parked as stored_parked
from tests.system.letters import NOW_US, declare, letter, parked, put, ready, take
from tests.system.processes import Done, Processes

pytestmark = [pytest.mark.broker, pytest.mark.system]

LONG_AGO = 1_700_000_000_000_000
HASTE = ("--patience", "1s", "--listen", "500ms", "--json")


@pytest.fixture
def store(processes: Processes) -> Path:
    return Path(processes.environment["REACH_STORE__PATH"])


def record(store: Path, *rows: Row) -> None:
    """Write rows as a router does."""

    async def write() -> None:
        async with SqliteStore.open(store, clock=SystemClock(), wait_s=30) as opened:
            assert await opened.record(rows)

    asyncio.run(write())


def audit(processes: Processes, *more: str) -> tuple[Done, dict[str, Any]]:
    done = processes.reach("audit", *HASTE, *more)
    return done, done.json()


@pytest.fixture
def at_rest(channel: BlockingChannel, names: Names, store: Path) -> None:
    """What is left where a router has done three tasks and went: one good, one dead, one that nobody may take."""
    declare(channel, names)
    record(store, accepted("good"), dispatched("good"), seen(task_id="good"), succeeded("good"))
    record(store, accepted("bad"), dead("bad"), accepted("whose"), stored_parked("whose"))
    put(channel, letter(names, "bad"), parked(names, "whose", "text.ecko", "nobody has it"))


def test_all_is_well_and_then_two_tasks_are_nowhere(processes: Processes, store: Path) -> None:
    processes.agent("tests.system.small_agents:quick")
    router = processes.router()
    for task_id, text, capability in (
        ("good", "hello", "text.echo"),
        ("bad", "refuse", "text.echo"),
        ("whose", "hello", "text.ecko"),
    ):
        processes.reach("publish", capability, f'{{"text": "{text}"}}', "--task-id", task_id, "--wait")

    router.wait_until(lambda: audit(processes)[1]["accepted"] == 3, "all are written")
    done, found = audit(processes, "--strict")

    assert (done.status, found["ok"]) == (0, True), found
    assert (found["accepted"], found["ended"], found["open"]) == (3, {"succeeded": 1, "dead_letter": 1}, 1)
    assert found["waiting"] == {"unmatched": 1}
    assert (found["letters"], found["unmatched"], found["unknown_to_store"]) == (1, 1, [])

    record(
        store,
        *(accepted("out", at=LONG_AGO), dispatched("out", dispatch_id="d-out", at=LONG_AGO)),
        *(accepted("waits", at=LONG_AGO), dispatched("waits", dispatch_id="d-w", at=LONG_AGO)),
        seen(OutcomeClass.FAILED, "d-w", "waits", at=LONG_AGO),
    )
    done, found = audit(processes)
    assert (done.status, found["ok"]) == (1, False)
    orphans = {one["task_id"]: one for one in found["orphans"]}
    assert orphans.keys() == {"out", "waits"}
    assert "dispatch d-out, attempt 1, went from router r1 to agent grep" in orphans["out"]["where"]
    assert "it waits for log.query" in orphans["waits"]["where"]
    assert orphans["out"]["since"] == LONG_AGO
    assert audit(processes, "--since", "1h")[1]["orphans"] == [], "they are older than that"


def test_what_runs_and_what_waits_in_a_queue_is_found_until_the_queue_is_purged(
    processes: Processes, channel: BlockingChannel, names: Names
) -> None:
    agent = processes.agent("tests.system.small_agents:slow")
    router = processes.router()
    tasks = b"\n".join(
        b'{"task_id": "held-%d", "capability": "text.hold", "payload": {"seconds": 60}}' % n for n in range(6)
    )
    (processes.folder / "tasks.jsonl").write_bytes(tasks)
    assert processes.reach("publish", "--from", "tasks.jsonl").status == 0
    router.wait_until(lambda: audit(processes)[1]["waiting"].get("running at agent slow") == 2, "two run")
    assert audit(processes)[0].status == 0
    agent.kill()
    router.kill()

    def all_wait() -> bool:
        done, found = audit(processes)
        places = {"queue of agent slow", "returns", "lane of text.hold", "outcomes of router router-1"}
        return done.status == 0 and set(found["waiting"]) <= places

    router.wait_until(all_wait, "all are where they should be")
    waiting = audit(processes)[1]["open"]
    for queue in (names.agent("slow"), names.returns, names.lane("text.hold")):
        channel.queue_purge(queue)
    done, found = audit(processes)
    assert (done.status, found["ok"]) == (1, False)
    assert len(found["orphans"]) == waiting >= 2
    assert "to agent slow; no instance says that it runs it" in found["orphans"][0]["where"]


@pytest.mark.usefixtures("at_rest")
def test_what_waits_on_a_rung_or_in_a_lane_is_found_there(
    processes: Processes, channel: BlockingChannel, names: Names, store: Path
) -> None:
    lane = topology.lane(names, "log.query")
    channel.queue_declare(lane.name, durable=True, arguments=dict(lane.arguments))
    waiting = [Envelope(task_id, task_id, "log.query", "anonymous", NOW_US) for task_id in ("later", "free")]
    later, free = waiting
    put(channel, retry_message(names, later, b"{}", 1800.0, NOW_US), lane_message(names, free, b"{}", NOW_US))
    record(store, accepted("later"), dispatched("later"), seen(OutcomeClass.FAILED, task_id="later"))
    record(store, accepted("free"))

    done, found = audit(processes)
    assert done.status == 0
    assert found["waiting"] == {"lane of log.query": 1, "retry rungs": 1, "unmatched": 1}

    channel.queue_purge(lane.name)
    channel.queue_purge(names.retry(1_800_000))
    done, found = audit(processes)
    channel.queue_delete(lane.name)
    assert done.status == 1
    assert {one["task_id"] for one in found["orphans"]} == {"later", "free"}


@pytest.mark.usefixtures("at_rest")
def test_looking_again_and_again_takes_nothing(
    processes: Processes, channel: BlockingChannel, names: Names
) -> None:
    first, again = audit(processes, "--strict"), audit(processes, "--strict")

    assert first[0].status == 0
    assert first[1] == again[1]
    told = processes.reach("audit", "--listen", "100ms").out
    assert "every accepted task is accounted for" in told
    assert "accepted 3: ended 1 dead_letter, 1 succeeded; open 1" in told
    assert take(channel, names.dlq)[0]["x-reach-task"] == "bad"
    assert ready(channel, names.unmatched) == 1


@pytest.mark.usefixtures("at_rest")
def test_a_purged_dlq_and_a_purged_unmatched_are_noticed(
    processes: Processes, channel: BlockingChannel, names: Names
) -> None:
    channel.queue_purge(names.dlq)
    done, found = audit(processes)
    assert (done.status, found["letters_gone_count"]) == (0, 1)
    assert found["letters_gone"][0]["task_id"] == "bad"
    done, found = audit(processes, "--strict")
    assert (done.status, found["ok"]) == (1, False)

    channel.queue_purge(names.unmatched)
    done, found = audit(processes)
    assert done.status == 1
    assert [one["task_id"] for one in found["orphans"]] == ["whose"]
    told = processes.reach("audit", "--patience", "1s", "--listen", "100ms").out
    assert "1 orphans: accepted, not ended, and nowhere" in told
    assert "see `reach explain whose`; publish it again under another id" in told


@pytest.mark.usefixtures("at_rest")
def test_ends_that_are_two_and_letters_that_nobody_knows(
    processes: Processes, channel: BlockingChannel, names: Names, store: Path
) -> None:
    record(store, accepted("late"), succeeded("late"))
    put(
        channel,
        letter(names, "stranger"),
        parked(names, "nobody-knows", "text.nope", "why"),
        letter(names, "late"),
        letter(names, "bad"),
    )
    done, found = audit(processes)
    assert (done.status, found["ok"]) == (0, True)
    named = {(one["task_id"], one["where"]) for one in found["unknown_to_store"]}
    assert named == {("stranger", "dlq"), ("nobody-knows", "unmatched")}
    assert [(one["task_id"], one["state"]) for one in found["letters_left"]] == [("late", "succeeded")]

    assert [one["task_id"] for one in found["letters_twice"]] == ["bad"]

    record(store, dead("late", at=LONG_AGO))
    done, found = audit(processes)
    assert done.status == 1
    assert [(one["task_id"], len(one["ends"])) for one in found["doubled"]] == [("late", 2)]


@pytest.mark.usefixtures("at_rest")
def test_what_is_spilled_is_read_and_counted(processes: Processes, store: Path) -> None:
    record(store, accepted("spilled"), dispatched("spilled", dispatch_id="d-s"))
    assert audit(processes)[0].status == 1
    store.with_name(store.name + ".spill").write_bytes(to_line(succeeded("spilled")))

    done, found = audit(processes)

    assert (done.status, found["ended"]["succeeded"], found["spilled_rows"]) == (0, 2, 1)


@pytest.mark.usefixtures("at_rest")
def test_a_broker_or_a_store_that_is_away_is_said(processes: Processes, store: Path) -> None:
    done = processes.reach("audit", *HASTE, REACH_AMQP_URL="amqp://127.0.0.1:1/")
    found = done.json()
    assert (done.status, found["ok"], found["accepted"], found["orphans"]) == (1, False, 3, [])
    assert found["ended"] == {"succeeded": 1, "dead_letter": 1}
    assert "no broker at 127.0.0.1:1" in found["unchecked"][0]

    other = store.with_name("recipes.db")
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    done = processes.reach("audit", *HASTE, REACH_STORE__PATH=str(other))
    found = done.json()
    assert (done.status, found["ok"], found["letters"]) == (1, False, 1)
    assert "is another program's SQLite database" in found["unchecked"][0]
