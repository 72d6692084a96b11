"""From the words of a command line to values, for click's ``type=``."""

import re
import sys
from pathlib import Path
from typing import Any, Final

import click
import orjson

from reach_worker.cli.human_times import seconds_in

manifest_option: Final = click.option(
    "--manifest",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A manifest that goes over what the code declares; what it does not say stays.",
)
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)+")


def duration(text: str) -> float:
    """Seconds of ``10m``, ``2h``, ``1d``."""
    try:
        seconds = seconds_in(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if seconds <= 0:
        raise click.BadParameter(f"{text!r} is no time at all")
    return seconds


def key_value(text: str) -> tuple[str, str]:
    """``key=value``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not key=value")
    return key, value


def pointer(text: str) -> str:
    """A JSON pointer (RFC 6901) to something inside a document."""
    if not _POINTER.fullmatch(text):
        raise click.BadParameter(f"{text!r} is no JSON pointer, such as /payload/limit")
    return text


def assignment(text: str) -> tuple[str, Any]:
    """``/json/pointer=JSON``."""
    place, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not POINTER=JSON, such as /payload/limit=10")
    try:
        return pointer(place), orjson.loads(value)
    except orjson.JSONDecodeError as error:
        hint = f"text goes in quotes: '{place}=\"{value}\"'"
        raise click.BadParameter(f"{value!r} is not JSON ({error}); {hint}") from None


def json_object(text: str) -> dict[str, Any]:
    """A JSON object: as it stands, in ``@file``, or ``-`` for standard input."""
    source, content = _content(text)
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise click.BadParameter(f"{source} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise click.BadParameter(f"{source} is no JSON object")
    return data


def _content(text: str) -> tuple[str, str | bytes]:
    if text == "-":
        return "standard input", sys.stdin.buffer.read()
    if text.startswith("@"):
        return text[1:], read_file(text[1:])
    return repr(text[:80]), text


def read_file(name: str) -> bytes:
    """A file's bytes; those of standard input for ``-``."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{name!r} cannot be read: {error.strerror or error}") from None
