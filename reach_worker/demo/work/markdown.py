"""Plain text inside Markdown: escaped so that it shows as given, and padded by how wide it looks."""

import re
import unicodedata
from typing import Literal

_MARKUP = re.compile(r"[\\`*\[<|~]|&(?=#?[A-Za-z0-9]{1,32};)|(?<![^\W_])_|_(?![^\W_])")
_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def escaped(text: str) -> str:
    r"""The text as the content of a table cell: `|` as `\|`, line ends as `<br>`, other markup after a `\`.

    An underscore inside a word is no markup and stays (CommonMark 0.31, section 6.2). Control characters
    become U+FFFD, a tab a space; a renderer drops space at either end.
    """
    lines = _LINE_END.split(_CONTROL.sub("\ufffd", text).replace("\t", " "))
    return "<br>".join(_MARKUP.sub(lambda match: f"\\{match[0]}", line) for line in lines)


def display_width(text: str) -> int:
    """Columns on a terminal: 2 for wide and full-width characters, 0 for combining marks, else 1.

    By East_Asian_Width, Unicode Standard Annex 11; characters of ambiguous width count as 1.
    """
    return sum(_character_width(character) for character in text)


def padded(text: str, width: int, align: Literal["left", "right", "center"]) -> str:
    """The text with spaces up to `width` columns; longer text stays as it is."""
    spare = max(0, width - display_width(text))
    match align:
        case "left":
            return text + " " * spare
        case "right":
            return " " * spare + text
        case "center":
            return " " * (spare // 2) + text + " " * (spare - spare // 2)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
