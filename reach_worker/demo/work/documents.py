"""Search in the shipped documents, in English and Chinese."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Any

from reach_worker.demo.work import fields, shipped
from reach_worker.demo.work.fields import PayloadError
from reach_worker.demo.work.terms import terms

_K1 = 1.2  # how soon further repeats of a term stop to count
_B = 0.75  # how much a long document is held back: 0 not at all, 1 in full
_SNIPPET = 160
_LEAD = 40


@dataclass(frozen=True, slots=True)
class Document:
    """One document, ready to be searched."""

    file: str
    title: str
    lines: tuple[str, ...]
    counts: Mapping[str, int]  # term to number of times
    length: int  # terms, repeats included


@dataclass(frozen=True, slots=True)
class Index:
    """Documents and what they have in common."""

    documents: tuple[Document, ...]
    holding: Mapping[str, int]  # term to number of documents that hold it
    mean_length: float


def search(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The `limit` (5) documents that answer `query` best; `count` is how many hold any of its words.

    A hit carries title, file, score (0 and up, comparable within one answer only), and the line, counted
    from 1, that holds most of the query, as a snippet of at most about 160 characters.

    Raises:
        ValueError: no query, or one without a single word.
    """
    query = fields.text(payload, "query")
    limit = fields.whole(payload, "limit", default=5, at_most=50)
    wanted = list(dict.fromkeys(terms(query)))
    if not wanted:
        raise PayloadError("query", "holds no word to search for")
    index = _shipped_index()
    ranked = rank(index, wanted)
    return {
        "query": query,
        "count": len(ranked),
        "hits": [_hit(index, document, score, wanted) for document, score in ranked[:limit]],
    }


@cache
def _shipped_index() -> Index:
    return build(shipped.documents())


def build(texts: Mapping[str, str]) -> Index:
    """Index texts given as file name to Markdown."""
    documents = tuple(_document(file, text) for file, text in texts.items())
    total = sum(document.length for document in documents)
    holding = Counter(term for document in documents for term in document.counts)
    return Index(documents, holding, total / max(1, len(documents)))


def rank(index: Index, wanted: Iterable[str]) -> list[tuple[Document, float]]:
    """Documents that hold any of the terms, best first; equal ones by file name."""
    query = list(wanted)
    scored = [(document, score(index, document, query)) for document in index.documents]
    return sorted((pair for pair in scored if pair[1] > 0), key=lambda pair: (-pair[1], pair[0].file))


def score(index: Index, document: Document, wanted: Iterable[str]) -> float:
    """Okapi BM25: the sum over query terms of idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / mean)).

    S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", Foundations and
    Trends in Information Retrieval 3(4), 2009, pp. 333-389, with k1 = 1.2 and b = 0.75.
    """
    if not document.length:
        return 0.0
    damping = _K1 * (1 - _B + _B * document.length / index.mean_length)
    return sum(
        idf(index, term) * document.counts[term] * (_K1 + 1) / (document.counts[term] + damping)
        for term in wanted
        if term in document.counts
    )


def idf(index: Index, term: str) -> float:
    """How telling a term is: ln(1 + (N - n + 0.5) / (n + 0.5)) for n of N documents holding it.

    The 1 keeps it above zero for a term that most documents hold, as Apache Lucene's BM25Similarity does.
    """
    n = index.holding.get(term, 0)
    return log(1 + (len(index.documents) - n + 0.5) / (n + 0.5))


def _document(file: str, text: str) -> Document:
    lines = tuple(text.splitlines())
    title = next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), file)
    found = terms(text)
    return Document(file, title, lines, Counter(found), len(found))


def _hit(index: Index, document: Document, points: float, wanted: list[str]) -> dict[str, Any]:
    number, line = _best_line(index, document, wanted)
    return {
        "title": document.title,
        "file": document.file,
        "score": round(points, 4),
        "line": number,
        "snippet": snippet(line, wanted),
    }


def _best_line(index: Index, document: Document, wanted: list[str]) -> tuple[int, str]:
    """The line that holds the most telling terms: text before headings, earlier before later."""

    def worth(numbered: tuple[int, str]) -> tuple[bool, bool, float]:
        held = set(terms(numbered[1])).intersection(wanted)
        return bool(held), not numbered[1].startswith("#"), sum(idf(index, term) for term in sorted(held))

    return max(enumerate(document.lines, start=1), key=worth)


def snippet(line: str, wanted: Iterable[str]) -> str:
    """The line, or a window of it around the first of the terms; an ellipsis stands for what is left out."""
    line = line.strip()
    if len(line) <= _SNIPPET:
        return line
    places = [place for place in (line.casefold().find(term) for term in wanted) if place >= 0]
    start = max(0, min(places, default=0) - _LEAD)
    window = line[start : start + _SNIPPET].strip()
    return f"{'…' if start else ''}{window}{'…' if start + _SNIPPET < len(line) else ''}"
