"""What a text talks about: its most frequent words, and the phrases that Chinese text repeats."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reach_worker.demo.work.shipped import stop_words
from reach_worker.demo.work.terms import folded, pairs, pieces, stem

_STOP_CHARACTERS = "的了是在和与及或也都就把被而这那吗呢吧很请"
_AT_STOP = re.compile(f"[{_STOP_CHARACTERS}]+")
_HOLDS_STOP = re.compile(f"[{_STOP_CHARACTERS}]")
_SHORTEST, _LONGEST = 2, 6


@dataclass(slots=True)
class _Tally:
    """How often each phrase occurs, and where first."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)

    def add(self, phrase: str, place: int) -> None:
        self.counts[phrase] += 1
        self.first.setdefault(phrase, place)


def content_terms(text: str) -> list[str]:
    """The terms of a text that carry meaning: no stop words, no bare numbers, no lone letters."""
    found: list[str] = []
    for _, piece, is_cjk in pieces(folded(text)):
        if is_cjk:
            found.extend(pair for pair in pairs(piece) if not _HOLDS_STOP.search(pair))
        elif _carries_meaning(piece):
            found.append(stem(piece))
    return found


def keyphrases(text: str, limit: int) -> list[tuple[str, int]]:
    """The `limit` most frequent phrases with their counts; equal ones in order of appearance.

    A word is shown in the spelling met first. A Chinese phrase is a repeated run of 2 to 6 characters that
    is not merely a part of a longer one repeated as often; where nothing repeats, the beginnings of
    runs stand in.
    """
    words = _Tally()
    shown: dict[str, str] = {}
    segments: list[tuple[int, str]] = []
    for place, piece, is_cjk in pieces(folded(text)):
        if is_cjk:
            segments.extend(_segments(piece, place))
        elif _carries_meaning(piece):
            words.add(stem(piece), place)
            shown.setdefault(stem(piece), piece)
    runs = _repeated(segments)
    repeated = _whole(runs.counts)
    found = [(shown[word], n, words.first[word]) for word, n in words.counts.items()]
    found += [(run, n, runs.first[run]) for run, n in repeated.items()]
    if not repeated:
        found += [(run[:_LONGEST], 1, place) for place, run in segments if len(run) >= _SHORTEST]
    found.sort(key=lambda item: (-item[1], item[2]))
    return [(phrase, n) for phrase, n, _ in found[:limit]]


def _carries_meaning(word: str) -> bool:
    return len(word) > 1 and word not in stop_words() and not word.isdigit()


def _segments(run: str, place: int) -> Iterable[tuple[int, str]]:
    """A CJK run cut at characters that only bind words together."""
    start = 0
    for stop in _AT_STOP.finditer(run):
        if start < stop.start():
            yield place + start, run[start : stop.start()]
        start = stop.end()
    if start < len(run):
        yield place + start, run[start:]


def _repeated(segments: Sequence[tuple[int, str]]) -> _Tally:
    """The runs that occur more than once. A run can only do so if both runs one character shorter do."""
    repeated = _Tally()
    for length in range(_SHORTEST, _LONGEST + 1):
        seen = _Tally()
        for place, segment in segments:
            for i in range(len(segment) - length + 1):
                run = segment[i : i + length]
                if length == _SHORTEST or (run[:-1] in repeated.counts and run[1:] in repeated.counts):
                    seen.add(run, place + i)
        repeated.counts.update({run: n for run, n in seen.counts.items() if n > 1})
        repeated.first.update(seen.first)
    return repeated


def _whole(repeated: Mapping[str, int]) -> dict[str, int]:
    """The repeated runs that no run one character longer explains."""
    parts = {
        part
        for run, n in repeated.items()
        if len(run) > _SHORTEST
        for part in (run[:-1], run[1:])
        if repeated[part] == n
    }
    return {run: n for run, n in repeated.items() if run not in parts}
