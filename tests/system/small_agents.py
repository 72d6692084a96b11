"""Agents for these tests; what they do with a task is what its payload says."""

import signal
from collections.abc import AsyncIterator, Mapping
from typing import Any

from reach_worker import Agent, BadRequest, Context, RateLimited, Rejected

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def behave(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Do as the text says."""
    match payload["text"]:
        case "raise":
            raise RuntimeError("it broke at step 17")
        case "refuse":
            raise BadRequest("that is no text I know")
        case "reject":
            raise Rejected("not mine")
        case "later":
            raise RateLimited(0.2, "too much")
        case "die":
            signal.raise_signal(signal.SIGKILL)
    return {"text": payload["text"]}


quick = Agent("quick", max_concurrency=4)
slow = Agent("slow", max_concurrency=2)
picky = Agent("picky", mutually_exclusive_tags=["secret"], callable_by=["somebody-else"])


@quick.capability("text.echo", cost=1, latency_ms=1000, input_schema=TEXT, tags=["text"])
async def _quick(payload: Mapping[str, Any]) -> dict[str, Any]:
    return behave(payload)


@slow.capability("text.echo", cost=3, latency_ms=4000, input_schema=TEXT, tags=["text"])
def _slow(payload: Mapping[str, Any]) -> dict[str, Any]:
    return behave(payload)


@slow.capability("text.hold", timeout_ms=20_000)
def _hold(payload: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Hold on until the attempt is taken back, or ``seconds`` have passed."""
    context.cancelled.wait(float(payload.get("seconds", 10)))
    return {"held": True}


@picky.capability("text.echo", cost=1, latency_ms=1000, input_schema=TEXT, tags=["text"])
async def _picky(payload: Mapping[str, Any]) -> dict[str, Any]:
    return behave(payload)


speller = Agent("speller", max_concurrency=4)


@speller.capability("text.spell", timeout_ms=20_000)
async def _spell(payload: Mapping[str, Any], context: Context) -> AsyncIterator[str]:
    """Say a text letter by letter. ``breaks`` so many attempts after the second; ``forever`` it begins anew."""
    while True:
        for number, letter in enumerate(payload["text"]):
            if number == 2 and context.attempt <= payload.get("breaks", 0):
                raise RuntimeError("out of breath")
            yield letter
        if not payload.get("forever"):
            return


no_agent = "a text"
AGENTS = (quick, slow, picky, speller)
