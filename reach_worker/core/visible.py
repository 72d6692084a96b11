"""Other people's text for a terminal and a log: what would steer the one or forge a line in the other is written out."""

import re
from typing import Final

_STEERS: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
"""Control characters (ESC and the 8-bit CSI among them), line separators, and what turns the direction of writing."""
_HIDDEN: Final = re.compile(f"[{_STEERS}]")
_HIDDEN_BUT_LINES: Final = re.compile(f"(?!\n)[{_STEERS}]")
INDENT: Final = "    "


def visible(text: str, *, lines: bool = False) -> str:
    r"""The text with such characters as ``\x1b``. ``lines``: line feeds stay, for text of several lines."""
    return (_HIDDEN_BUT_LINES if lines else _HIDDEN).sub(_escape, text)


def indented(text: str) -> str:
    """As :func:`visible`, each further line indented: none of them can pass for a line of its own."""
    return visible(text, lines=True).replace("\n", f"\n{INDENT}")


def visible_json(text: str) -> str:
    """JSON text that says the same, with such characters escaped as JSON does; the line feeds between values stay."""
    return _HIDDEN_BUT_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
