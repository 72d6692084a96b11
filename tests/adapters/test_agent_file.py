"""The file of an adapter: what it may hold, and that every mistake is told with its place and what would be right."""

from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest

from reach_worker.adapters import chat_agent, command_agent, http_agent, load_agent, queue_agent
from reach_worker.adapters.agents import no_bus
from reach_worker.adapters.file_schema import agent_file_json_schema
from reach_worker.adapters.http import HttpAdapter
from reach_worker.core.tags import TagTable
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, OurBug
from reach_worker.settings.fleet import read_folder
from tests.adapters.attempts import attempt

GOOD = """\
id: Weather
mutually_exclusive_tags: []
capabilities:
  - id: weather.now
    input_schema: {type: object, properties: {city: {type: string}}}
adapter:
  kind: http
  url: https://example.org/{city}
"""


def load(folder: Path, text: str, **environ: str) -> Any:
    path = folder / "a.yaml"
    path.write_text(text)
    return load_agent(path, environ)


def told(folder: Path, text: str, **environ: str) -> list[str]:
    """The problems as people read them, without the folder."""
    with pytest.raises(BadInput) as found:
        load(folder, text, **environ)
    return [problem.render().replace(f"{folder}/", "") for problem in found.value.problems]


def test_a_good_file(tmp_path: Path) -> None:
    agent = load(tmp_path, GOOD)
    assert agent.manifest.id == "weather"
    assert [*agent.handlers] == ["weather.now"]
    assert isinstance(agent.adapter, HttpAdapter)
    assert "adapter" not in agent.manifest.declaration


CASES = [
    ("  kind: http", "  kind: htp", "a.yaml:7:3: /adapter/kind: there is no kind 'htp' (did you mean http?)"),
    ("  kind: http\n", "", "a.yaml:6:1: /adapter: needs its kind (one of http, chat, command, queue)"),
    ("adapter:", "adaptor:", "a.yaml:6:1: /adaptor: unknown field (did you mean adapter?)"),
    ("  url:", "  uri:", "a.yaml:8:3: /adapter/uri: unknown field (did you mean url?)"),
    ("https://", "ftp://", "a.yaml:8:3: /adapter/url: must be a web address, http://… or https://…"),
    ("example.org", "{city}.org", "takes a field of the payload before the end of its host"),
    ("example.org/", "example.org", "takes a field of the payload before the end of its host"),
    ("{city}", "{town}", "no capability's input_schema has the field 'town' (known: city)"),
    ("/{city}", "/{citty}", "'citty' (did you mean {city}?)"),
    ("{city}", "{@task}", "{@task} is unknown; did you mean {@task_id}?"),
    ("{city}", "{a b}", "{a b} names no field"),
    ("{city}", "{city", "has a single {"),
    ("{city}", "${CITY}", "the environment has no CITY (export CITY=… before the agent starts)"),
    ("{city}", "${C-1}", "${C-1} is no variable"),
    ("  kind: http", "  kind: http\n  method: FETCH", "/adapter/method"),
    ("  kind: http", "  kind: http\n  statuses: {404: okay}", "/adapter/statuses/404"),
    ("  kind: http", "  kind: http\n  statuses: {abc: failed}", "/adapter/statuses/abc"),
    ("  kind: http", "  kind: http\n  result: now", "a JSON pointer begins with /"),
    ("  kind: http", "  kind: http\n  connect_timeout_s: 0", "/adapter/connect_timeout_s"),
    ("  kind: http", "  kind: http\n  body: {a: [1, 'x{']}", "a.yaml:8:3: /adapter/body: has a single {"),
    ("mutually_exclusive_tags: []\n", "", "mutually_exclusive_tags"),
]


@pytest.mark.parametrize(("good", "bad", "words"), CASES, ids=[case[1].strip() for case in CASES])
def test_every_mistake_is_told(good: str, bad: str, words: str, tmp_path: Path) -> None:
    assert good in GOOD
    problems = told(tmp_path, GOOD.replace(good, bad, 1))
    assert any(words in problem for problem in problems), problems


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("id: Weather", "idd: Weather").replace("  url", "  uri")
    problems = told(tmp_path, text)
    assert [problem.split(":")[1] for problem in problems] == ["1", "1", "6", "8"]


def test_a_variable_may_be_the_whole_beginning_but_no_field_may_follow_into_the_host(tmp_path: Path) -> None:
    text = GOOD.replace("https://example.org/{city}", '"${BASE}{city}"')
    assert load(tmp_path, text, BASE="https://example.org/v1/").manifest.id == "weather"
    (problem,) = told(tmp_path, text, BASE="https://example.org")
    assert (
        "a.yaml:8:3: /adapter/url: '${BASE}{city}' with its variables takes a field of the payload" in problem
    )
    (problem,) = told(tmp_path, text, BASE="nonsense/")
    assert "must be a web address" in problem


def test_a_variable_with_braces_is_no_place(tmp_path: Path) -> None:
    text = GOOD + "  headers: {X-A: '${KEY}'}\n"
    assert load(tmp_path, text, KEY="{city}{@x}").manifest.id == "weather"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the agent's file cannot be read"):
        load_agent(tmp_path / "none.yaml", {})


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "adapter: 5", "adapter: {kind: http}", "adapter: {kind: [1]}"]
)
def test_files_that_are_no_agent(text: str, tmp_path: Path) -> None:
    assert told(tmp_path, text)


def test_from_python_the_mistakes_are_the_same() -> None:
    with pytest.raises(BadInput, match=r"/adapter/urll: unknown field \(did you mean url\?\)"):
        http_agent({"id": "a", "capabilities": [{"id": "b"}]}, urll="http://x/")
    with pytest.raises(BadInput, match=r"the environment has no NO_SUCH_VARIABLE_HERE"):
        chat_agent(
            {"id": "a", "capabilities": [{"id": "b"}]},
            base_url="http://x/",
            model="m",
            api_key="${NO_SUCH_VARIABLE_HERE}",
        )


async def test_an_agent_that_is_not_open_is_our_bug_and_says_so() -> None:
    agent = http_agent({"id": "a", "capabilities": [{"id": "b"}]}, url="http://x/", environ={})
    with pytest.raises(OurBug, match="before it was opened"):
        await agent.adapter.run({}, attempt())


def test_a_router_reads_the_manifest_of_such_a_file_and_needs_none_of_its_variables(tmp_path: Path) -> None:
    (tmp_path / "weather.yaml").write_text(GOOD.replace("{city}", "{city}?k=${KEY}"))
    folder = read_folder(tmp_path, TagTable({}))
    assert folder.problems == []
    agent = load_agent(tmp_path / "weather.yaml", {"KEY": "x"})
    assert folder.manifests["weather"].hash == agent.manifest.hash


def test_what_a_file_does_not_say_stays_at_its_default(tmp_path: Path) -> None:
    text = "id: a\nmutually_exclusive_tags: [x]\ncapabilities: [{id: b, tags: [T]}]\nadapter: {kind: http, url: 'http://x/'}\n"
    (tmp_path / "a.yaml").write_text(text)
    agent = load_agent(tmp_path / "a.yaml", {})
    assert agent.manifest.hash == read_folder(tmp_path, TagTable({})).manifests["a"].hash
    assert agent.manifest.capabilities[0].input_schema == {}


def test_another_manifest_goes_over_what_the_file_declares(tmp_path: Path) -> None:
    agent = load(tmp_path, GOOD)
    over = tmp_path / "over.yaml"
    over.write_text("max_concurrency: 7\ncapabilities: [{id: weather.now, timeout_ms: 900}]\n")
    agent.override(over)
    (capability,) = agent.manifest.capabilities
    assert (agent.manifest.max_concurrency, capability.timeout_ms) == (7, 900)
    assert "city" in capability.input_schema["properties"]


def test_a_mistake_in_the_section_is_told_by_check_too(tmp_path: Path) -> None:
    (tmp_path / "weather.yaml").write_text(GOOD.replace("url", "uri"))
    problems = [problem.render() for problem in read_folder(tmp_path, TagTable({})).problems]
    assert any("/adapter/uri: unknown field (did you mean url?)" in problem for problem in problems)


def test_nobody_who_calls_chooses_the_program() -> None:
    with pytest.raises(BadInput, match=r"/adapter/argv/0: takes a field of the payload"):
        command_agent({"id": "a", "capabilities": [{"id": "b"}]}, argv=["{program}", "x"])


@pytest.mark.parametrize("place", ["{tenant}", "{tenant?}", "{@caller}"])
def test_nobody_who_calls_chooses_where_the_model_or_the_broker_is(place: str) -> None:
    manifest = {"id": "a", "capabilities": [{"id": "b", "input_schema": {"type": "object"}}]}
    with pytest.raises(BadInput, match=r"/adapter/base_url: takes a field of the payload"):
        chat_agent(manifest, base_url=f"https://models.example/{place}/v1", model="m", environ={})
    with pytest.raises(BadInput, match=r"/adapter/broker: takes a field of the payload"):
        queue_agent(manifest, no_bus, queue="q", broker=f"amqp://{place}/", environ={})


def test_the_schema_for_editors_is_up_to_date() -> None:
    shipped = resources.files("reach_worker.adapters").joinpath("agent_file.schema.json").read_text("utf-8")
    assert orjson.loads(shipped) == agent_file_json_schema(), (
        "write it again: python -m reach_worker.settings adapter-schema > reach_worker/adapters/agent_file.schema.json"
    )


@pytest.mark.parametrize(
    ("good", "bad"), [("", ""), ("kind: http", "kind: htp"), ("url:", "uri:"), ("adapter:", "adaptor:")]
)
def test_the_schema_for_editors_says_what_the_file_says(good: str, bad: str) -> None:
    schema = jsonschema_rs.validator_for(agent_file_json_schema())
    document = parse(GOOD.replace(good, bad, 1)).data
    assert schema.is_valid(document) is (good == bad)
