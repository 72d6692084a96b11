"""Dead letters on the screen, whatever is in them."""

from collections.abc import Iterator

import pytest

from reach_worker.cli.letter_groups import group_table, groups_of
from reach_worker.cli.letters import (
    BODY_SHOWN,
    ERROR_SHOWN,
    letter_data,
    letter_table,
    letter_tree,
)
from reach_worker.cli.output import Node
from reach_worker.core.dead_letter import DeadLetter, Filter
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import Attempt, DeadLetterReason, OutcomeClass

T0 = 1_700_000_000_000_000


def letter(
    task_id: str = "t",
    *,
    error: str = "boom",
    body: bytes = b"{}",
    died_at: int = T0,
    past: str | None = None,
) -> DeadLetter:
    envelope = Envelope(task_id, task_id, "text.echo", "anonymous", T0, past=past)
    return DeadLetter(envelope, DeadLetterReason.INVALID, error, died_at, body)


def lines(node: Node) -> Iterator[str]:
    yield node.text
    for child in node.children:
        yield from lines(child)


def test_a_long_or_many_lined_error_fits_the_table() -> None:
    table = letter_table([letter(error="first\nsecond"), letter(error="x" * 500), letter(error="")])

    errors = [row[-1] for row in table.rows]
    assert errors == ["first", "x" * ERROR_SHOWN + "…", ""]


def test_what_only_the_broker_knows_is_not_known() -> None:
    assert letter_table([letter(died_at=0)]).rows[0][-2] == "not known"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"a": "\xe4\xb8\xad"}', '"a": "中"'),
        (b"\xff\x00{", "\\xff\x00{"),
        (b"", "body, 0 bytes"),
        (b"x" * (BODY_SHOWN + 1), "… (cut; `reach dlq export` has all of it)"),
    ],
)
def test_any_body_can_be_shown(body: bytes, shown: str) -> None:
    assert any(shown in line for line in lines(letter_tree(letter(body=body))))


def test_a_past_that_is_not_ours_is_shown_as_it_is() -> None:
    text = "\n".join(lines(letter_tree(letter(past='[{"odd": 1}, 5]'))))

    assert '{"odd":1}' in text
    assert "attempts before it was replayed" in text


def test_a_body_that_is_no_text_comes_in_base64_too() -> None:
    assert letter_data(letter(body=b"\xff"))["body_base64"] == "/w=="
    assert "body_base64" not in letter_data(letter())


def test_groups_are_ranked_by_number() -> None:
    groups = groups_of(
        [letter("a", error="x 1"), letter("b", error="y"), letter("c", error="x 22", died_at=T0 + 1)]
    )

    assert [(group["count"], group["example"]) for group in groups] == [(2, "a"), (1, "b")]
    assert (groups[0]["oldest"], groups[0]["newest"]) == (T0, T0 + 1)


def test_each_group_brings_the_filter_that_finds_it() -> None:
    letters = [letter("a", error="x 1"), letter("b", error="x 22"), letter("c", error="y")]

    (first, second) = groups_of(letters)
    found = Filter(group=first["filter"].removeprefix("--group "))

    assert [each.task_id for each in letters if found.fits(each)] == ["a", "b"]
    assert first["replay"] == f"reach dlq replay {first['filter']}"
    assert first["filter"] != second["filter"]


def test_letters_are_grouped_by_reason_agent_and_capability() -> None:
    tried = DeadLetter(
        Envelope("t", "t", "text.echo", "anonymous", T0, attempts=(attempt("one"), attempt("two"))),
        DeadLetterReason.POISON,
        "",
        T0,
        b"",
    )
    letters = [letter("a"), letter("b"), tried]

    assert [(g["count"], g["reason"], g["filter"]) for g in groups_of(letters, "reason")] == [
        (2, "invalid", "--reason invalid"),
        (1, "poison", "--reason poison"),
    ]
    assert [(g["count"], g["agent"], g["filter"]) for g in groups_of(letters, "agent")] == [
        (2, "-", None),
        (1, "one", "--agent one"),
        (1, "two", "--agent two"),
    ]
    assert [(g["count"], g["filter"]) for g in groups_of(letters, "capability")] == [
        (3, "--capability text.echo")
    ]


def attempt(agent: str) -> Attempt:
    return Attempt(1, agent, "d", "e", OutcomeClass.FAILED, "", T0, T0)


def test_a_table_of_groups_names_what_they_were_made_by() -> None:
    table = group_table(groups_of([letter("a")], "reason"))

    assert table.columns[-1] == "REASON"
    assert table.rows[0][:2] == ("1", "--reason invalid")


def test_what_is_past_says_so() -> None:
    table = letter_table([letter()], ["it has succeeded"])

    assert table.rows[0][-1] == "[past: it has succeeded] boom"
    assert "past: it has succeeded" in lines(letter_tree(letter(), "it has succeeded"))
    assert letter_data(letter(), "it has succeeded")["past"] == "it has succeeded"
