"""The client's life: what it is given, how it begins and ends, and what it costs to import."""

import subprocess
import sys
import threading
from typing import Any, Self

import pytest

import reach_worker
from reach_worker import ReachClient
from reach_worker.calling.client import Cancellation, Handle
from reach_worker.calling.plain import PlainClient
from reach_worker.errors import BadInput, BrokerUnavailable, OurBug

NOBODY = "amqp://guest:guest@127.0.0.1:1/"
"""No broker listens there."""


def settings_of(reach: ReachClient) -> tuple[list[str], str]:
    broker = reach._settings.broker  # noqa: SLF001 - what it was given has no other way to be seen
    return list(broker.url), broker.prefix


def test_what_is_given_goes_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"REACH_AMQP_URL": "amqp://env/", "REACH_BROKER__PREFIX": "env.v1"}.items():
        monkeypatch.setenv(name, value)
    assert settings_of(ReachClient()) == (["amqp://env/"], "env.v1")
    assert settings_of(ReachClient("amqp://given/", prefix="given.v1")) == (["amqp://given/"], "given.v1")
    assert settings_of(ReachClient(["amqp://a/", "amqp://b/"])) == (["amqp://a/", "amqp://b/"], "env.v1")
    monkeypatch.delenv("REACH_AMQP_URL")
    monkeypatch.setenv("REACH_BROKER__URL", "amqp://other/")
    assert settings_of(ReachClient("amqp://given/"))[0] == ["amqp://given/"]


def test_an_address_that_is_none_is_said_at_once() -> None:
    with pytest.raises(BadInput):
        ReachClient("http://somewhere/")


async def test_no_broker_at_the_start_is_an_error() -> None:
    with pytest.raises(BrokerUnavailable):
        async with ReachClient(NOBODY):
            pass


async def test_outside_its_block_it_is_of_no_use() -> None:
    with pytest.raises(OurBug, match="async with"):
        await ReachClient(NOBODY).call("text.echo", {})


def test_no_broker_at_the_start_is_an_error_for_the_plain_one_too_and_leaves_no_thread() -> None:
    reach = ReachClient.sync(NOBODY)
    with pytest.raises(BrokerUnavailable), reach:
        pass
    with pytest.raises(BrokerUnavailable):
        reach.close()
    assert "reach client" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(OurBug, match="before close"):
        reach.call("text.echo", {})


class Echoing(ReachClient):
    """It gives every payload back, and needs no broker for that."""

    async def __aenter__(self) -> Self:
        return self

    async def call(self, capability: str | None, payload: Any, **_: Any) -> Any:  # noqa: ARG002 - as the client's
        return payload


def test_a_payload_that_is_none_is_no_end_of_a_plain_map() -> None:
    given: list[Any] = [{"n": 1}, None, {"n": 3}]
    with PlainClient(Echoing(NOBODY)) as plain:
        assert list(plain.map("text.echo", given)) == given


def test_a_cancellation_is_true_where_it_was_done() -> None:
    assert Cancellation(cancelled=True, state="running")
    assert not Cancellation(cancelled=False, state="succeeded")


def test_importing_the_package_imports_neither_client_nor_broker() -> None:
    code = (
        "import sys, reach_worker; print([m for m in ('aiormq', 'reach_worker.wiring') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_all_that_is_exported_is_there() -> None:
    assert all(getattr(reach_worker, name) for name in reach_worker.__all__)
    with pytest.raises(AttributeError, match="'Nothing'"):
        _ = reach_worker.Nothing


def test_a_program_without_logging_sees_our_line_of_a_lost_connection_and_no_traceback_of_others() -> None:
    code = (
        "import logging; from reach_worker import ReachClient; ReachClient('amqp://a/')\n"
        "import reach_worker.bus.rabbit\n"
        "for name in ('aiormq.connection', 'aio_pika.pool', 'reach_worker.bus.rabbit'):\n"
        "    logging.getLogger(name).warning('from ' + name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "from reach_worker.bus.rabbit\n"


def test_a_handle_shows_its_ids_only() -> None:
    handle = Handle("t1", "f1", ReachClient(NOBODY))
    assert repr(handle) == "Handle(task_id='t1', flow_id='f1')"
