"""Errors become messages and exit statuses in one place."""

import pytest

from reach_worker.cli.failures import INTERRUPTED, TROUBLE, USAGE, tell
from reach_worker.errors import (
    BadInput,
    BrokerUnavailable,
    OurBug,
    OutsideWorld,
    Problem,
    StoreForeign,
    StoreUnavailable,
    TopologyMismatch,
    WrongCredentials,
)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (BadInput("no"), USAGE, "Error: no\n"),
        (
            BadInput([Problem("a", "/x", "f", 1, 2), Problem("b")]),
            USAGE,
            "f:1:2: /x: a\nb\nError: 2 problems\n",
        ),
        (OutsideWorld("away"), TROUBLE, "Error: away\n"),
        (StoreForeign("theirs"), TROUBLE, "Error: theirs\n"),
        (
            TopologyMismatch("q", "a", 1, 2),
            TROUBLE,
            "Error: 'q' exists on the broker with another 'a': expected 1, found 2;",
        ),
        (BrokerUnavailable("gone"), TROUBLE, "Error: gone\n(the address is broker.url, or REACH_AMQP_URL;"),
        (
            WrongCredentials("no entry"),
            TROUBLE,
            "Error: no entry\n(the address is broker.url, or REACH_AMQP_URL)",
        ),
        (StoreUnavailable("none"), TROUBLE, "Error: none\n(the file is store.path, or REACH_STORE__PATH)"),
        (OurBug("oh"), TROUBLE, "Error: oh\n(this is a fault of reach_worker: please report it)"),
    ],
)
def test_every_kind_has_its_status_and_its_words(
    error: Exception, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tell(error) == status

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(words)


def test_what_a_task_group_wraps_is_unwrapped_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrapped = ExceptionGroup(
        "a", [OutsideWorld("away"), ExceptionGroup("b", [OutsideWorld("away"), BadInput("no")])]
    )

    assert tell(wrapped) == USAGE
    assert capsys.readouterr().err == "Error: away\nError: no\n"


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), BaseExceptionGroup("a", [KeyboardInterrupt(), OutsideWorld("x")])]
)
def test_ctrl_c_says_nothing_more(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(error) == INTERRUPTED
    assert capsys.readouterr().err == "\n"


@pytest.mark.parametrize(
    "error", [ValueError("ours"), ExceptionGroup("a", [OutsideWorld("away"), ValueError("ours")])]
)
def test_what_nobody_expected_is_not_hidden(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        tell(error)

    assert caught.value is error
