"""Which fields of a payload are personal, and which of them a schema asks for."""

from typing import Any

import pytest

from reach_worker.core.personal_data import asked_for, fields_named, marked, told
from tests.core.agents import manifest

NAMES = frozenset({"email", "phone"})


def test_any_manifest_of_the_fleet_marks_for_all() -> None:
    fleet = [manifest("a", pii=["Email"]), manifest("b"), manifest("c", pii=["customer.phone", "/user/iban"])]

    assert marked(fleet) == {"email", "phone", "iban"}
    assert marked([manifest("a")]) == frozenset()


@pytest.mark.parametrize(
    "field", ["email", "user.email", "/user/email", "users[].email", "emails/*/email", "email[]"]
)
def test_the_last_part_of_what_is_marked_is_the_name(field: str) -> None:
    assert marked([manifest("a", pii=[field])]) == {"email"}


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        ({}, ()),
        ({"text": "email"}, ()),
        ({"email": None}, (("email", "/email"),)),
        ({"E-Mail": 1, "EMAIL": 2}, (("email", "/EMAIL"),)),
        ({"users": [{"x": 1}, {"email": 1}, {"email": 2}]}, (("email", "/users/1/email"),)),
        ({"deep": {"phone": 1}, "phone": 2}, (("phone", "/phone"),)),
        ({"a/b": {"email": 1}}, (("email", "/a~1b/email"),)),
        ({"rows": [[[{"phone": 1}]]]}, (("phone", "/rows/0/0/0/phone"),)),
    ],
)
def test_personal_fields_are_found_at_any_depth(payload: dict[str, Any], found: tuple[Any, ...]) -> None:
    assert fields_named(payload, NAMES) == found


def test_a_payload_deeper_than_the_stack_is_looked_through() -> None:
    payload: dict[str, Any] = {"email": 1}
    for _ in range(5_000):
        payload = {"in": payload}

    ((name, place),) = fields_named(payload, NAMES)

    assert (name, place.count("/")) == ("email", 5_001)


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({}, set()),
        ({"type": "object", "additionalProperties": True}, set()),
        ({"properties": {"Email": {}}}, {"email"}),
        ({"required": ["email", 7]}, {"email"}),
        ({"properties": {"user": {"properties": {"email": {}}}}}, {"user", "email"}),
        ({"allOf": [{"properties": {"email": {}}}]}, {"email"}),
        ({"$defs": {"user": {"required": ["phone"]}}, "$ref": "#/$defs/user"}, {"phone"}),
    ],
)
def test_a_schema_asks_for_what_it_describes_or_requires(schema: dict[str, Any], names: set[str]) -> None:
    assert asked_for(schema) == names


def test_a_few_places_are_told() -> None:
    assert told(["/email"]) == "payload/email"
    assert told([f"/{letter}" for letter in "abcde"]) == "payload/a, payload/b, payload/c and 2 more"
