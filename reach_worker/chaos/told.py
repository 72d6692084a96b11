"""What the caller of a race, a fan-out or a stream was told, against what it has to say. Plain arithmetic."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reach_worker.chaos.agents import capable
from reach_worker.chaos.board import Board
from reach_worker.chaos.kinds import FANOUTS, FIRST_N, RACES, Kind
from reach_worker.chaos.tasks import PlannedTask


def wrong_words(task: PlannedTask, board: Board) -> Iterator[str]:
    """What is wrong with the answers and the stream of a task whose caller reads them, in words."""
    answers = board.read.get(task.name, ())
    ends = {str(answer.get("status")) for answer in answers}
    if not answers:
        yield "its caller got no final answer"
    if len(ends) > 1:
        yield f"its caller was told several ends: {', '.join(sorted(ends))}"
    for answer in answers:
        why = wrong_answer(task, answer)
        if why is not None:
            yield why
    listener = board.listeners.get(task.name)
    if listener is not None:
        yield from listener.wrong


def wrong_answer(task: PlannedTask, answer: Mapping[str, Any]) -> str | None:
    """What is wrong with a final answer, ``None`` if nothing is."""
    match answer:
        case {"status": "succeeded"} if task.kind in FANOUTS:
            return _forgotten(task, answer) or _wrong_result(task, answer)
        case {"status": "dead_letter", "error": str(error)} if task.kind in FANOUTS:
            absent = [agent_id for agent_id in capable(task.kind) if agent_id not in error]
            return f"its dead letter does not name {', '.join(absent)}: {error}" if absent else None
        case {"status": "succeeded", "agent": agent, "result": {"by": by}} if task.kind in RACES:
            return None if agent == by else f"{by} gave the answer, and it says that it is by {agent}"
        case _:
            return None


def _forgotten(task: PlannedTask, answer: Mapping[str, Any]) -> str | None:
    """Whoever could have had it has succeeded, failed or is missing, and is named once."""
    named = [one["agent"] for part in ("answers", "failed", "missing") for one in answer[part]]
    if sorted(named) == sorted(capable(task.kind)):
        return None
    return f"it names {', '.join(sorted(named))}, and was for {', '.join(sorted(capable(task.kind)))}"


def _wrong_result(task: PlannedTask, answer: Mapping[str, Any]) -> str | None:
    given: Sequence[Mapping[str, Any]] = answer["answers"]
    match task.kind:
        case Kind.VOTE:
            good = answer["result"] == answer["votes"][0]["result"] and sum(
                one["votes"] for one in answer["votes"]
            ) == len(given)
        case Kind.FIRST:
            first = {one["agent"]: one["result"] for one in given[:FIRST_N]}
            good = answer["result"] == first and answer["complete"] is (len(first) == FIRST_N)
        case _:
            good = answer["result"] == {one["agent"]: one["result"] for one in given}
    return None if good else f"its result is {answer['result']!r}, and the agents gave {given!r}"
