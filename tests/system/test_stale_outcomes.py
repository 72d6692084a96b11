"""An outcome of an older dispatch turns up: it is recorded and labelled, and does nothing else."""

from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.core.dispatch import Dispatch, outcome_headers
from reach_worker.core.envelope import Envelope
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.outcome import Outcome, OutcomeClass
from reach_worker.ports import Dispatched, OutcomeSeen, Standing
from tests.system.books import assert_one_end_each, histories
from tests.system.caller import Caller
from tests.system.crew import WORK, begun
from tests.system.crew_at_work import CrewAtWork
from tests.system.letters import put
from tests.system.processes import Processes
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

KINDS: Final = (OutcomeClass.SUCCEEDED, OutcomeClass.FAILED, OutcomeClass.RELEASED, OutcomeClass.CANCELLED)


@pytest.fixture
def caller(broker_url: str, names: Names) -> Iterator[Caller]:
    with Caller(broker_url, names.tasks) as caller:
        yield caller


def outcome_of(names: Names, sent: Dispatched, kind: OutcomeClass) -> Message:
    """What the agent of that dispatch would say of it."""
    envelope = Envelope(sent.task_id, sent.task_id, sent.capability, "anonymous", sent.at)
    dispatch = Dispatch(
        envelope,
        sent.dispatch_id,
        sent.decision_id,
        sent.agent_id,
        sent.router,
        sent.at,
        sent.at + 60_000_000,
        8000,
    )
    outcome = Outcome(
        sent.dispatch_id, sent.task_id, sent.agent_id, "i-1", kind, "out of the past", started=True
    )
    return Message(
        names.outcomes(sent.router), b'{"by":"a ghost"}', outcome_headers(dispatch.headers(), outcome)
    )


def stale(fleet: CrewAtWork, task_id: str) -> Sequence[OutcomeSeen]:
    seen = histories(fleet.store)[task_id].outcomes
    return [one for one in seen if one.standing is Standing.STALE]


def test_it_answers_releases_and_closes_nothing(
    processes: Processes, caller: Caller, channel: BlockingChannel, names: Names
) -> None:
    """Attempt 1 failed at one agent and opened its breaker; attempt 2 runs at the other, on its last slot."""
    fleet = CrewAtWork(
        processes, ["crew-1", "crew-2"], REACH_BREAKER__STREAK="1", REACH_BREAKER__OPEN_S="120"
    )
    gate = processes.folder / "gate"
    payload = {"until": str(gate)}
    caller.publish({"t": {"capability": WORK, "payload": {**payload, "fail_at_once": 1}}})
    wait_until(lambda: [agent for agent, _ in begun(fleet.notes)] == ["crew-1", "crew-2"])
    others = {f"other-{number}": {"capability": WORK, "payload": payload} for number in range(4)}
    caller.publish(others)
    wait_until(lambda: len(begun(fleet.notes)) == 5)
    first = histories(fleet.store)["t"].dispatches[0]
    put(channel, *(outcome_of(names, first, kind) for kind in KINDS))
    wait_until(lambda: len(stale(fleet, "t")) == len(KINDS))
    late = stale(fleet, "t")
    assert {(one.dispatch_id, one.outcome) for one in late} == {(first.dispatch_id, kind) for kind in KINDS}
    assert all("out of the past" in one.message for one in late)
    caller.collect()
    assert caller.answers == {}
    sent = [dispatch for history in histories(fleet.store).values() for dispatch in history.dispatches]
    assert len(sent) == 5, "no slot came free, so the last one still waits"
    gate.touch()
    caller.until_answered(["t", *others])
    assert (caller.final("t")["attempt"], caller.final("t")["result"]["by"]) == (2, "crew-2")
    assert "breaker of crew-1: closed" not in fleet.router.log()
    fleet.stop()
    found = histories(fleet.store)
    assert_one_end_each(found, ["t", *others])
    assert {dispatch.agent_id for task_id in others for dispatch in found[task_id].dispatches} == {"crew-2"}
