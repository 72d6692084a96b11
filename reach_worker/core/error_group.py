"""Errors that differ only in their particulars are one error: thousands of dead letters become a handful of groups."""

import re
from hashlib import blake2b
from typing import Final

MARK: Final = "…"
"""Stands for what differs from case to case."""
SHOWN: Final = 200
READ: Final = 600
"""Characters of an error that are looked at: enough to tell it, and few enough for an expression that may go back."""

_PARTICULAR: Final = re.compile(
    r"""
      (?<!\w) (?: '[^'\n]*' | "[^"\n]*" ) (?!\w)          # quoted: an apostrophe inside a word opens nothing
    | \b [a-z][a-z0-9+.-]* :// [^\s'"<>]+                   # addresses
    | \b [\w.+-]+ @ [\w-]+ (?: \. [\w-]+ )+                # of mail, too
    | (?<! [\w.] ) (?: ~ | [A-Za-z]: )? (?: [/\\] [\w.@%+~-]+ ){2,} [/\\]?        # paths of two steps or more
    | \b [0-9a-f]{8} (?: -[0-9a-f]{4} ){3} -[0-9a-f]{12} \b   # UUIDs
    | \b 0x [0-9a-f]+ \b
    | \b [0-9a-f]{8,} \b
    | \b (?= (?: [a-z_]* \d ){2} ) \w{10,} \b                # other long ids
    | [-+]? \d (?: [\d.,:_]* \d )? (?: e [-+]? \d+ )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_RUN: Final = re.compile(rf"{MARK}(?:[\s,;:./|T-]*{MARK})+")


def group_text(error: str) -> str:
    """The error with a mark for each number, id, quoted text, path and address; a list of them is one mark."""
    marked = _PARTICULAR.sub(MARK, error[:READ])
    return _RUN.sub(MARK, marked)[:SHOWN]


def group_id(text: str) -> str:
    """A short name for a group, the same for the same text everywhere and always."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
