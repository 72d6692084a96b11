"""Texts with places for what a task brings, and for what only the environment knows.

``{city}`` is a field of the payload, ``{address.zip}`` one further in, ``{@task_id}`` something of the attempt
(``FACTS``); ``{city?}`` may be missing, and then the whole text is left out. ``${API_KEY}`` is a variable of the
environment. ``{{`` and ``}}`` are braces. Nothing is evaluated: a place is looked up, never run.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import BadRequest
from reach_worker.core.document import nearest

FACTS: Final = ("task_id", "flow_id", "dispatch_id", "capability", "attempt", "caller", "session_id")
"""What ``{@…}`` may name."""
PAYLOAD: Final = "payload"
"""The shape of a body that is the payload itself."""

_PIECE: Final = re.compile(
    r"(?P<brace>\{\{|\}\})|\$\{(?P<variable>[^{}]*)\}|\{(?P<place>[^{}]*)\}|(?P<stray>[{}])"
)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PLACE: Final = re.compile(r"(?P<fact>@)?(?P<path>[^\W\d][\w-]*(?:\.[\w-]+)*)(?P<optional>\?)?\Z")
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value of the task goes. ``path``: names from the payload inwards. ``fact``: of the attempt instead."""

    path: tuple[str, ...]
    fact: bool = False
    optional: bool = False

    def __str__(self) -> str:
        return ("@" if self.fact else "") + ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the environment, not looked up yet."""

    name: str


@dataclass(frozen=True, slots=True)
class Values:
    """What one task brings to the places of a template."""

    payload: Mapping[str, Any]
    facts: Mapping[str, Any]

    def find(self, place: Place) -> object:
        """The value at a place, ``_MISSING`` if there is none; a null counts as none."""
        found: object = self.facts if place.fact else self.payload
        for name in place.path:
            if isinstance(found, Mapping):
                found = found.get(name)
            elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                return _MISSING
        return _MISSING if found is None else found


def values_of(payload: Mapping[str, Any], context: Context) -> Values:
    """What a task and its attempt bring."""
    return Values(payload, {name: getattr(context, name) for name in FACTS})


@dataclass(frozen=True, slots=True)
class Template:
    """A text that was taken apart, as ``template`` does it. ``source`` is the text itself, without any value."""

    source: str
    parts: tuple[str | Place | Variable, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """The places for values of the task."""
        return tuple(part for part in self.parts if isinstance(part, Place))

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the environment that it names."""
        return tuple(part.name for part in self.parts if isinstance(part, Variable))

    def within(self, environ: Mapping[str, str]) -> "Template":
        """The same with the variables looked up. Raises ``KeyError`` if one is missing."""
        parts = (environ[part.name] if isinstance(part, Variable) else part for part in self.parts)
        return replace(self, parts=tuple(parts))

    def filled(self, values: Values, spell: Callable[[str], str] = str) -> str | None:
        """The text for one task, ``None`` if an optional field is missing. ``spell`` writes a value so that it is safe.

        Raises :class:`BadRequest` if a field is missing that must be there.
        """
        done = []
        for part in self.parts:
            if isinstance(part, Place):
                value = _value(part, values, self.source)
                if value is _MISSING:
                    return None
                done.append(spell(as_text(value)))
            else:
                done.append(str(part))
        return "".join(done)


def as_text(value: object) -> str:
    """A value in a text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _value(place: Place, values: Values, source: str) -> object:
    value = values.find(place)
    if value is not _MISSING or place.optional:
        return value
    raise BadRequest(f"the payload has no {place}, which this agent needs for {source!r}")


def template(text: str) -> Template:
    """Take a text apart. Raises ``ValueError`` saying what is wrong with it."""
    parts: list[str | Place | Variable] = []
    end = 0
    for found in _PIECE.finditer(text):
        parts.append(text[end : found.start()])
        end = found.end()
        parts.append(_part(found))
    parts.append(text[end:])
    return Template(text, tuple(part for part in parts if part != ""))


def _part(found: re.Match[str]) -> str | Place | Variable:
    if found["brace"]:
        return found["brace"][0]
    if found["stray"]:
        raise ValueError(f"has a single {found['stray']}; a brace that is meant is written twice")
    if found["variable"] is not None:
        if not _VARIABLE.match(found["variable"]):
            raise ValueError(f"{found[0]} is no variable of the environment; write ${{API_KEY}}")
        return Variable(found["variable"])
    place = _PLACE.match(found["place"])
    if not place:
        raise ValueError(f"{found[0]} names no field; write {{city}}, {{address.zip}} or {{@task_id}}")
    if place["fact"] and place["path"] not in FACTS:
        close = nearest(place["path"], FACTS)
        raise ValueError(f"{found[0]} is unknown; {f'did you mean {{@{close}}}?' if close else _known()}")
    return Place(tuple(place["path"].split(".")), fact=bool(place["fact"]), optional=bool(place["optional"]))


def _known() -> str:
    return "known: " + ", ".join(f"{{@{name}}}" for name in FACTS)


def is_template(text: str) -> str:
    """For a field of a model: the text itself, if it can be taken apart."""
    template(text)
    return text


# ---- JSON with places in it


def filled_json(shape: object, values: Values, environ: Mapping[str, str]) -> object:
    """A JSON value whose texts are templates, for one task.

    A text that is one place and nothing else becomes the value itself, of whatever kind. A member or an item whose
    optional field is missing is left out.
    """
    filled = _filled(shape, values, environ)
    return None if filled is _MISSING else filled


def filled_body(shape: object, values: Values, environ: Mapping[str, str]) -> object:
    """As :func:`filled_json`; the shape ``PAYLOAD`` is the payload as it is."""
    return values.payload if shape == PAYLOAD else filled_json(shape, values, environ)


def _filled(shape: object, values: Values, environ: Mapping[str, str]) -> object:
    match shape:
        case str():
            return _filled_text(template(shape).within(environ), values)
        case dict():
            members = ((name, _filled(value, values, environ)) for name, value in shape.items())
            return {name: value for name, value in members if value is not _MISSING}
        case list():
            items = (_filled(value, values, environ) for value in shape)
            return [value for value in items if value is not _MISSING]
        case _:
            return shape


def _filled_text(text: Template, values: Values) -> object:
    match text.parts:
        case (Place() as place,):
            return _value(place, values, text.source)
        case _:
            filled = text.filled(values)
            return _MISSING if filled is None else filled


def texts(shape: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text in a JSON value, with the way to it."""
    match shape:
        case str():
            yield at, shape
        case Mapping():
            for name, value in shape.items():
                yield from texts(value, (*at, name))
        case list() | tuple():
            for index, value in enumerate(shape):
                yield from texts(value, (*at, index))
        case _:
            return


def are_templates(shape: Any) -> Any:
    """For a field of a model: the JSON value itself, if each text in it can be taken apart."""
    for _, text in texts(shape):
        template(text)
    return shape
