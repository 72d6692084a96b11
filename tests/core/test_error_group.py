"""What differs from case to case is not part of an error."""

import pytest

from reach_worker.core.error_group import SHOWN, group_id, group_text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("timeout after 12 s", "timeout after 15.5 s"),
        ("no file /var/lib/a/1.txt", "no file /tmp/b/c.bin"),
        (
            "order 123e4567-e89b-12d3-a456-426614174000 is late",
            "order 00000000-e89b-12d3-a456-4266141740ff is late",
        ),
        ("KeyError: 'limit'", 'KeyError: "max"'),
        ("10.0.0.1:5672 refused", "192.168.7.12:80 refused"),
        ("2026-11-30T11:24:58 late", "2025-01-02T03:04:05 late"),
        ("ids 1, 2, 3", "ids 7"),
        ("GET https://a.example/x?y=1 failed", "GET http://b.example:8080/ failed"),
        ("at 0xdeadbeef", "at 0x1f"),
        ("session a8f3k2z9q1w2e3 is gone", "session zz99yy88xx77 is gone"),
        ("no user bob@example.com", "no user eve@mail.example.org"),
        ("C:\\data\\a.csv is gone", "C:\\data\\old\\b.csv is gone"),
    ],
)
def test_errors_that_differ_in_their_particulars_are_one_group(one: str, other: str) -> None:
    assert group_text(one) == group_text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("timeout after 12 s", "no word after 12 s"),
        ("payload/text: is required", "payload/limit: is required"),
        ("I can't read", "I can't write"),
        ("it's 'a' that isn't there", "it's 'a' that is there"),
    ],
)
def test_other_errors_are_other_groups(one: str, other: str) -> None:
    assert group_text(one) != group_text(other)
    assert group_id(group_text(one)) != group_id(group_text(other))


@pytest.mark.parametrize("text", ["a." * 50_000, "1" * 100_000, "'" * 100_001, "/a" * 50_000, "a1" * 50_000])
def test_an_endless_error_is_no_trouble(text: str) -> None:
    assert len(group_text(text)) <= SHOWN


def test_an_id_is_short_and_stays() -> None:
    assert group_id("expired: late") == group_id("expired: late")
    assert len(group_id("expired: late")) == 8
