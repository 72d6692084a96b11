"""The manifests and the code behind them say the same."""

import string
from collections import defaultdict
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest
import yaml

from reach_worker.core.manifest import load_manifest
from reach_worker.core.tags import load_tags
from reach_worker.demo.work import JOBS, shipped
from reach_worker.demo.work.code_rules import RULES

CONFIG = files("reach_worker.demo") / "config"
TEXTS = {
    entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
    for entry in (CONFIG / "agents").iterdir()
}
TAGS = (CONFIG / "tags.yaml").read_text(encoding="utf-8")
MANIFESTS: dict[str, dict[str, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
CAPABILITIES = [
    pytest.param(capability, id=f"{name}:{capability['id']}")
    for name, manifest in sorted(MANIFESTS.items())
    for capability in manifest["capabilities"]
]


def test_the_fleet() -> None:
    assert {name: [c["id"] for c in manifest["capabilities"]] for name, manifest in MANIFESTS.items()} == {
        "log-analyzer": ["log.query", "log.count", "log.top_urls"],
        "log-archive": ["log.query", "log.count"],
        "doc-search": ["doc.search"],
        "summarizer": ["text.summarize", "text.keywords"],
        "flaky-summarizer": ["text.summarize"],
        "code-reviewer": ["code.review", "code.metrics"],
        "report-maker": ["report.table"],
    }


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_declares_what_the_router_needs(name: str) -> None:
    manifest = MANIFESTS[name]
    assert manifest["id"] == name
    assert manifest["mutually_exclusive_tags"]
    assert 2 <= manifest["max_concurrency"] <= 8
    for capability in manifest["capabilities"]:
        assert 1 <= capability["cost"] <= 5
        assert 1000 <= capability["latency_ms"] < capability["timeout_ms"]
        assert capability["examples"]


@pytest.mark.parametrize("name", TEXTS)
def test_the_router_loads_it_with_every_tag_in_one_spelling(name: str) -> None:
    tags = load_tags(TAGS, file="tags.yaml")
    manifest = load_manifest(TEXTS[name], file=f"{name}.yaml", tags=tags)
    spelt = {*manifest.mutually_exclusive_tags, *(tag for c in manifest.capabilities for tag in c.tags)}
    assert all(set(tag) <= set(string.ascii_lowercase) for tag in spelt)
    assert spelt <= {*yaml.safe_load(TAGS)}
    for capability in manifest.capabilities:
        assert not {*capability.tags} & {*manifest.mutually_exclusive_tags}


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_example_payloads_fit_and_the_job_answers_them(capability: dict[str, Any]) -> None:
    accepts = jsonschema_rs.validator_for(capability["input_schema"])
    answers = jsonschema_rs.validator_for(capability["output_schema"])
    assert capability["input_schema"]["examples"]
    for payload in capability["input_schema"]["examples"]:
        accepts.validate(payload)
        answers.validate(JOBS[capability["id"]](payload))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_unknown_payload_fields_are_refused(capability: dict[str, Any]) -> None:
    example = capability["input_schema"]["examples"][0]
    assert not jsonschema_rs.validator_for(capability["input_schema"]).is_valid({**example, "statsu": 404})


def test_agents_that_share_a_capability_share_its_schemas() -> None:
    by_id: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for manifest in MANIFESTS.values():
        for capability in manifest["capabilities"]:
            by_id[capability["id"]].append(capability)
    shared = {name: same for name, same in by_id.items() if len(same) > 1}
    assert {*shared} == {"log.query", "log.count", "text.summarize"}
    for first, *others in shared.values():
        for other in others:
            assert other["input_schema"] == first["input_schema"]
            assert other["output_schema"] == first["output_schema"]


def test_every_job_has_an_agent() -> None:
    assert {c["id"] for manifest in MANIFESTS.values() for c in manifest["capabilities"]} == {*JOBS}


def test_the_flaky_agent_looks_best_on_paper() -> None:
    flaky, good = (
        next(c for c in MANIFESTS[name]["capabilities"] if c["id"] == "text.summarize")
        for name in ("flaky-summarizer", "summarizer")
    )
    assert flaky["cost"] < good["cost"]
    assert flaky["latency_ms"] < good["latency_ms"]


def test_the_reviewer_knows_its_rules_and_samples() -> None:
    schema = next(c for c in MANIFESTS["code-reviewer"]["capabilities"] if c["id"] == "code.review")[
        "input_schema"
    ]
    assert schema["properties"]["ignore"]["items"]["enum"] == list(RULES)
    assert schema["properties"]["sample"]["enum"] == list(shipped.code_samples())
