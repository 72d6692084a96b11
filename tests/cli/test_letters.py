"""Dead letters on the screen, whatever is in them."""

from collections.abc import Iterator

import pytest

from reach_worker.cli.letters import (
    BODY_SHOWN,
    ERROR_SHOWN,
    groups_of,
    letter_data,
    letter_table,
    letter_tree,
)
from reach_worker.cli.output import Node
from reach_worker.core.dead_letter import DeadLetter
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import DeadLetterReason

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
