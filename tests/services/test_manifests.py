"""Manifests that agents bring: the newest version counts, a bad one changes nothing, a new one is asked for."""

import logging

import orjson
import pytest

from reach_worker.core.announcement import manifest_key
from reach_worker.core.message import Message
from reach_worker.ports import ManifestSeen
from tests.services.scripted import ScriptedAgent, manifest
from tests.services.stage import Stage


async def announce(stage: Stage, body: bytes, agent_id: str = "a") -> None:
    """Somebody says what an agent's manifest is."""
    message = Message(manifest_key(agent_id), body, {}, stage.names.events, persistent=False, mandatory=False)
    stage.broker.publish(message)
    await stage.settle()


def known(stage: Stage, agent_id: str = "a") -> tuple[str, list[str]]:
    found = stage.r1.desk.fleet.agents[agent_id].manifest
    return found.version, [capability.id for capability in found.capabilities]


async def test_a_newer_version_wins_and_is_recorded() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", "text.old", version="1.9")
    newer = manifest("a", "text.new", version="1.10")
    await announce(stage, newer.declaration.encode())
    assert known(stage) == ("1.10", ["text.new"])
    assert [row.version for row in stage.rows(ManifestSeen)] == ["1.9", "1.10"]
    assert stage.names.lane("text.new") in stage.broker.queues


async def test_an_older_version_is_ignored() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", "text.new", version="2")
    await announce(stage, manifest("a", "text.old", version="1").declaration.encode())
    assert known(stage) == ("2", ["text.new"])
    assert len(stage.rows(ManifestSeen)) == 1


async def test_the_same_version_with_other_words_wins() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", "text.one", version="1")
    await announce(stage, manifest("a", "text.two", version="1").declaration.encode())
    assert known(stage) == ("1", ["text.two"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b'{"id": "a"}',
        b"\xff\xfe",
        orjson.dumps({"id": "a", "capabilities": [{"id": "x"}]}),
        orjson.dumps({**orjson.loads(manifest("a").declaration), "owner_group": "x"}),
    ],
)
async def test_a_bad_one_is_refused_and_the_known_one_stays(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    with caplog.at_level(logging.WARNING):
        await announce(stage, body)
    assert known(stage) == ("1", ["text.echo"])
    assert "refused" in caplog.text
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_an_agent_that_is_heard_and_not_known_is_asked_for_its_manifest() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a")
    r1.desk.fleet.agents.clear()
    await stage.pass_time(4)
    assert known(stage) == ("1", ["text.echo"])
    assert agent.bus.ready


async def test_a_withdrawn_capability_is_unmatched_and_what_waited_for_it_too() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", "text.old", "text.kept", script=lambda _: None)
    stage.publish("t1", "text.old")
    stage.publish("t2", "text.old")
    await stage.settle()
    await announce(stage, manifest("a", "text.kept", version="2").declaration.encode())
    await stage.settle()
    assert stage.answer("t2")["status"] == "unmatched"
    await agent.end(agent.held[0])
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_an_added_capability_serves_what_waits() -> None:
    stage = Stage()
    await stage.router(manifests=[manifest("b", "text.new")])
    agent = await stage.agent("a", "text.old")
    stage.publish("t1", "text.new")
    await stage.settle()
    assert not stage.answers()
    agent.manifest = manifest("a", "text.old", "text.new", version="2")
    await agent.introduce()
    await stage.settle()
    assert stage.answer("t1")["agent"] == "a"


async def test_an_older_instance_rejects_what_it_lacks_and_is_not_charged() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", "text.old", version="1")
    newer = ScriptedAgent(
        stage.broker, manifest("a", "text.old", "text.new", version="2"), lambda _: None, "2"
    )
    stage.agents.append(newer)
    await newer.start()
    await stage.settle()
    assert known(stage) == ("2", ["text.old", "text.new"])
    assert stage.r1.desk.fleet.agents["a"].roster.slots() == 2


async def test_manifests_from_files_and_from_the_store_the_newer_counts() -> None:
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a", "text.brought", version="3")
    stage.kill(r1)
    await stage.router(manifests=[manifest("a", "text.file", version="2")], settled=False)
    assert known(stage) == ("3", ["text.brought"])
    stage.kill(stage.r1)
    await stage.router(manifests=[manifest("a", "text.file", version="4")], settled=False)
    assert known(stage) == ("4", ["text.file"])


async def test_the_id_in_the_manifest_counts_not_the_one_in_the_key() -> None:
    stage = Stage()
    await stage.router()
    await announce(stage, manifest("real").declaration.encode(), agent_id="other")
    assert set(stage.r1.desk.fleet.agents) == {"real"}
