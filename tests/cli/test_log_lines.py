"""A record of the log is one line, or further lines that are indented: nobody forges one from outside."""

import logging

import pytest

from reach_worker.cli.invocation import OneRecord

FORGED = "x\n2026-01-01T00:00:00+0000 ERROR   all is lost\r\x1b[2J\u202e\u2028"


def lines(message: str, *, error: BaseException | None = None) -> list[str]:
    info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord("reach", logging.WARNING, "", 0, "told: %s", (message,), info)
    return OneRecord("%(levelname)s %(message)s").format(record).split("\n")


def test_a_message_from_outside_stays_inside_its_record() -> None:
    first, *others = lines(FORGED)

    assert first == "WARNING told: x"
    assert all(line.startswith("    ") for line in others)
    assert all(line.isprintable() for line in (first, *others))


def test_a_trace_with_somebody_elses_words_does_too() -> None:
    with pytest.raises(ValueError, match="x") as caught:
        raise ValueError(FORGED)
    first, *others = lines("t", error=caught.value)

    assert first == "WARNING told: t"
    assert "    Traceback (most recent call last):" in others
    assert all(line.startswith("    ") and line.isprintable() for line in others)
