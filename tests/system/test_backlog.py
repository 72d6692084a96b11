"""Routers that start with work waiting for them: before anybody is known, and again and again."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.core.duplicates import TaskState
from reach_worker.core.names import Names
from reach_worker.ports import Standing
from reach_worker.store import StoreReader
from reach_worker.store.records import TaskHistory
from tests.system.books import assert_one_end_each, histories, outcomes, working_queues
from tests.system.caller import Caller
from tests.system.crew import CREW, ONLY, WORK, runs
from tests.system.crew_at_work import CrewAtWork
from tests.system.letters import declare, ready
from tests.system.processes import Processes
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system, pytest.mark.timeout(240)]

BACKLOG: Final = 10_000
CRASHES: Final = 24
"""More than the delivery limit of 20 allows; `tests/services/test_crash_loop.py` does fifty."""
LONG_S: Final = 120.0


@pytest.fixture
def caller(broker_url: str, names: Names, channel: BlockingChannel) -> Iterator[Caller]:
    declare(channel, names)
    with Caller(broker_url, names.tasks) as caller:
        yield caller


def assert_nobody_was_given_up(channel: BlockingChannel, names: Names) -> None:
    assert {queue: ready(channel, queue) for queue in (names.unmatched, names.dlq)} == {
        names.unmatched: 0,
        names.dlq: 0,
    }


def ended(processes: Processes) -> Counter[TaskState]:
    """How many tasks are in each state, by the store."""

    async def read() -> Counter[TaskState]:
        async with StoreReader.open(Path(processes.environment["REACH_STORE__PATH"])) as reader:
            return Counter(task.state for task in await reader.recent(BACKLOG + 1))

    return asyncio.run(read())


def stale(found: Mapping[str, TaskHistory]) -> set[str]:
    """Tasks of which an outcome came that did not count."""
    return {
        task_id
        for task_id, history in found.items()
        if any(seen.standing is Standing.STALE for seen in history.outcomes)
    }


def test_ten_thousand_tasks_wait_for_agents_that_nobody_has_heard_of(
    processes: Processes, caller: Caller, channel: BlockingChannel, names: Names
) -> None:
    """The store is new. The agents come one after the other, those with the most tasks last."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("text.echo", {"text": "hello"}), (ONLY, {}), *repeat((WORK, {}), 8),
    ]  # fmt: skip
    tasks = {
        f"t-{number}": {"capability": capability, "payload": payload}
        for number, (capability, payload) in zip(
            range(BACKLOG), chain.from_iterable(repeat(kinds)), strict=False
        )
    }
    asking = dict(list(tasks.items())[:1000])
    caller.publish(asking)
    caller.publish({task_id: task for task_id, task in tasks.items() if task_id not in asking}, reply_to=None)
    router = processes.router(REACH_PRESENCE__NEWCOMERS_S="4")
    router.wait_for("no agent is known yet: tasks wait in")
    done = processes.reach("ready")
    assert (done.status, "it knows no agent yet" in done.out) == (1, True)
    assert_nobody_was_given_up(channel, names)
    assert ready(channel, names.intake) == BACKLOG
    places = ("tests.system.small_agents:quick", CREW["crew-1"], CREW["crew-2"], CREW["crew-3"])
    agents = [processes.agent(place) for place in places]
    router.wait_for("taking tasks; known agents: crew-1, crew-2, crew-3, quick")
    assert processes.reach("ready").status == 0
    caller.until(lambda: len(caller.answers) > len(asking) // 2, LONG_S)
    assert {answer["status"] for answers in caller.answers.values() for answer in answers} == {"succeeded"}
    assert [each.stop() for each in (*agents, router)] == [0] * 5
    assert_nobody_was_given_up(channel, names)
    done_so_far = ended(processes)
    assert done_so_far.keys() <= {TaskState.SUCCEEDED, TaskState.UNDER_WAY}
    queues = working_queues(names, ["quick", "crew-1", "crew-2", "crew-3"], ["text.echo", ONLY, WORK])
    left = BACKLOG - done_so_far[TaskState.SUCCEEDED]
    wait_until(lambda: sum(ready(channel, queue) for queue in queues) == left)


def test_a_router_in_a_crash_loop_gives_up_nothing_that_it_held(
    processes: Processes, caller: Caller, channel: BlockingChannel, names: Names
) -> None:
    """Each time it has just taken tasks when it is killed. The one agent is known and away."""
    fleet = CrewAtWork(processes, ["crew-1"], REACH_PRESENCE__HEARTBEAT_S="0.1", REACH_INTAKE__PREFETCH="50")
    caller.publish({"first": {"capability": ONLY}})
    caller.until_answered(["first"])
    fleet.agents["crew-1"].kill()
    tasks = {f"t-{number}": {"capability": ONLY} for number in range(400)}
    caller.publish(tasks)
    fleet.router.kill()
    for _ in range(CRASHES):
        router = processes.start("router", REACH_INTAKE__PREFETCH="50", REACH_PRESENCE__HEARTBEAT_S="0.1")
        router.wait_for("taking tasks")
        router.kill()
        assert not re.search("Traceback", router.log())
    assert_nobody_was_given_up(channel, names)
    fleet.router = processes.router(REACH_PRESENCE__HEARTBEAT_S="0.1")
    fleet.agents["crew-1"] = fleet.agent("crew-1")
    caller.until_answered(tasks, LONG_S)
    assert fleet.stop() == [0, 0]
    found = histories(fleet.store)
    assert_one_end_each(found, ["first", *tasks])
    assert {caller.final(task_id)["attempt"] for task_id in tasks} == {1}
    assert outcomes(found).keys() <= {"succeeded", "released"}
    ran = runs(fleet.notes)
    twice = {task_id for task_id, times in ran.items() if times > 1}
    assert ran.keys() == {"first", *tasks}
    assert max(ran.values()) <= 2
    assert twice == stale(found), "only what was sent and not yet written down at a kill, and that is told"
    wait_until(lambda: ready(channel, names.lane(ONLY)) == 0)
