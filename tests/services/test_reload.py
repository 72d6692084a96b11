"""A router takes changed files while it runs: manifests, tags and routing, from a real folder."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from reach_worker.core.fresh_files import Known
from reach_worker.core.presence import PresenceState
from reach_worker.ports import Decided
from reach_worker.services.lifecycle import beside
from reach_worker.services.reload import POLL_S, Files, Reload
from reach_worker.settings import Sources, load_settings
from tests.services.scripted import ScriptedAgent, manifest, succeed
from tests.services.stage import OnStage, Stage

ROUTING = "routing:\n  preset: declared\n"


def declared(agent_id: str, *capabilities: str, more: str = "") -> str:
    offers = "".join(f"  - id: {each}\n" for each in capabilities or ("text.echo",))
    return f"id: {agent_id}\nmutually_exclusive_tags: []\n{more}capabilities:\n{offers}"


@dataclass(repr=False)
class Watched:
    """The folder, the router that reads it, and what it said."""

    folder: Path
    stage: Stage
    router: OnStage
    reload: Reload
    said: pytest.LogCaptureFixture

    def write(self, name: str, text: str) -> Path:
        """Write a file in the place of another, as editors do."""
        path = self.folder / name
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(text, "utf-8")
        return fresh.replace(path)

    def agent(self, agent_id: str, *capabilities: str, more: str = "") -> Path:
        return self.write(f"agents/{agent_id}.yaml", declared(agent_id, *capabilities, more=more))

    async def look(self, times: int = 2) -> str:
        """Let the files be looked at until what was written counts; what was said meanwhile."""
        self.said.clear()
        for _ in range(times):
            await self.reload.look()
        await self.stage.settle()
        return "\n".join(record.getMessage() for record in self.said.records)

    @property
    def offers(self) -> dict[str, list[str]]:
        agents = self.router.desk.fleet.agents
        return {
            agent_id: [capability.id for capability in agents[agent_id].manifest.capabilities]
            for agent_id in sorted(agents)
        }


@pytest.fixture
async def files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Watched:
    """Agents ``a`` and ``b`` have a file each; nobody runs yet."""
    caplog.set_level(logging.INFO)
    (tmp_path / "agents").mkdir()
    (tmp_path / "reach.yaml").write_text(ROUTING)
    (tmp_path / "tags.yaml").write_text("report: [daily]\n")
    for agent_id in "ab":
        (tmp_path / "agents" / f"{agent_id}.yaml").write_text(declared(agent_id))
    config = tmp_path / "reach.yaml"
    sources = Sources(load_settings(config, {}), config, {})
    start = sources.start()
    stage = Stage()
    router = await stage.router(manifests=start.manifests)
    router.desk.tags = start.tags
    router.router.watch.book.retag(start.tags)
    known = Known(start.by_file, start.tags, sources.settings.routing)
    watched = Files(sources.look, sources.read)
    reload = Reload(watched, known, router.router.take_files, stage.clock, start.warnings)
    found = Watched(tmp_path, stage, router, reload, caplog)
    assert await found.look() == ""
    return found


# ---------------------------------------------------------------------- manifests


async def test_a_new_file_is_a_new_agent_with_its_queues(files: Watched) -> None:
    files.agent("c", "text.new")
    said = await files.look()

    assert files.offers["c"] == ["text.new"]
    assert "agent c 1: text.new" in said
    assert {files.stage.names.lane("text.new"), files.stage.names.agent("c")} <= set(
        files.stage.broker.queues
    )


async def test_added_and_withdrawn_capabilities_are_logged_apart(files: Watched) -> None:
    files.agent("a", "text.new", "text.more", more="version: '2'\nmax_concurrency: 4\n")
    said = (await files.look()).splitlines()

    assert files.offers["a"] == ["text.new", "text.more"]
    assert [line for line in said if line.startswith("agent a")] == [
        "agent a 2: added text.more, text.new",
        "agent a 2: withdrawn text.echo",
        'agent a 2: changed max_concurrency 1 → 4, version "1" → "2"',
    ]


async def test_a_changed_file_counts_for_what_waits(files: Watched) -> None:
    stage = files.stage
    await stage.agent("a", script=succeed)
    files.agent("a", more="callable_by: [boss]\n")
    files.agent("b", more="callable_by: [boss]\n")
    await files.look()
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "unmatched"

    files.agent("a")
    await files.look()
    stage.publish("t2")
    await stage.settle()

    assert stage.answer("t2")["agent"] == "a"


async def test_an_agent_whose_file_is_gone_is_withdrawn(files: Watched) -> None:
    (files.folder / "agents" / "a.yaml").unlink()
    said = await files.look()

    assert set(files.offers) == {"b"}
    assert "agent a is withdrawn, its file is gone and it is not there: withdrawn text.echo" in said


async def test_one_that_is_there_stays_with_what_it_brings(files: Watched) -> None:
    stage = files.stage
    files.agent("a", "text.file", more="version: '9'\n")
    await files.look()
    agent = await stage.agent("a", "text.echo")
    assert files.offers["a"] == ["text.file"]

    (files.folder / "agents" / "a.yaml").unlink()
    said = await files.look()
    assert "agent a is gone; it is there, so what it brings itself counts" in said
    await stage.pass_time(4)

    assert files.offers["a"] == ["text.echo"]
    stage.publish("t1")
    await stage.settle()
    assert agent.ran["t1"] == 1


async def test_one_that_died_before_its_file_was_removed_is_withdrawn(files: Watched) -> None:
    agent = await files.stage.agent("a")
    agent.die()
    await files.stage.pass_time(15)
    assert files.router.desk.fleet.agents["a"].roster.state() is PresenceState.DEAD

    (files.folder / "agents" / "a.yaml").unlink()
    await files.look()

    assert set(files.offers) == {"b"}


async def test_what_waits_for_a_withdrawn_capability_is_for_a_person(files: Watched) -> None:
    stage = files.stage
    files.agent("c", "text.rare")
    await files.look()
    for number in range(3):
        stage.publish(f"t{number}", "text.rare")
    await stage.pass_time(32)
    assert len(stage.lane("text.rare")) == 3
    stage.publish("t3", "text.rare")
    await stage.settle()

    (files.folder / "agents" / "c.yaml").unlink()
    await files.look()
    await stage.settle()

    assert {stage.answer(f"t{number}")["status"] for number in range(4)} == {"unmatched"}
    assert not stage.lane("text.rare")


async def test_a_file_that_changes_while_its_agent_runs_is_not_undone_by_a_heartbeat(files: Watched) -> None:
    stage = files.stage
    agent = await stage.agent("a", "text.echo", "text.own")
    assert files.offers["a"] == ["text.echo", "text.own"]

    files.agent("a", more="max_concurrency: 3\n")
    await files.look()
    await stage.pass_time(30)
    assert files.offers["a"] == ["text.echo"]

    again = ScriptedAgent(stage.broker, agent.manifest, succeed, "2")
    stage.agents.append(again)
    await again.start()
    await stage.settle()
    assert files.offers["a"] == ["text.echo", "text.own"]


async def test_two_instances_with_other_words_for_one_version_do_not_take_turns(files: Watched) -> None:
    stage = files.stage
    await stage.agent("a", "text.one")
    other = ScriptedAgent(stage.broker, manifest("a", "text.two"), succeed, "2")
    stage.agents.append(other)
    await other.start()
    await stage.settle()
    files.said.clear()

    await stage.pass_time(30)

    assert files.offers["a"] == ["text.two"]
    assert not [record for record in files.said.records if "added" in record.getMessage()]


# ---------------------------------------------------------------- what is not taken


async def test_a_bad_file_keeps_the_old_one_and_says_so_once(files: Watched) -> None:
    files.agent("a", more="callable_bye: [x]\nrate: fast\n")
    files.agent("b", "text.other")
    said = await files.look()

    assert files.offers == {"a": ["text.echo"], "b": ["text.other"]}
    path = files.folder / "agents" / "a.yaml"
    for wrong in (
        f"not taken, what was known stays: {path}:3:1: /callable_bye: unknown field (did you mean callable_by?)",
        f"not taken, what was known stays: {path}:4:1: /rate: must be a number, not text",
    ):
        assert said.count(wrong) == 1
    assert all(r.levelno == logging.ERROR for r in files.said.records if "not taken" in r.getMessage())

    assert await files.look(4) == ""
    files.agent("b")
    assert "not taken" not in await files.look()

    files.agent("a", more="callable_bye: [x]\n")
    assert "/callable_bye: unknown field" in await files.look()
    files.agent("a")
    assert await files.look() == "nothing is wrong in the files any more"


async def test_a_second_file_of_one_agent_is_bad(files: Watched) -> None:
    files.write("agents/z.yaml", declared("a", "text.stolen"))
    said = await files.look()

    assert files.offers["a"] == ["text.echo"]
    assert "two manifests have the id 'a'" in said


async def test_a_file_that_is_still_being_written_is_left_alone(files: Watched) -> None:
    path = files.folder / "agents" / "a.yaml"
    for size in (20, 40, 60):
        path.write_text(declared("a", "text.new")[:size])
        assert await files.look(1) == ""
    path.write_text(declared("a", "text.new"))

    await files.look()

    assert files.offers["a"] == ["text.new"]


async def test_a_folder_that_is_gone_withdraws_nobody(files: Watched) -> None:
    away = files.folder / "away"
    (files.folder / "agents").rename(away)
    said = await files.look()
    assert "there is no such folder any more; no agent is withdrawn for that" in said
    assert set(files.offers) == {"a", "b"}

    (away / "b.yaml").unlink()
    away.rename(files.folder / "agents")
    await files.look()
    assert set(files.offers) == {"a"}


# ------------------------------------------------------------------ routing and tags


async def test_other_weights_count_for_the_next_task(files: Watched) -> None:
    stage = files.stage
    cheap = await stage.agent("a", slots=9, capability_cost=1, capability_latency_ms=9000)
    quick = await stage.agent("b", slots=9, capability_cost=5, capability_latency_ms=1000)
    files.write("reach.yaml", "routing: {preset: declared, weights: {cost: 1.0}}\n")
    said = await files.look()
    stage.publish("t1")
    await stage.settle()
    files.write("reach.yaml", "routing: {preset: declared, weights: {latency: 1.0}}\n")
    await files.look()
    stage.publish("t2")
    await stage.settle()

    assert (cheap.ran["t1"], quick.ran["t2"]) == (1, 1)
    names = [row.decision["policy"] for row in stage.rows(Decided)]
    assert len(set(names)) == 2
    assert all(name.startswith("declared#") for name in names)
    assert said.startswith(f"routing is {names[0]} now, it was declared; changed: weights")


async def test_bad_weights_change_nothing_and_name_their_line(files: Watched) -> None:
    before = files.router.desk.policies.routing
    files.write("reach.yaml", "routing:\n  preset: declared\n  weights: {cost: 0.5}\n")
    said = await files.look()

    assert files.router.desk.policies.routing is before
    assert f"{files.folder / 'reach.yaml'}:1:1: /routing: weights add up to 1, these to 0.5" in said


async def test_a_fault_in_another_section_keeps_the_routing_too(files: Watched) -> None:
    files.write("reach.yaml", "routing: {preset: balanced}\nretry: {max_retrys: 1}\n")
    said = await files.look()

    assert files.router.desk.policies.routing.preset == "declared"
    assert "did you mean max_retries?" in said


async def test_what_waits_for_the_next_start_is_said_once(files: Watched) -> None:
    files.write("reach.yaml", f"{ROUTING}  explore: 0.0\nintake: {{rate: 5}}\nretry: {{max_retries: 1}}\n")
    said = await files.look()
    assert said == "changed, and taken at the next start only: intake.rate, retry.max_retries"

    files.write("reach.yaml", "intake: {rate: 5}\n")
    said = await files.look()
    assert "next start only: intake.rate, the breaker numbers of the preset adaptive" in said
    assert "routing is adaptive now, it was declared" in said


async def test_rules_that_reach_nobody_are_warned_of_when_they_come(files: Watched) -> None:
    files.write("reach.yaml", f"{ROUTING}  score_bonus: {{aa: 0.1, b: 0.1}}\n")
    said = await files.look()

    assert "reach.yaml:3:17: /routing/score_bonus/aa: no manifest is of agent 'aa' (did you mean a?)" in said
    files.agent("b", "text.echo", more="team: x\n")
    assert "score_bonus" not in await files.look()


async def test_another_table_of_tags_counts_for_all_manifests_and_for_what_waits(files: Watched) -> None:
    stage = files.stage
    await stage.agent("c", "text.tagged", script=lambda _: None, capability_tags=["bericht"])
    stage.publish("t0", "text.tagged")
    stage.publish("t1", "text.tagged", requires=["Bericht"])
    await stage.settle()
    files.write("tags.yaml", "report: [daily, bericht]\n")
    said = await files.look()

    (offer,) = files.router.desk.fleet.capable("text.tagged")
    assert offer.capability.tags == ("report",)
    assert said == "the table of tags has changed"
    (waiting,) = files.router.desk.hands.waiting.values()
    assert waiting.ask.requires == ("report",)
    stage.publish("t2", "text.tagged", requires=["daily"])
    stage.publish("t3", "text.tagged", requires=["weekly"])
    await stage.settle()
    assert [answer["task_id"] for answer in stage.answers()] == ["t3"]


async def test_a_bad_table_of_tags_keeps_the_old_one(files: Watched) -> None:
    files.write("tags.yaml", "report: [daily]\nother: [daily]\n")
    files.agent("a", "text.new")
    said = await files.look()

    assert files.router.desk.tags.normalise("daily") == "report"
    assert files.offers["a"] == ["text.new"]
    assert f"{files.folder / 'tags.yaml'}:2:9: /other/0: 'daily' stands for" in said


# -------------------------------------------------------------------- how it looks


async def test_it_looks_by_itself_and_wakes_the_router(files: Watched) -> None:
    clock, arrived = files.stage.clock, files.router.bus.inbox.arrived
    arrived.clear()
    files.agent("c")

    async with asyncio.timeout(10), beside(files.reload.run()):
        while not arrived.is_set():
            clock.advance(POLL_S)
            await asyncio.to_thread(int)

    await files.router.turn()
    assert "c" in files.offers


async def test_what_goes_wrong_beside_ends_the_block() -> None:
    async def fails() -> None:
        raise ValueError("our bug")

    with pytest.raises(ValueError, match="our bug"):
        async with beside(fails()):
            await asyncio.Event().wait()
    with pytest.raises(KeyError):
        async with beside(asyncio.Event().wait()):
            raise KeyError
