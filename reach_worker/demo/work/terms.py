"""Text to terms, for English and Chinese in one text.

English words are folded to lower case and lose a plural ending. Chinese is written without spaces, so runs
of CJK characters become overlapping pairs (bigrams), the usual index unit where no dictionary is at hand.
"""

import re
import unicodedata
from collections.abc import Iterator

CJK = "\u3005\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
"""The inside of a character class: Han, kana and Hangul."""

_PIECE = re.compile(rf"([{CJK}]+)|([^\W_{CJK}]+)(?:['\u2019]s\b)?")
_SHORTEST_PLURAL = 4


def pieces(text: str) -> Iterator[tuple[int, str, bool]]:
    """Every word (less a possessive `'s`) and CJK run of a folded text: position, piece, is it CJK."""
    for match in _PIECE.finditer(text):
        yield match.start(), match[1] or match[2], match[1] is not None


def folded(text: str) -> str:
    """One spelling for full-width forms (NFKC) and for upper case."""
    return unicodedata.normalize("NFKC", text).casefold()


def terms(text: str) -> list[str]:
    """The index terms of a text in order, repeats included."""
    found: list[str] = []
    for _, piece, is_cjk in pieces(folded(text)):
        found.extend(pairs(piece) if is_cjk else (stem(piece),))
    return found


def pairs(run: str) -> list[str]:
    """The overlapping pairs of a CJK run; a single character stands for itself."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def stem(word: str) -> str:
    """The word without a plural ending.

    The S-stemmer of D. Harman, "How effective is suffixing?", JASIS 42(1), 1991, pp. 7-15: the first rule
    whose ending fits decides, also where its exception then leaves the word alone.
    """
    if len(word) < _SHORTEST_PLURAL or not word.endswith("s"):
        return word
    if word.endswith("ies"):
        return word if word.endswith(("eies", "aies")) else f"{word[:-3]}y"
    if word.endswith("es"):
        return word if word.endswith(("aes", "ees", "oes")) else word[:-1]
    return word if word.endswith(("us", "ss")) else word[:-1]
