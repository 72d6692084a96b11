"""Plain data from a person's file that knows where each key and value stood; its check against a model."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from reach_worker.core.plain_words import in_words, kind_of
from reach_worker.errors import BadInput, Problem

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written. Lines and columns count from 1."""

    file: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """Plain JSON data, and by JSON pointer where it stood.

    ``values`` and ``keys`` hold the place of each; ``bare`` holds numbers, truths and nulls as they stood
    without quotes: ``1.10`` where the data has 1.1.
    ``Document(data)`` is one that came from no file; its problems have a field and no line.
    """

    data: object
    file: str | None = None
    values: Mapping[str, Place] = field(default_factory=dict)
    keys: Mapping[str, Place] = field(default_factory=dict)
    bare: Mapping[str, str] = field(default_factory=dict)

    @property
    def members(self) -> Mapping[str, Any]:
        """The data's members; none where it is no object."""
        return self.data if isinstance(self.data, dict) else {}

    def place(self, pointer: str) -> Place:
        """The place of the key or value at ``pointer``, or of the nearest thing around it."""
        while True:
            found = self.keys.get(pointer) or self.values.get(pointer)
            if found is not None or not pointer:
                return found or Place(self.file)
            pointer = pointer.rpartition("/")[0]

    def located(self, problem: Problem) -> Problem:
        """``problem`` with the place that its field has in this document."""
        place = self.place(problem.field)
        return replace(problem, file=place.file, line=place.line, column=place.column)


def json_pointer(parts: Iterable[str | int]) -> str:
    """RFC 6901: ``("a/b", 0)`` is ``/a~1b/0``; nothing is the whole document."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def pointer_parts(pointer: str) -> list[str]:
    """The way that a JSON pointer goes: ``/a~1b/0`` is ``["a/b", "0"]``."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be, or ``None``. Case and hyphens do not count."""
    by_plain = {_plain(each): each for each in sorted(known, reverse=True)}
    found = difflib.get_close_matches(_plain(name[:100]), by_plain, n=1, cutoff=0.6)
    return by_plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")


def fault(message: str, *at: str | int, hint: str = "") -> PydanticCustomError:
    """What a validator raises where a ``ValueError`` is too coarse: the place further in, and what to do."""
    return PydanticCustomError("fault", "{message}", {"message": message, "at": list(at), "hint": hint})


def validate(model_type: type[Model], document: Document) -> Model:
    """The document as a ``model_type``. Raises ``BadInput`` with every problem, in the order of the lines.

    Strict, as JSON is: ``"8"`` is no number and ``1`` is no truth. A list becomes the model's collection.
    """
    if document.data is None:
        raise BadInput(Problem("is empty; write its fields as `name: value`", file=document.file))
    try:
        return model_type.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as error:
        raise BadInput(problems(error, model_type, document)) from None
    except RecursionError:
        raise BadInput(Problem("is nested too deep", file=document.file)) from None


def problems(error: ValidationError, model_type: type[BaseModel], document: Document) -> tuple[Problem, ...]:
    """Pydantic's findings in plain words, with their places; for an unknown field the nearest known name."""
    items = (item for item in error.errors(include_url=False) if not _is_echo(item))
    found = dict.fromkeys(_problem(item, model_type, document) for item in items)
    return tuple(sorted(found, key=lambda problem: (problem.line or 0, problem.column or 0)))


def faults(error: ValidationError, data: object) -> list[tuple[str, str]]:
    """Pydantic's findings in data of somebody else's type: JSON pointer and plain words of each."""
    items = error.errors(include_url=False)
    return list(dict.fromkeys((json_pointer(_parts(item, data)), in_words(item)) for item in items))


def _is_echo(item: ErrorDetails) -> bool:
    """Pydantic calls a list too short whose items it refused; the items' own errors say it all."""
    return item["type"] == "too_short" and len(item["input"]) >= item["ctx"]["min_length"]


def _problem(item: ErrorDetails, model_type: type[BaseModel], document: Document) -> Problem:
    parts = [*_parts(item, document.data), *item.get("ctx", {}).get("at", ())]
    pointer = json_pointer(parts)
    written = document.bare.get(pointer)
    if written and item["type"] == "string_type":
        message = f"must be text, and {written} without quotes is {_read_as(item['input'])}"
        return document.located(Problem(message, pointer, hint=f'write "{written}"'))
    return document.located(Problem(in_words(item), pointer, hint=_hint(item, parts, model_type)))


def _hint(item: ErrorDetails, parts: list[str | int], model_type: type[BaseModel]) -> str | None:
    context = item.get("ctx", {})
    match item["type"]:
        case "extra_forbidden":
            return _did_you_mean(str(parts[-1]), fields_at(model_type, parts[:-1]))
        case "literal_error":
            close = nearest(str(item["input"]), re.findall(r"'([^']*)'", context["expected"]))
            return f"did you mean {close}?" if close else None
        case "missing":
            known = fields_at(model_type, parts[:-1])
            return known[str(parts[-1])].description if parts[-1] in known else None
        case "bool_type" if isinstance(item["input"], str):
            return _TRUTHS.get(item["input"].casefold())
        case _:
            return context.get("hint") or None


_TRUTHS: Final = {"yes": "write true", "on": "write true", "no": "write false", "off": "write false"}


def _read_as(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    return kind_of(value)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    return f"did you mean {close}?" if close else f"known here: {', '.join(sorted(known))}"


def _parts(item: ErrorDetails, data: object) -> Iterator[str | int]:
    """The location as it stands in the data: pydantic adds the names of union members, which nobody wrote."""
    for part in item["loc"]:
        if (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            data = data[part]  # type: ignore[index]  # mypy does not join the two branches
        elif item["type"] != "missing" or part != item["loc"][-1]:
            continue
        yield part


def fields_at(model_type: type[BaseModel], parts: Iterable[str | int]) -> dict[str, FieldInfo]:
    """The fields, by their name in files, of the model found at ``parts`` inside ``model_type``."""
    models = [model_type]
    for part in parts:
        fields = _fields(models)
        if part in fields:
            models = list(_models_in(fields[str(part)].annotation))
    return _fields(models)


def _fields(models: Iterable[type[BaseModel]]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for model in models for name, info in model.model_fields.items()}


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
