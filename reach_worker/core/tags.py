"""One spelling per tag: every tag is folded and mapped to its canonical form when it is loaded."""

import unicodedata
from collections.abc import Iterable, Mapping

from pydantic import ConfigDict, RootModel

from reach_worker.core.document import Document, json_pointer, validate
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, Problem


def fold(text: str) -> str:
    """Text without what people do not mean by it: outer spaces, width and ligature variants, case.

    Folding what was folded changes nothing.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()
    return folded if folded == text else fold(folded)


class TagTable:
    """Spellings of tags and what each stands for. ``TagTable({})`` only folds."""

    def __init__(self, synonyms: Mapping[str, Iterable[str]]) -> None:
        """Take ``canonical: spellings``. A canonical tag may be a spelling of another; chains are followed.

        Raises ``BadInput`` for a spelling with two canonicals, a chain that comes back to itself, and empty
        tags; the problems' fields are pointers into ``synonyms``.
        """
        problems: list[Problem] = []
        parents: dict[str, str] = {}
        for canonical, spellings in synonyms.items():
            for index, spelling in enumerate(spellings):
                problem = _add(parents, fold(spelling), fold(canonical))
                if problem:
                    problems.append(Problem(problem, json_pointer([canonical, index])))
        problems += (
            Problem(loop, json_pointer([name])) for name in synonyms if (loop := _loop(parents, fold(name)))
        )
        if problems:
            raise BadInput(problems)
        self._canonical = {spelling: _root(parents, spelling) for spelling in parents}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TagTable) and self._canonical == other._canonical

    __hash__ = None  # type: ignore[assignment]  # equal by what it maps

    def normalise(self, tag: str) -> str:
        """The one spelling of ``tag``: folded, then mapped to its canonical tag where the table has one."""
        folded = fold(tag)
        return self._canonical.get(folded, folded)


def _add(parents: dict[str, str], spelling: str, canonical: str) -> str | None:
    if not spelling or not canonical:
        return "a tag must not be empty"
    if spelling == canonical:
        return None
    known = parents.setdefault(spelling, canonical)
    return (
        None if known == canonical else f"{spelling!r} stands for {known!r} and for {canonical!r}; keep one"
    )


def _loop(parents: Mapping[str, str], start: str) -> str | None:
    chain = [start]
    while (following := parents.get(chain[-1])) is not None:
        chain.append(following)
        if following == start:
            return f"stands for itself: {' → '.join(chain)}"
        if following in chain[:-1]:
            return None
    return None


def _root(parents: Mapping[str, str], tag: str) -> str:
    while tag in parents:
        tag = parents[tag]
    return tag


class _Synonyms(RootModel[dict[str, tuple[str, ...]]]):
    model_config = ConfigDict(frozen=True)


def load_tags(text: str, *, file: str | None = None) -> TagTable:
    """The table in YAML text, ``canonical: [spelling, …]``; no text is an empty one. Raises ``BadInput``."""
    document = parse(text, file=file)
    if document.data is None:
        return TagTable({})
    return _table(validate(_Synonyms, document).root, document)


def _table(synonyms: Mapping[str, Iterable[str]], document: Document) -> TagTable:
    try:
        return TagTable(synonyms)
    except BadInput as error:
        raise BadInput(document.located(problem) for problem in error.problems) from None
