"""A manifest that goes over what the code declares, field by field."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from reach_worker import Agent
from reach_worker.agent.outcomes import BadResult
from reach_worker.core.manifest import load_manifest
from reach_worker.core.tags import TagTable
from reach_worker.errors import BadInput


class Said(BaseModel):
    text: str


def coded(**more: Any) -> Agent:
    agent = Agent("speaker", version="3", max_concurrency=4, team="ours", **more)

    @agent.capability("text.up", cost=2, tags=["text"])
    def up(payload: Said) -> Said:
        """In capitals."""
        return Said(text=payload.text.upper())

    @agent.capability("text.down")
    def down(payload: Said) -> Any:
        """In small letters."""
        return {"text": payload.text.lower()}

    return agent


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A manifest that says little."""
    path = tmp_path / "over.yaml"
    path.write_text(
        "version: '4'\nmutually_exclusive_tags: [secret]\ncapabilities:\n"
        "  - {id: Text.Down, cost: 5, output_schema: {required: [length]}}\n"
    )
    return path


@pytest.mark.parametrize("way", ["made with it", "given it later"])
async def test_what_it_says_wins_and_the_rest_is_the_codes(file: Path, way: str) -> None:
    agent = coded(manifest=file) if way == "made with it" else coded()
    if way == "given it later":
        agent.override(file)

    manifest = agent.manifest

    assert (manifest.id, manifest.version, manifest.team) == ("speaker", "4", "ours")
    assert manifest.mutually_exclusive_tags == ("secret",)
    down, up = manifest.capability("text.down"), manifest.capability("text.up")
    assert down is not None
    assert up is not None
    assert (down.cost, down.description, down.input_schema["required"]) == (
        5.0,
        "In small letters.",
        ["text"],
    )
    assert (up.cost, up.tags, up.description) == (2.0, ("text",), "In capitals.")
    with pytest.raises(BadResult, match='"length" is a required property'):
        agent.handlers["text.down"].checked({"text": "a"})


def test_a_manifest_in_hand_wins_too() -> None:
    given = load_manifest(
        "id: other\nmutually_exclusive_tags: []\ncapabilities: [{id: text.up, cost: 4}]\n",
        file=None,
        tags=TagTable({}),
    )
    manifest = coded(manifest=given).manifest

    assert (manifest.id, manifest.version, manifest.max_concurrency) == ("other", "3", 4)
    assert [(each.id, each.cost) for each in manifest.capabilities] == [("text.up", 4.0), ("text.down", 3.0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cots: 3\n", "over.yaml:1:1: /cots: unknown field (known here: "),
        ("capabilities: [{id: text.up, cots: 3}]\n", "over.yaml:1:30: /capabilities/0/cots: unknown field (did you"),
        ("capabilities:\n- id: text.upp\n", "over.yaml:2:3: /capabilities/0/id: agent 'speaker': the manifest de"),
        ("capabilities: [5]\n", "over.yaml:1:16: /capabilities/0: must be a mapping"),
        ("capabilities: {id: text.up}\n", "over.yaml:1:1: /capabilities: must be a list"),
        ("- 1\n", "over.yaml:1: a manifest is a mapping"),
        ("a: [\n", "over.yaml:2:1: not YAML"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_it_is_said_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "over.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        _ = coded(manifest=path).manifest
    assert words in str(caught.value)


def test_what_is_wrong_in_the_code_is_not_blamed_on_the_file(file: Path) -> None:
    agent = coded(manifest=file)
    agent.capability("text.wide", cots=3)(lambda payload: payload)
    with pytest.raises(BadInput) as caught:
        _ = agent.manifest
    assert str(caught.value) == "agent 'speaker': /capabilities/2/cots: unknown field (did you mean cost?)"
