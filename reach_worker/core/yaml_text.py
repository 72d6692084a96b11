"""YAML text as a ``Document``: exactly what JSON could hold, each key and value with its line and column.

Scalars are read by YAML 1.2's core rules, as editors do: ``no``, ``on`` and ``2024-01-01`` are text, only
``true`` and ``false`` are truths. Keys are always text. There are no dates, bytes, sets and infinities.
Aliases are written out, within bounds.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Final

import yaml

from reach_worker.core.document import Document, Place, json_pointer
from reach_worker.errors import BadInput, Problem

MAX_DEPTH: Final = 64
MAX_SIZE: Final = 4_000_000
"""Characters of a document with its aliases written out; each value counts eight beside its text."""

TAG: Final = "tag:yaml.org,2002:"
_LONGEST_NUMBER: Final = 100
_FINITE: Final = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_FLOAT: Final = rf"(?:{_FINITE}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
SCALARS: Final = {
    "null": (r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    "bool": (r"(?:true|True|TRUE|false|False|FALSE)\Z", list("tTfF")),
    "int": (r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", list("-+0123456789")),
    "float": (_FLOAT, list("-+.0123456789")),
}


class _Composer(yaml.SafeLoader):
    """PyYAML's composer with the scalars of YAML 1.2 and a bound on depth."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "nested too deep", self.get_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _name, (_pattern, _first) in SCALARS.items():
    _Composer.add_implicit_resolver(TAG + _name, re.compile(_pattern), _first)


def parse(text: str, *, file: str | None = None) -> Document:
    """The document in ``text``. Raises ``BadInput`` with line and column."""
    try:
        root = yaml.compose(text, Loader=_Composer)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadInput(_problem(f"not YAML: {error.problem}", mark, file, hint=_hint(error))) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        message = f"not YAML: the character U+{error.character:04X} is not allowed"
        raise BadInput(Problem(message, file=file, line=line, column=column)) from None
    reading = _Reading(file)
    data = None if root is None else reading.value(root, ())
    if reading.problems:
        raise BadInput(reading.problems)
    return Document(data, file, reading.values, reading.keys, reading.bare)


def _hint(error: yaml.MarkedYAMLError) -> str | None:
    problem = error.problem or ""
    if "\\t" in problem:
        return "indent with spaces, not with tabs"
    if "mapping values are not allowed" in problem:
        return "text that holds `: ` needs quotes, and the fields of one mapping need the same indent"
    return error.context


def _problem(
    message: str, mark: yaml.Mark | None, file: str | None, *, pointer: str = "", hint: str | None = None
) -> Problem:
    place = Place(file) if mark is None else _place(mark, file)
    return Problem(message, pointer, place.file, place.line, place.column, hint)


def _place(mark: yaml.Mark, file: str | None) -> Place:
    return Place(file, mark.line + 1, mark.column + 1)


@dataclass(slots=True)
class _Reading:
    """The way from PyYAML's nodes to plain data. Problems are gathered, so that all are told at once."""

    file: str | None
    problems: list[Problem] = field(default_factory=list)
    values: dict[str, Place] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)
    bare: dict[str, str] = field(default_factory=dict)
    size: int = 0

    def value(self, node: yaml.Node, parts: tuple[str, ...]) -> object:
        """The data of ``node``, whose place is noted under ``parts``."""
        pointer = json_pointer(parts)
        self.values[pointer] = _place(node.start_mark, self.file)
        self.size += 8 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if len(parts) > MAX_DEPTH or self.size > MAX_SIZE:
            message = "is too large or endless once its aliases are written out"
            raise BadInput(_problem(message, node.start_mark, self.file))
        if isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
            return self.mapping(node, parts)
        if isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
            return [self.value(item, (*parts, str(index))) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, pointer)
        return self.note(f"the tag {node.tag.replace(TAG, '!!')} is not read here", node, pointer)

    def mapping(self, node: yaml.MappingNode, parts: tuple[str, ...]) -> dict[str, object]:
        """A mapping's data. A key that comes twice is a problem that names both lines."""
        found: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.note("a key must be text", key, json_pointer(parts))
                continue
            name = self.text(key, json_pointer((*parts, key.value)))
            pointer = json_pointer((*parts, name))
            if name in found:
                self.note(f"is written twice, first in line {self.keys[pointer].line}", key, pointer)
                continue
            if name == "<<" and key.style is None:
                self.note("merge keys (<<) are not read here", key, pointer, hint="write the fields out")
            self.keys[pointer] = _place(key.start_mark, self.file)
            found[name] = self.value(value, (*parts, name))
        return found

    def scalar(self, node: yaml.ScalarNode, pointer: str) -> object:
        """A scalar's data by its tag: the one that was written, or the one its looks gave it."""
        kind, text = node.tag.removeprefix(TAG), node.value
        if kind == "str":
            return self.text(node, pointer)
        if kind not in SCALARS:
            return self.note(f"the tag {node.tag.replace(TAG, '!!')} is not read here", node, pointer)
        if node.style is None:
            self.bare[pointer] = text
        if not re.match(SCALARS[kind][0], text):
            return self.note(f"{text[:60]!r} cannot be read as {kind}", node, pointer)
        if kind in ("int", "float"):
            return self.number(kind, node, pointer)
        return text.casefold() == "true" if kind == "bool" else None

    def number(self, kind: str, node: yaml.ScalarNode, pointer: str) -> object:
        """A number's data; JSON has no infinite ones, and endless ones are refused."""
        text = node.value
        if len(text) > _LONGEST_NUMBER:
            return self.note("this number has too many digits", node, pointer)
        if kind == "int":
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        number = float(text.casefold().replace(".inf", "inf").replace(".nan", "nan"))
        return number if math.isfinite(number) else self.note("must be a finite number", node, pointer)

    def text(self, node: yaml.ScalarNode, pointer: str) -> str:
        """A text's data. JSON may escape a character as two halves; half of one cannot be stored or sent."""
        text: str = node.value
        try:
            return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self.note("holds half of a character pair", node, pointer, hint="write the character itself")
            return ""

    def note(self, message: str, node: yaml.Node, pointer: str, *, hint: str | None = None) -> object:
        """Keep a problem at ``node``; what this returns stands for the data that is not there."""
        self.problems.append(_problem(message, node.start_mark, self.file, pointer=pointer, hint=hint))
        return None
