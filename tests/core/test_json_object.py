"""What is no JSON object says nothing, and stops nobody."""

import pytest

from reach_worker.core.json_object import object_in


def test_an_object_is_given_as_it_is() -> None:
    assert object_in(b'{"status": "succeeded", "result": [1]}') == {"status": "succeeded", "result": [1]}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[1]", b'"text"', b"null", b"[" * 5_000])
def test_anything_else_is_an_empty_one(body: bytes) -> None:
    assert object_in(body) == {}
