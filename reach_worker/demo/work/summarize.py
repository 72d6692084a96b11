"""An extractive summary: the sentences that say most of what a text says, and its keywords."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reach_worker.demo.work import fields
from reach_worker.demo.work.fields import PayloadError
from reach_worker.demo.work.keyphrases import content_terms, keyphrases
from reach_worker.demo.work.sentences import sentences

_POSITION = 0.2
_FULL_SENTENCE = 4  # content terms; a shorter one scores in proportion
_ROUNDED = 4


def summarize(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The `max_sentences` (3) best sentences of `text` in their own order, and `keywords` (8) of the text.

    `index` counts sentences from 0; `score` is the one at the moment of choice, 0 to 1.2. A text with no
    more sentences than asked for comes back whole.

    Raises:
        ValueError: no text, or one without a single sentence.
    """
    text = fields.text(payload, "text")
    wanted = fields.whole(payload, "max_sentences", default=3, at_most=20)
    found = sentences(text)
    if not found:
        raise PayloadError("text", "holds no sentence")
    chosen = choose([content_terms(sentence) for sentence in found], wanted)
    return {
        "sentences": [
            {"index": index, "text": found[index], "score": round(chosen[index], _ROUNDED)}
            for index in sorted(chosen)
        ],
        "of": len(found),
        "keywords": [word for word, _ in keyphrases(text, _keywords(payload, default=8))],
    }


def keywords(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The `keywords` (10) most frequent words and phrases of `text`; score is relative to the first, 0 to 1.

    Raises:
        ValueError: no text, or one that holds nothing but numbers and stop words.
    """
    text = fields.text(payload, "text")
    found = keyphrases(text, _keywords(payload, default=10))
    if not found:
        raise PayloadError("text", "holds no word that could be a keyword")
    most = found[0][1]
    return {
        "keywords": [{"word": word, "count": n, "score": round(n / most, _ROUNDED)} for word, n in found],
    }


def choose(sentence_terms: Sequence[Sequence[str]], wanted: int) -> dict[int, float]:
    """Sentence number to score, for the `wanted` best.

    A sentence scores the mean weight of its terms, plus a bonus that falls with its place (the opening says
    what a text is about: H. P. Edmundson, "New Methods in Automatic Extracting", JACM 16(2), 1969). After
    each choice the probability of the terms it used is squared, so that the next says something new
    (SumBasic: A. Nenkova, L. Vanderwende, "The Impact of Frequency on Summarization", MSR-TR-2005-101).
    The weight of a term is its probability relative to that of the most frequent one, in [0, 1].
    """
    counts = Counter(term for terms in sentence_terms for term in terms)
    most, total = max(counts.values(), default=1), counts.total()
    weights = {term: n / most for term, n in counts.items()}
    left = set(range(len(sentence_terms)))
    chosen: dict[int, float] = {}
    while left and len(chosen) < wanted:
        scores = {index: _score(sentence_terms[index], index, weights) for index in left}
        best = min(left, key=lambda index: (-scores[index], index))
        chosen[best] = scores[best]
        left.remove(best)
        weights.update({term: weights[term] * counts[term] / total for term in set(sentence_terms[best])})
    return chosen


def _score(terms: Sequence[str], index: int, weights: Mapping[str, float]) -> float:
    content = sum(weights[term] for term in terms) / max(len(terms), _FULL_SENTENCE)
    return content + _POSITION / (1 + index)


def _keywords(payload: Mapping[str, Any], default: int) -> int:
    return fields.whole(payload, "keywords", default=default, at_most=50)
