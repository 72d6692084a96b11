"""What a publisher may do who can write to the public exchange, and nothing else; on a node of the test's own."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPChannelError, AMQPConnectionError

from reach_worker.core.announcement import instance_keys, manifest_key, presence_key
from reach_worker.core.cancel import CANCEL_TASK
from reach_worker.core.duplicates import TaskState
from reach_worker.core.lookup import FETCH
from reach_worker.core.names import Names
from reach_worker.core.reply_address import DIRECT
from reach_worker.store import StoreReader
from reach_worker.store.records import StoredTask
from tests.bus.private_node import Node
from tests.system.conftest import fresh_prefix, fresh_processes, open_channel
from tests.system.letters import ready
from tests.system.processes import Processes
from tests.system.test_readme import README
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

TASK: Final = b'{"capability": "text.echo", "payload": {"text": "mine"}}'


class Eve:
    """A user of the broker's who may write to the one exchange, and read and configure nothing."""

    def __init__(self, node: Node, names: Names) -> None:
        self.exchange = names.tasks
        self.url = node.url.replace("guest:guest", "eve:secret")
        self.writes = "^{}$".format(names.tasks.replace(".", r"\."))
        node.ctl("add_user", "eve", "secret")
        node.ctl("set_permissions", "-p", "/", "eve", "", self.writes, "")

    def publish(
        self, body: bytes = TASK, *, exchange: str | None = None, key: str = "k", **properties: Any
    ) -> str:
        """Publish, confirmed; what the broker said where it refused."""
        try:
            with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.basic_publish(
                    self.exchange if exchange is None else exchange,
                    key,
                    body,
                    pika.BasicProperties(**properties),
                )
        except (AMQPChannelError, AMQPConnectionError) as error:
            return repr(error)
        return ""


@pytest.fixture(scope="module")
def place(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, Names, Eve]]:
    """A router and an agent on the node, and Eve."""
    with (
        fresh_prefix(node.url) as prefix,
        fresh_processes(node.url, prefix, tmp_path_factory.mktemp("place")) as processes,
    ):
        processes.agent("tests.system.small_agents:quick")
        processes.router()
        eve = Eve(node, Names(prefix))
        yield processes, Names(prefix), eve
        node.ctl("delete_user", "eve")


@pytest.fixture
def eve(place: tuple[Processes, Names, Eve]) -> Eve:
    return place[2]


@pytest.fixture
def ours(place: tuple[Processes, Names, Eve]) -> Names:
    return place[1]


@pytest.fixture
def fleet(place: tuple[Processes, Names, Eve]) -> Processes:
    return place[0]


@pytest.fixture
def operator(node: Node) -> Iterator[BlockingChannel]:
    with open_channel(node.url) as channel:
        yield channel


def forged(names: Names) -> dict[str, Any]:
    """As a router would write them, of somebody else's task that is answered into one of our queues."""
    return {
        "x-reach-task": "victim",
        "x-reach-flow": "victim",
        "x-reach-first-seen": 1,
        "x-reach-caller": "boss",
        "x-reach-capability": "text.echo",
        "x-reach-life": 7,
        "x-reach-replays": 9,
        "x-reach-reply-to": names.returns,
        "x-reach-to-agent": "slow",
        "x-reach-dispatch": "d",
        "x-reach-agent": "quick",
        "x-reach-owner": "router-1",
        "x-reach-outcome": "succeeded",
        "x-reach-reason": "poison",
        "x-reach-error": "believe me",
    }


def lives_of(fleet: Processes, task_id: str) -> Sequence[StoredTask]:
    """What the store knows of a task, by its lives."""

    async def read() -> Sequence[StoredTask]:
        async with StoreReader.open(Path(fleet.environment["REACH_STORE__PATH"])) as reader:
            history = await reader.task(task_id)
        return history.lives if history is not None else []

    return asyncio.run(read())


def ended(fleet: Processes, task_id: str) -> StoredTask:
    """The last life of a task, once it has ended."""
    wait_until(lambda: any(life.ended_at for life in lives_of(fleet, task_id)[-1:]))
    return lives_of(fleet, task_id)[-1]


def letter_of(fleet: Processes, operator: BlockingChannel, names: Names, task_id: str) -> dict[str, Any]:
    """The dead letter of a task, for good: it is dropped then."""
    wait_until(lambda: ready(operator, names.dlq) > 0)
    letter: dict[str, Any] = fleet.reach("dlq", "show", task_id, "--json").json()
    operator.queue_purge(names.dlq)
    return letter


def test_only_the_public_exchange_is_open(eve: Eve, ours: Names) -> None:
    assert eve.publish(message_id="allowed") == ""
    for exchange, key in (("", ours.returns), ("", ours.intake), (ours.events, "who"), (ours.lost, "k")):
        assert "ACCESS_REFUSED" in eve.publish(exchange=exchange, key=key)


def test_with_the_readmes_topic_permission_she_cancels_and_forges_no_announcement(
    node: Node, eve: Eve, ours: Names
) -> None:
    (keys,) = re.findall(r"set_topic_permissions USER reach\.v1\.events\s'(\S+)' ''", README)
    writes = "|".join(name.replace(".", r"\.") for name in (ours.tasks, ours.events))
    node.ctl("set_permissions", "-p", "/", "eve", "", f"^({writes})$", "")
    node.ctl("set_topic_permissions", "-p", "/", "eve", ours.events, keys, "")
    try:
        for key in (CANCEL_TASK, FETCH):
            assert eve.publish(b'{"task_id": "nobodys"}', exchange=ours.events, key=key) == ""
        for key in ("who", *instance_keys("quick"), presence_key("quick"), manifest_key("quick")):
            assert "ACCESS_REFUSED" in eve.publish(b"{}", exchange=ours.events, key=key)
    finally:
        node.ctl("clear_topic_permissions", "-p", "/", "eve")
        node.ctl("set_permissions", "-p", "/", "eve", "", eve.writes, "")


def test_forged_headers_are_stripped(eve: Eve, fleet: Processes, ours: Names) -> None:
    assert eve.publish(message_id="forged", headers=forged(ours)) == ""

    task = ended(fleet, "forged")
    assert (task.state, task.caller, task.life) == (TaskState.SUCCEEDED, "anonymous", 0)
    assert lives_of(fleet, "victim") == []


def test_another_user_cannot_be_claimed(eve: Eve, fleet: Processes) -> None:
    assert "PRECONDITION_FAILED" in eve.publish(message_id="guest", user_id="guest")
    assert eve.publish(message_id="eves", user_id="eve") == ""
    assert ended(fleet, "eves").caller == "eve"


@pytest.mark.parametrize(
    "kind", ["returns", "intake", "dlq", "outcomes.router-1", "agent.quick", "lane.text.echo", "retry.1000"]
)
def test_we_write_into_no_queue_of_ours_for_her(
    eve: Eve, fleet: Processes, ours: Names, operator: BlockingChannel, kind: str
) -> None:
    task_id = f"to-{kind}"
    assert eve.publish(message_id=task_id, reply_to=f"{ours.prefix}.{kind}") == ""

    letter = letter_of(fleet, operator, ours, task_id)
    assert (letter["reason"], "own queues" in letter["error"]) == ("invalid", True)


@pytest.mark.parametrize(
    "spelling",
    ["{0} ", " {0}", "/{0}", "%2F{0}", "{1}", "{0}\0", "./{0}", "\u200b{0}", "{2}"],
    ids=[
        "space behind",
        "space before",
        "slash",
        "escaped",
        "capitals",
        "zero byte",
        "dot",
        "zero width",
        "wide dots",
    ],
)
def test_other_spellings_name_nothing(
    eve: Eve, fleet: Processes, ours: Names, operator: BlockingChannel, spelling: str
) -> None:
    """A queue has one name, byte for byte: the answer finds nobody, or what begins like ours is refused."""
    reply_to = spelling.format(ours.unmatched, ours.unmatched.upper(), ours.unmatched.replace(".", "\uff0e"))
    task_id = f"spelt {spelling.strip(chr(0)).encode().hex()}"
    assert eve.publish(message_id=task_id, reply_to=reply_to) == ""

    known = ended(fleet, task_id)
    assert known.state in (TaskState.SUCCEEDED, TaskState.DEAD_LETTER)
    assert ready(operator, ours.unmatched) == 0
    if known.state is TaskState.DEAD_LETTER:
        letter_of(fleet, operator, ours, task_id)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_copies_go_nowhere_else(
    eve: Eve, fleet: Processes, ours: Names, operator: BlockingChannel, header: str
) -> None:
    """They are more routing keys of the same exchange."""
    assert eve.publish(message_id=header, headers={header: [ours.dlq, ours.returns, ours.unmatched]}) == ""

    assert ended(fleet, header).state is TaskState.SUCCEEDED
    assert [ready(operator, queue) for queue in (ours.dlq, ours.returns, ours.unmatched)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("address", "state"),
    [
        (f"{DIRECT}.x.y", TaskState.DEAD_LETTER),
        (f"{DIRECT}.g1h2AA5yZXBseUAyNzMzMzQ3NgAAeoYAAAABaw1dDA==.key", TaskState.SUCCEEDED),
        (f"{DIRECT}.g1h3BXJlcGx5AAAAAQAAAAEAAAAB.key", TaskState.SUCCEEDED),
        (f"{DIRECT}.g2gA.key", TaskState.SUCCEEDED),
    ],
)
def test_made_up_direct_addresses_end_no_session(
    eve: Eve, fleet: Processes, ours: Names, operator: BlockingChannel, address: str, state: TaskState
) -> None:
    """RabbitMQ ends the connection of whoever answers to such a one."""
    task_id = f"direct {address[-30:]}"
    assert eve.publish(message_id=task_id, reply_to=address) == ""

    assert ended(fleet, task_id).state is state
    for running in fleet.running:
        assert "broker session ended" not in running.log()
    if state is TaskState.DEAD_LETTER:
        assert "no address that the broker gave" in letter_of(fleet, operator, ours, task_id)["error"]


def test_an_expiration_of_hers_brings_no_forged_header_into_a_replay(
    eve: Eve, fleet: Processes, ours: Names, operator: BlockingChannel
) -> None:
    """The broker itself buries it, with all its headers; nobody has looked at them."""
    router = next(each for each in fleet.running if each.name == "router")
    router.stop()
    assert eve.publish(message_id="late", expiration="1", headers=forged(ours), reply_to=ours.returns) == ""
    wait_until(lambda: ready(operator, ours.dlq) == 1)

    shown = fleet.reach("dlq", "show", "late", "--json").json()
    replayed = fleet.reach("dlq", "replay", "--task-id", "late")
    fleet.router()

    assert (shown["caller"], shown["reason"], shown["is_outcome"]) == ("anonymous", "expired", False)
    assert (shown["life"], shown["replays"]) == (0, 0)
    assert (replayed.status, ready(operator, ours.dlq)) == (0, 0)
    assert ended(fleet, "late").state is TaskState.SUCCEEDED
    assert ready(operator, ours.returns) == 0


def test_what_she_writes_forges_no_line_of_the_log(
    eve: Eve, fleet: Processes, ours: Names, operator: BlockingChannel
) -> None:
    line = "x\n2026-01-01T00:00:00+0000 ERROR   all is lost\x1b[2J"
    assert eve.publish(json.dumps({line: 1}).encode(), message_id="log-1", correlation_id=line) == ""
    assert eve.publish(json.dumps({"capability": line, "payload": {}}).encode(), message_id="log-2") == ""
    letter_of(fleet, operator, ours, "log-1")

    for running in fleet.running:
        log = running.log()
        assert "\nall is lost" not in log
        assert not [each for each in log.splitlines() if each.startswith("2026-01-01")]
        assert "\x1b" not in log
