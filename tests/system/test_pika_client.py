"""A client of another library, which knows the exchange's name and nothing else."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.core.duplicates import TaskState
from reach_worker.core.names import Names
from tests.system.books import histories
from tests.system.processes import LIMIT_S, Processes
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

TASK = {"capability": "text.echo", "payload": {"text": "héllo 任务"}}
DIRECT = "amq.rabbitmq.reply-to"


def answered(
    channel: BlockingChannel, exchange: str, reply_to: str, key: str, **properties: Any
) -> tuple[pika.BasicProperties, Mapping[str, Any]]:
    """Publish one task and wait for its answer; its properties and its body."""
    answers = channel.consume(reply_to, auto_ack=True, inactivity_timeout=LIMIT_S)
    made = pika.BasicProperties(reply_to=reply_to, **properties)
    channel.basic_publish(exchange, key, json.dumps(TASK).encode(), made)
    _, found, body = next(answers)
    assert found is not None, "no answer"
    channel.cancel()
    return found, json.loads(body)


@pytest.mark.parametrize("key", ["", "any.thing", "log.query", "#", "schlüssel"])
def test_any_routing_key_will_do(channel: BlockingChannel, fleet: Processes, key: str) -> None:
    names = Names(fleet.environment["REACH_BROKER__PREFIX"])
    mailbox = channel.queue_declare("", exclusive=True).method.queue
    properties, answer = answered(channel, names.tasks, mailbox, key, correlation_id="my-own-17")
    assert properties.correlation_id == "my-own-17"
    assert properties.headers is None or not any(name.startswith("x-reach") for name in properties.headers)
    assert properties.content_type == "application/json"
    assert answer["result"] == {"text": "héllo 任务"}
    assert {name: answer[name] for name in ("status", "final", "agent", "attempt")} == {
        "status": "succeeded",
        "final": True,
        "agent": "quick",
        "attempt": 1,
    }


def test_direct_reply_to_will_do(channel: BlockingChannel, fleet: Processes) -> None:
    names = Names(fleet.environment["REACH_BROKER__PREFIX"])
    arrived: list[tuple[pika.BasicProperties, bytes]] = []

    def take(_channel: object, _method: object, properties: pika.BasicProperties, body: bytes) -> None:
        arrived.append((properties, body))

    channel.basic_consume(DIRECT, take, auto_ack=True)
    properties = pika.BasicProperties(reply_to=DIRECT, correlation_id="direct")
    channel.basic_publish(names.tasks, "k", json.dumps(TASK).encode(), properties)
    wait_until(lambda: channel.connection.process_data_events(0.1) or bool(arrived))
    ((found, body),) = arrived
    assert (found.correlation_id, json.loads(body)["result"]) == ("direct", TASK["payload"])


def test_what_the_client_says_of_itself_is_used_as_amqp_means_it(
    channel: BlockingChannel, fleet: Processes
) -> None:
    """The message id is the task's; no content type, no delivery mode and no correlation id are needed."""
    names = Names(fleet.environment["REACH_BROKER__PREFIX"])
    mailbox = channel.queue_declare("", exclusive=True).method.queue
    properties, answer = answered(
        channel, names.tasks, mailbox, "k", message_id="pika-task-1", user_id="guest", expiration="60000"
    )
    assert properties.correlation_id is None
    assert answer["task_id"] == "pika-task-1"
    explained = fleet.reach("explain", "pika-task-1", "--json").json()
    assert [life["caller"] for life in explained["lives"]] == ["guest"]


def test_nobody_listens_any_more_and_the_task_is_done_all_the_same(
    channel: BlockingChannel, fleet: Processes
) -> None:
    names = Names(fleet.environment["REACH_BROKER__PREFIX"])
    gone = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_delete(gone)
    properties = pika.BasicProperties(reply_to=gone, message_id="unheard")
    channel.basic_publish(names.tasks, "k", json.dumps(TASK).encode(), properties)
    store = Path(fleet.environment["REACH_STORE__PATH"])
    wait_until(lambda: bool((history := histories(store).get("unheard")) and history.ends))
    history = histories(store)["unheard"]
    assert [end.state for end in history.ends] == [TaskState.SUCCEEDED]
    assert [lost.reply_to for lost in history.lost_answers] == [gone]
