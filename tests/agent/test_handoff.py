"""A handler hands its task on: what goes out, beside the task as it came."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from reach_worker import Context, Handoff
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.handoff import BadHandoff, handoff_from, split
from reach_worker.core.outcome import Outcome, OutcomeClass
from tests.agent.bench import CAPABILITY, Bench, echo


class Order(BaseModel):
    number: int
    paid: float = 0.0


def handing(handler: Callable[..., Any], **policy: Any) -> Bench:
    agent = echo()
    agent.capability(CAPABILITY)(handler)
    return Bench(agent, WorkerPolicy(grace_s=5.0, **policy))


async def told(bench: Bench, **dispatch: Any) -> tuple[Outcome, bytes, bytes]:
    """The outcome, what it says of the handoff, and the task's own body."""
    async with bench.running():
        bench.dispatch("t1", payload={"number": 7}, **dispatch)
        outcome, delivery = await bench.told()
    return outcome, *split(delivery.headers, delivery.body)


async def test_a_handoff_goes_out_before_the_task_as_it_came() -> None:
    def pay(order: Order) -> Order | Handoff:
        context = {"order": order}
        return Handoff(
            to_agent="b", capability="text.two", reason="too much", context=context, payload=dict(order)
        )

    outcome, text, own = await told(handing(pay))

    assert (outcome.outcome, outcome.message) == (OutcomeClass.HANDOFF, "too much")
    assert orjson.loads(text) == {
        "to_agent": "b",
        "capability": "text.two",
        "reason": "too much",
        "context": {"order": {"number": 7, "paid": 0.0}},
        "payload": {"number": 7, "paid": 0.0},
    }
    assert not isinstance(handoff_from(text), BadHandoff)
    assert orjson.loads(own)["payload"] == {"number": 7}


async def test_no_output_schema_is_asked_about_it() -> None:
    async def pay(_: Order) -> Order | Handoff:
        return Handoff(capability="text.two")

    bench = handing(pay)
    (declared,) = bench.agent.manifest.capabilities
    assert set(declared.output_schema["properties"]) == {"number", "paid"}

    outcome, _, _ = await told(bench)
    assert outcome.outcome is OutcomeClass.HANDOFF


async def test_the_next_agent_knows_who_handed_it_on_and_why() -> None:
    seen: list[Context] = []

    async def pay(_: dict[str, Any], context: Context) -> None:
        seen.append(context)

    handed = {"from_agent": "a", "reason": "too much", "context": {"k": 1}, "origin": "{}"}
    await told(handing(pay), task={"handoff": handed})

    assert seen[0].handed is not None
    assert seen[0].handed.model_dump() == handed


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (
            lambda _: Handoff(reason="not mine"),
            "ValueError: a handoff names to_agent, or capability, or both",
        ),
        (lambda _: Handoff(to_agent="b", context={"k": object()}), "the handoff cannot be written as JSON"),
        (lambda _: Handoff(to_agent="b", payload={"k": "x" * 2_000}), "the limit is 1000"),
    ],
)
async def test_a_handoff_that_cannot_go_out_is_a_failure(handler: Any, words: str) -> None:
    outcome, _, own = await told(handing(handler, max_body_bytes=1_000))

    assert outcome.outcome is OutcomeClass.FAILED
    assert words in outcome.message
    assert orjson.loads(own)["payload"] == {"number": 7}
