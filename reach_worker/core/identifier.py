"""Ids of agents and capabilities: one spelling each, and safe in a queue's name and a file's."""

import unicodedata
from typing import Annotated, Final

from pydantic import AfterValidator, WithJsonSchema

from reach_worker.core.tags import fold

MAX_CHARACTERS: Final = 100
MAX_BYTES: Final = 200
"""AMQP allows 255 bytes for a queue's name, which is the prefix, the kind of queue and the id."""


def identifier(text: str) -> str:
    """``text`` folded, if it is an id: letters and digits of any script, after the first also ``._-``.

    Raises ``ValueError`` with what is wrong.
    """
    name = fold(text)
    if not name:
        raise ValueError("an id must not be empty")
    if len(name) > MAX_CHARACTERS or len(name.encode("utf-8", "replace")) > MAX_BYTES:
        raise ValueError(f"an id has at most {MAX_CHARACTERS} characters and {MAX_BYTES} bytes")
    if not name[0].isalnum():
        raise ValueError(f"an id begins with a letter or a digit, not with {name[0]!r}")
    strange = next((character for character in name if not _allowed(character)), None)
    if strange is not None:
        raise ValueError(f"an id holds letters, digits and . _ - only, not {strange!r}")
    return name


def _allowed(character: str) -> bool:
    """Letters and digits, the marks that some scripts write their vowels with, and three signs."""
    return character.isalnum() or character in "._-" or unicodedata.category(character).startswith("M")


Identifier = Annotated[
    str,
    AfterValidator(identifier),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_CHARACTERS}),
]
