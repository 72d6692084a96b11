"""The demo's input data, read from inside the package."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_DATA = files("reach_worker.demo") / "data"


@cache
def log_text() -> str:
    """The shipped access log, about 3,000 lines in the combined format."""
    return (_DATA / "access.log").read_text(encoding="utf-8")


@cache
def documents() -> Mapping[str, str]:
    """The shipped Markdown documents: file name to text, in order of the names."""
    return _texts(_DATA / "documents", ".md")


@cache
def code_samples() -> Mapping[str, str]:
    """The shipped faulty Python sources: file name to text, in order of the names."""
    return _texts(_DATA / "code", ".py.txt")


@cache
def texts() -> Mapping[str, str]:
    """Short English and Chinese texts to summarize: file name to text, in order of the names."""
    return _texts(_DATA / "texts", ".txt")


@cache
def stop_words() -> frozenset[str]:
    """English words that say nothing about what a text is about."""
    return frozenset((_DATA / "stop_words.txt").read_text(encoding="utf-8").split())


def _texts(folder: Traversable, suffix: str) -> dict[str, str]:
    found = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(suffix)}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}
