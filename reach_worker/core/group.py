"""Race and fan-out: one task, several agents. Each agent gets a *leg*, a task of its own with the same payload and flow.

A leg is routed, sent, recorded and ended as any other task is, only its end goes to the group's router instead of the
caller, and it never becomes a dead letter. The task itself waits meanwhile as a *watch*: a message on a retry rung that
comes back every few seconds, so whoever gets it can go on with what the store knows of the legs. The ids of the legs
follow from the task's id, its life, the round and the agent, so a watch that comes twice begins nothing twice.

A race is decided by who says something first: a chunk, a result, or an error. An error that is the first word is the
race's own (``failed``), and what follows is an ordinary retry, in the open: a new round, one more attempt. An agent that
went away, rejected or was at its rate has said nothing, and only leaves the race.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import orjson

from reach_worker.core.envelope import Envelope, text
from reach_worker.core.gates import GateKind
from reach_worker.core.json_object import object_in
from reach_worker.core.outcome import Attempt, DeadLetterReason, OutcomeClass
from reach_worker.core.routing import Chosen, Decision, ranked
from reach_worker.core.task import LONGEST_ID, OURS, Task

ROUND: Final = "x-reach-round"
"""Header that makes a message a watch: which legs there are."""
RACE_WIDTH: Final = 2
MOST_LEGS: Final = 100
"""Agents of one fan-out; those beyond are missing from its answer, by name."""
NOT_THERE: Final = frozenset(("presence", "breaker"))
"""Gates that close to an agent which cannot work now: a group does not wait for it."""
SHORT_STRING: Final = 255
"""Bytes: the end of a leg travels with its id as correlation id."""
TOO_DEEP: Final = "nested too deep (about 250 levels) for a race or a fan-out"
_SPOKE: Final = frozenset((OutcomeClass.SUCCEEDED, OutcomeClass.FAILED, OutcomeClass.BAD_REQUEST))


@dataclass(frozen=True, slots=True)
class Leg:
    """One agent's share of a race or fan-out."""

    task_id: str
    agent_id: str


@dataclass(frozen=True, slots=True)
class Round:
    """The legs of one attempt of a group.

    ``number``: the attempt of the task that it is. ``owner``: the router that leads it. ``until``: when a fan-out stops
    waiting, UTC microseconds, ``None`` for a race without a deadline. ``missing``: agents that have the capability and
    got no leg, each with why.
    """

    number: int
    owner: str
    until: int | None
    legs: tuple[Leg, ...]
    missing: tuple[tuple[str, str], ...] = ()

    def header(self) -> str:
        """As JSON text."""
        return orjson.dumps(
            {
                "number": self.number,
                "owner": self.owner,
                "until": self.until,
                "legs": [[leg.task_id, leg.agent_id] for leg in self.legs],
                "missing": self.missing,
            }
        ).decode()


def round_from(headers: Mapping[str, Any]) -> Round | None:
    """What :meth:`Round.header` wrote, ``None`` for anything else. Only of messages from our own queues. Never raises."""
    try:
        data = orjson.loads(text(headers, ROUND) or "")
        number, until = data["number"], data["until"]
        legs = tuple(Leg(str(task_id), str(agent_id)) for task_id, agent_id in data["legs"])
        if not legs or not isinstance(number, int) or not isinstance(until, int | None):
            return None
        missing = tuple((str(agent_id), str(why)) for agent_id, why in data["missing"])
        return Round(number, str(data["owner"]), until, legs, missing)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def leg_id(envelope: Envelope, agent_id: str) -> str:
    """The task id of an agent's leg in the round that would begin now. An AMQP short string can carry it."""
    whole = f"{envelope.task_id}{OURS}{envelope.life}.{envelope.next_attempt}.{agent_id}"
    if len(whole) <= LONGEST_ID and len(whole.encode()) <= SHORT_STRING:
        return whole
    end = OURS + blake2b(whole.encode(), digest_size=16).hexdigest()
    begin = envelope.task_id.encode()[: SHORT_STRING - len(end)].decode(errors="ignore")
    return begin[: LONGEST_ID - len(end)] + end


def leg_envelope(envelope: Envelope, leg: Leg, of: Round, *, race: bool) -> Envelope:
    """What travels with a leg: the group's own, with an id, a history and an end of its own."""
    return replace(
        envelope,
        task_id=leg.task_id,
        life=0,
        deadline=of.until,
        attempts=(),
        released=(),
        past=None,
        replays=0,
        crashes=0,
        paid=0,
        not_before=0,
        to_agent=leg.agent_id,
        group=envelope.task_id,
        group_owner=of.owner,
        group_round=of.number,
        race=race,
    )


# -- who takes part


def race_agents(decision: Decision, width: int = RACE_WIDTH) -> list[str]:
    """The chosen agent, and the best others that could take the task at once; nobody where nobody was chosen."""
    if not isinstance(decision.choice, Chosen):
        return []
    first = decision.choice.agent_id
    scores = {c.agent_id: c.score for c in decision.candidates if c.score is not None and c.agent_id != first}
    return [first, *ranked(scores, decision.task_id, decision.ties)][:width]


def fanout_agents(decision: Decision) -> tuple[list[str], list[tuple[str, str]]]:
    """All that may have the task and can work, and those that may have it and cannot, each with why."""
    agents: list[str] = []
    missing: list[tuple[str, str]] = []
    for candidate in decision.candidates:
        if any(verdict.kind is GateKind.MAY_NOT for verdict in candidate.closed):
            continue
        away = [verdict.reason for verdict in candidate.closed if verdict.gate in NOT_THERE]
        if away:
            missing.append((candidate.agent_id, "; ".join(away)))
        elif len(agents) < MOST_LEGS:
            agents.append(candidate.agent_id)
        else:
            missing.append((candidate.agent_id, f"a fan-out has {MOST_LEGS} agents at most"))
    return agents, missing


def cannot_work(decision: Decision, agent_id: str) -> bool:
    """The agent that a leg is for can no more take it, and not only because it is busy."""
    of_it = [candidate for candidate in decision.candidates if candidate.agent_id == agent_id]
    return all(
        any(v.gate in NOT_THERE or v.kind is GateKind.MAY_NOT for v in candidate.closed)
        for candidate in of_it
    )


# -- how a leg ended


@dataclass(frozen=True, slots=True)
class LegEnd:
    """How a leg ended.

    ``attempt``: its last one, ``None`` if no agent ever had it. ``result``: JSON, of a success, ``size`` its bytes.
    ``chunks``: how many it said before. ``fits``: there is room for its result in the group's answer. ``asked``: whose
    leg it was, where that agent handed it on to the one that ended it.
    """

    agent_id: str
    outcome: OutcomeClass
    message: str
    result: Any = None
    attempt: Attempt | None = None
    size: int = 0
    fits: bool = True
    asked: str = ""
    chunks: int = 0

    @property
    def name(self) -> str:
        """The agent that got the leg: of each there is one."""
        return self.asked or self.agent_id

    @property
    def good(self) -> bool:
        """It has a result that can be told."""
        return self.outcome is OutcomeClass.SUCCEEDED and self.fits

    @property
    def spoke(self) -> bool:
        """Its agent has said something: a result, or an error of its own."""
        return self.outcome in _SPOKE


def leg_end(answer: bytes, leg: Leg) -> LegEnd | None:
    """What the leg's answer says, ``None`` if it is no final one. Never raises."""
    said = object_in(answer)
    match said:
        case {"final": False}:
            return None
        case {"status": "succeeded", "result": result}:
            agent_id = str(said.get("agent") or leg.agent_id)
            asked = leg.agent_id if leg.agent_id != agent_id else ""
            if not _tellable(result):
                return LegEnd(agent_id, OutcomeClass.FAILED, f"its result is {TOO_DEEP}", asked=asked)
            chunks = said.get("chunks")
            return LegEnd(
                agent_id,
                OutcomeClass.SUCCEEDED,
                "",
                result,
                size=len(answer),
                asked=asked,
                chunks=chunks if isinstance(chunks, int) else 0,
            )
        case {"status": "dead_letter", "error": str(error)}:
            return _failed_leg(said, error, leg)
        case {"status": "cancelled"}:
            return LegEnd(leg.agent_id, OutcomeClass.CANCELLED, "cancelled")
        case _:
            return None


def _tellable(result: object) -> bool:
    """It can be written again, with what a group puts around it. orjson reads four times as deep as it writes."""
    try:
        orjson.dumps([[[[result]]]], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return False
    return True


def _failed_leg(said: Mapping[str, Any], error: str, leg: Leg) -> LegEnd:
    try:
        attempts = [Attempt.from_dict(each) for each in said.get("attempts", ())]
    except (ValueError, TypeError):
        attempts = []
    if not attempts:
        return LegEnd(leg.agent_id, OutcomeClass.RELEASED, error)
    last = attempts[-1]
    asked = leg.agent_id if leg.agent_id != last.agent_id else ""
    return LegEnd(last.agent_id, last.outcome, error, attempt=last, asked=asked)


def room(task: Task, max_bytes: int) -> int:
    """Bytes that the results of a group may have together, so that its answer is no larger than twice a task may be.

    A broker ends the session of whoever sends more than it takes (RabbitMQ 4: 16 MiB), and again with every attempt.
    """
    if task.mode == "race":
        return max_bytes
    copies = 3 if task.aggregate == "vote" else 2
    return (2 * max_bytes - max_bytes // 8) // copies


def without_result(end: LegEnd, leg: Leg) -> LegEnd:
    """The end of a leg whose result there is no room for: it is in the leg's own answer."""
    why = f"its result has {end.size} bytes, too many beside the others: `reach fetch {leg.task_id}` gets it"
    return replace(end, message=why, result=None, fits=False)


# -- what follows


@dataclass(frozen=True, slots=True)
class Open:
    """It goes on."""


@dataclass(frozen=True, slots=True)
class Won:
    """The race is over, and went well."""

    end: LegEnd


@dataclass(frozen=True, slots=True)
class RoundFailed:
    """The race is over, and its first word was an error; or nobody was left to say one. The attempt has failed."""

    end: LegEnd


@dataclass(frozen=True, slots=True)
class Gathered:
    """The fan-out is over: how each leg ended, and whom it waited for in vain."""

    ends: tuple[LegEnd, ...]
    missing: tuple[tuple[str, str], ...]


def race_verdict(
    legs: Sequence[Leg], ends: Mapping[str, LegEnd], winner: str | None
) -> Open | Won | RoundFailed:
    """Where a race stands. ``ends`` by leg, in the order they came; ``winner``: the leg that spoke first, if any did."""
    decided = winner or next((leg for leg, end in ends.items() if end.spoke), None)
    if decided is not None and decided in ends:
        end = ends[decided]
        return Won(end) if end.outcome is OutcomeClass.SUCCEEDED else RoundFailed(end)
    if decided is None and len(ends) == len(legs):
        return RoundFailed(list(ends.values())[-1])
    return Open()


def fanout_verdict(
    task: Task, of: Round, ends: Mapping[str, LegEnd], waits: Mapping[str, str], *, now_us: int
) -> Open | Gathered:
    """Where a fan-out stands. ``waits``: of legs that have not ended, what they wait for, as far as that is known."""
    good = [end for end in ends.values() if end.good]
    enough = task.aggregate == "first_n" and len(good) >= (task.first_n or 1)
    if task.aggregate == "vote" and good:
        enough = max(votes(good).values()) * 2 > len(of.legs)
    over = of.until is not None and now_us >= of.until
    if not (enough or over or len(ends) == len(of.legs)):
        return Open()
    why = "not needed any more" if enough else "no answer in time"
    silent = [
        (leg.agent_id, waits.get(leg.task_id, why) if not enough else why)
        for leg in of.legs
        if leg.task_id not in ends
    ]
    return Gathered(tuple(ends.values()), (*of.missing, *silent))


def votes(ends: Sequence[LegEnd]) -> Counter[bytes]:
    """How many agents gave each result; equal means the same JSON, whatever the order of its keys."""
    return Counter(orjson.dumps(end.result, option=orjson.OPT_SORT_KEYS) for end in ends)


def aggregate(task: Task, gathered: Gathered) -> dict[str, Any] | None:
    """The fields of a fan-out's answer, ``None`` where not one agent has succeeded.

    ``result`` is, by the task's ``aggregate``: what each agent gave (``all``), what the first ones gave (``first_n``), or
    the result that most agents gave (``vote``; of equals the one that came first), with the tally.
    """
    good = [end for end in gathered.ends if end.good]
    bad = [end for end in gathered.ends if end.outcome is not OutcomeClass.SUCCEEDED]
    missing = [*gathered.missing, *((end.name, end.message) for end in gathered.ends if not end.fits)]
    if not good:
        return None
    fields: dict[str, Any] = {
        "mode": "fanout",
        "answers": [{"agent": end.name, **_handed_to(end), "result": end.result} for end in good],
        "failed": [
            {"agent": e.name, **_handed_to(e), "outcome": e.outcome.value, "error": e.message} for e in bad
        ],
        "missing": [{"agent": agent_id, "why": why} for agent_id, why in missing],
    }
    match task.aggregate:
        case "all":
            return {**fields, "result": {end.name: end.result for end in good}}
        case "first_n":
            first = good[: task.first_n or 1]
            complete = len(first) == task.first_n
            return {**fields, "result": {end.name: end.result for end in first}, "complete": complete}
        case "vote":
            tally = votes(good).most_common()
            won = [{"result": orjson.loads(result), "votes": count} for result, count in tally]
            return {**fields, "result": won[0]["result"], "votes": won}


def _handed_to(end: LegEnd) -> dict[str, str]:
    return {"handed_to": end.agent_id} if end.asked else {}


def nobody(gathered: Gathered) -> tuple[DeadLetterReason, str]:
    """Why a fan-out without one success is a dead letter, in words that name every agent."""
    told = [f"{end.name}: {end.outcome.value}: {end.message}" for end in gathered.ends]
    told += [f"{agent_id}: {why}" for agent_id, why in gathered.missing]
    if not all(end.fits for end in gathered.ends):
        return DeadLetterReason.TOO_LARGE, f"no result that could be told: {'; '.join(told)}"
    reason = DeadLetterReason.ATTEMPTS_EXHAUSTED if gathered.ends else DeadLetterReason.EXPIRED
    return reason, f"no agent succeeded: {'; '.join(told)}"
