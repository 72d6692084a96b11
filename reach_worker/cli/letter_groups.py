"""Dead letters counted by what they have in common, each group with what replays it."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from reach_worker.cli.letters import first_line, moment
from reach_worker.cli.output import Table
from reach_worker.core.dead_letter import DeadLetter, error_group, error_group_id

GROUPINGS: Final = ("error", "reason", "agent", "capability")
NOBODY: Final = "-"
"""Stands for the agent of a letter that no agent had, and for a capability that is none."""


def groups_of(letters: Sequence[DeadLetter], by: str = "error") -> list[dict[str, Any]]:
    """The letters by what they have in common, the most frequent first. Times are UTC microseconds, 0 where not known.

    By agent a letter counts for each that attempted it, as the filter takes it.
    """
    groups: defaultdict[tuple[str, str], list[DeadLetter]] = defaultdict(list)
    for letter in letters:
        for key in _keys(letter, by):
            groups[key].append(letter)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [_group(by, *key, found) for key, found in ranked]


def _keys(letter: DeadLetter, by: str) -> Iterable[tuple[str, str]]:
    """The groups that one belongs to: what each is called, and the filter that finds it."""
    match by:
        case "reason":
            yield letter.reason.value, f"--reason {letter.reason.value}"
        case "agent":
            agents = {attempt.agent_id for attempt in letter.envelope.attempts}
            yield from ((agent, f"--agent {shlex.quote(agent)}") for agent in agents or {NOBODY})
        case "capability":
            capability = letter.envelope.capability or NOBODY
            yield capability, f"--capability {shlex.quote(capability)}"
        case _:
            yield error_group(letter), f"--group {error_group_id(letter)}"


def _group(by: str, name: str, wanted: str, found: Sequence[DeadLetter]) -> dict[str, Any]:
    return {
        "count": len(found),
        by: name,
        "filter": None if name == NOBODY else wanted,
        "replay": None if name == NOBODY else f"reach dlq replay {wanted}",
        "oldest": min(letter.died_at for letter in found),
        "newest": max(letter.died_at for letter in found),
        "capabilities": sorted(
            {letter.envelope.capability for letter in found if letter.envelope.capability}
        ),
        "example": found[0].task_id,
    }


def group_table(groups: Sequence[dict[str, Any]]) -> Table:
    """One row for each group."""
    by = next((name for name in GROUPINGS if groups and name in groups[0]), GROUPINGS[0])
    rows = [
        (
            str(group["count"]), group["filter"] or NOBODY, ", ".join(group["capabilities"]) or NOBODY,
            moment(group["oldest"]), moment(group["newest"]), group["example"], first_line(group[by]),
        )
        for group in groups
    ]  # fmt: skip
    return Table(("COUNT", "FILTER", "CAPABILITIES", "OLDEST", "NEWEST", "EXAMPLE", by.upper()), rows)
