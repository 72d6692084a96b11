"""A text cut into sentences, English and Chinese."""

import re
from collections.abc import Iterator

from reach_worker.demo.work.terms import CJK

_CJK_ENDS = "\u3002\uff01\uff1f\u2026"  # full-width full stop, exclamation mark, question mark; ellipsis
_CLOSERS = "\"')\\]\u201d\u2019\uff09\u300d\u300f"
_END = re.compile(rf"[.!?{_CJK_ENDS}]+[{_CLOSERS}]*")
_BULLET = re.compile(r"(?:[-*+>]|\d{1,3}[.)]) ", re.ASCII)
_NO_PROSE = re.compile(r"#{1,6} |\||[-=*]{3,}$")  # heading, table, rule
_BETWEEN_CJK = re.compile(rf"(?<=[{CJK}{_CJK_ENDS}\uff0c\u3001\uff1b\uff1a]) (?=[{CJK}])")
_MONTHS = {"jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
_TITLES = {"dr", "jr", "mr", "mrs", "ms", "prof", "sr", "corp", "inc", "ltd", "dept"}
_SHORT_FORMS = {"approx", "cf", "e.g", "eds", "etc", "fig", "figs", "i.e", "pp", "vol", "vs"}
_ABBREVIATIONS = _MONTHS | _TITLES | _SHORT_FORMS
_LONGEST_ABBREVIATION = 8


def sentences(text: str) -> list[str]:
    """The sentences in order, each on one line. Markdown headings, tables and code blocks are left out."""
    return [sentence for block in _blocks(text) for sentence in _cut(block)]


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs and list items, each joined to one line."""
    gathered: list[str] = []
    for line in (*_prose(text), ""):
        bullet = _BULLET.match(line)
        if (not line or bullet) and gathered:
            yield _joined(gathered)
            gathered = []
        if line:
            gathered.append(line[bullet.end() :] if bullet else line)


def _prose(text: str) -> Iterator[str]:
    """The lines without the space around them; empty in place of what is no prose."""
    in_code = False
    for line in map(str.strip, text.splitlines()):
        is_fence = line.startswith("```")
        in_code ^= is_fence
        yield "" if is_fence or in_code or _NO_PROSE.match(line) else line


def _joined(lines: list[str]) -> str:
    """Lines as one, single-spaced; no space where a Chinese sentence was wrapped."""
    return _BETWEEN_CJK.sub("", " ".join(" ".join(lines).split()))


def _cut(block: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(block):
        if _is_boundary(block, end):
            yield block[start : end.end()].strip()
            start = end.end()
    if rest := block[start:].strip():
        yield rest


def _is_boundary(block: str, end: re.Match[str]) -> bool:
    """Whether a sentence ends here: not in `3.14`, `e.g. this` or `J. Smith`."""
    if any(mark in _CJK_ENDS for mark in end[0]):
        return True
    after = block[end.end() : end.end() + 2]
    if after and not after[0].isspace():
        return False
    if not end[0].startswith("."):
        return True
    return not after[1:].islower() and not _is_abbreviation(block, end.start())


def _is_abbreviation(block: str, dot: int) -> bool:
    """Whether the word before this dot is a known short form or one letter."""
    words = block[max(0, dot - _LONGEST_ABBREVIATION) : dot].split(" ")
    word = words[-1].lstrip("(\"'").casefold()
    return word in _ABBREVIATIONS or (len(word) == 1 and word.isascii() and word.isalpha())
