"""What the audit found, for people and for programs."""

from collections import Counter

import pytest

from reach_worker.cli.audit import SHOWN, as_data, as_tree
from reach_worker.cli.auditing import NAMED, Named, Report
from reach_worker.cli.output import Node
from reach_worker.core.audit import OpenLife, orphan
from reach_worker.store.audit_rows import DoubledEnd

LIFE = OpenLife("t1", 0, "text.echo", "r1", 1_700_000_000_000_000, 1_700_000_000_000_000)


def lines(node: Node) -> list[str]:
    return [node.text, *(line for child in node.children for line in lines(child))]


def named(count: int, **more: object) -> Named:
    found = Named()
    for number in range(count):
        found.add(task_id=f"t{number}", life=0, **more)
    return found


def test_all_is_well() -> None:
    report = Report(
        accepted=3, ended={"succeeded": 2}, open=1, waiting=Counter({"unmatched": 1}), unmatched=1
    )

    text = lines(as_tree(report))

    assert report.ok
    assert text[0] == "every accepted task is accounted for"
    assert "accepted 3: ended 2 succeeded; open 1" in text
    assert "1 unmatched" in text
    assert as_data(report)["ok"] is True


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (Report(orphans=[orphan(LIFE)]), "1 orphans: accepted, not ended, and nowhere"),
        (
            Report(doubled=[DoubledEnd("t1", 0, ({"state": "succeeded", "reason": None, "at": 5},) * 2)]),
            "1 ended more than once",
        ),
        (Report(unreadable=2), "2 lines there cannot be read: what they said is not known"),
        (Report(unchecked=["the store: it is away"]), "not looked at: the store: it is away"),
        (Report(strict=True, letters_gone=named(1, reason="poison")), "task t0, life 0: reason poison"),
    ],
)
def test_what_is_not_well_is_said(report: Report, words: str) -> None:
    assert not report.ok
    assert words in lines(as_tree(report))
    assert as_data(report)["ok"] is False
    assert lines(as_tree(report))[0].startswith("not ever")


@pytest.mark.parametrize(
    "report",
    [
        Report(letters_gone=named(3)),
        Report(letters_left=named(3, where="dlq", state="succeeded")),
        Report(letters_twice=named(3)),
        Report(unknown=named(3, where="unmatched")),
        Report(spilled=7),
    ],
)
def test_what_is_only_worth_saying_is_no_fault(report: Report) -> None:
    assert report.ok
    assert any("3 " in line or "7 rows" in line for line in lines(as_tree(report)))


def test_long_lists_are_cut_and_say_so() -> None:
    report = Report(orphans=[orphan(LIFE)] * (SHOWN + 5), unknown=named(NAMED + 5, where="dlq"))

    text = lines(as_tree(report))

    assert sum(line.startswith("task t1, life 0, since") for line in text) == SHOWN
    assert "and 5 more; --json names them" in text
    assert f"and {NAMED + 5 - SHOWN} more; --json names them" in text
    data = as_data(report)
    assert (len(data["unknown_to_store"]), data["unknown_to_store_count"]) == (NAMED, NAMED + 5)
