"""The demo's agents do what their manifests say."""

import asyncio
import inspect
import logging
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import pytest

from reach_worker import Agent, BadRequest, Context
from reach_worker.agent.context import FlowLogger
from reach_worker.core.manifest import Capability
from reach_worker.demo.agents import AGENTS
from reach_worker.demo.work import JOBS

FLAKY = "flaky-summarizer"
EVERY = [
    pytest.param(agent, capability, id=f"{agent.manifest.id}:{capability.id}")
    for agent in AGENTS.values()
    for capability in agent.manifest.capabilities
]


@pytest.fixture
def context() -> Context:
    """Of an attempt that is to stop, so that nobody takes the time to look busy."""
    log = FlowLogger(logging.getLogger("test"), {"flow_id": "f", "task_id": "t"})
    context = Context("t", "f", 1, "c", "anonymous", {}, None, 8.0, log)
    context.cancelled.set()
    return context


def called(agent: Agent, capability: str, payload: Mapping[str, Any], context: Context) -> Any:
    result = agent.handlers[capability].call(payload, context)
    return asyncio.run(_finished(result)) if inspect.isawaitable(result) else result


async def _finished(result: Any) -> Any:
    return await result


def example(capability: Capability) -> dict[str, Any]:
    found: dict[str, Any] = dict(capability.input_schema)["examples"][0]
    return found


def test_there_is_an_agent_for_every_manifest() -> None:
    manifests = (files("reach_worker.demo") / "config" / "agents").iterdir()
    assert {*AGENTS} == {entry.name.removesuffix(".yaml") for entry in manifests}


@pytest.mark.parametrize(("agent", "capability"), EVERY)
def test_it_does_what_it_declares(agent: Agent, capability: Capability, context: Context) -> None:
    payload = example(capability)
    if agent is AGENTS[FLAKY]:
        with pytest.raises(RuntimeError, match="on purpose"):
            called(agent, capability.id, payload, context)
    else:
        assert called(agent, capability.id, payload, context) == JOBS[capability.id](payload)


@pytest.mark.parametrize(
    ("agent", "capability", "payload"),
    [
        ("log-analyzer", "log.query", {"from": "yesterday"}),
        ("doc-search", "doc.search", {"query": " "}),
        ("code-reviewer", "code.metrics", {"sample": "broken_config.py.txt"}),
        ("report-maker", "report.table", {"rows": [[1]]}),
    ],
)
def test_what_a_job_cannot_work_with_is_the_callers_fault(
    agent: str, capability: str, payload: dict[str, Any], context: Context
) -> None:
    with pytest.raises(BadRequest, match=r"[a-z]: "):
        called(AGENTS[agent], capability, payload, context)


def test_it_remembers_the_metrics_of_a_sample(context: Context) -> None:
    first, again = (
        called(AGENTS["code-reviewer"], "code.metrics", {"sample": "inventory.py.txt"}, context)
        for _ in range(2)
    )
    assert first is again
