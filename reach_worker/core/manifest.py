"""The manifest: an agent's own declaration of what it can do, within which limits, at what cost.

What an agent says of itself is never extrapolated: ``declared_cost`` and ``declared_latency_ms`` keep its
words, ``cost`` and ``latency_ms`` are clamped, and only those are for use.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

import jsonschema_rs
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    model_validator,
)

from reach_worker.core.document import Document, fault, validate
from reach_worker.core.identifier import Identifier
from reach_worker.core.json_schema import compile_schema, first_fault
from reach_worker.core.tags import TagTable, fold
from reach_worker.core.yaml_text import parse

COST_RANGE: Final = (1.0, 5.0)
LATENCY_RANGE_MS: Final = (1_000.0, 10_000.0)
ANYONE: Final = "*"
MAX_TIMEOUT_MS: Final = 30 * 24 * 3_600_000


def _folded(names: tuple[str, ...]) -> tuple[str, ...]:
    return _once(tuple(fold(name) for name in names))


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(names):
        raise ValueError("holds an empty name")
    return tuple(sorted(set(names)))


def _no_anonymous(callers: tuple[str, ...]) -> tuple[str, ...]:
    if "anonymous" in callers:
        message = "a task without a user id is from `anonymous`, who matches no allow list"
        raise fault(message, callers.index("anonymous"), hint='"*" lets anyone in')
    return callers


def _is_schema(schema: dict[str, Any]) -> dict[str, Any]:
    compile_schema(schema)
    return schema


Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=4_000)]
Names = Annotated[tuple[Line, ...], Field(max_length=200), AfterValidator(_folded)]
Callers = Annotated[
    tuple[Line, ...], Field(max_length=1_000), AfterValidator(_no_anonymous), AfterValidator(_once)
]
Schema = Annotated[dict[str, Any], AfterValidator(_is_schema)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)


class Capability(_Declared):
    """One thing an agent can do."""

    id: Identifier = Field(
        description="what tasks ask for, `log.query`; the same at every agent that can do it"
    )
    name: Line | None = Field(None, description="short name for people; the id where it is left out")
    description: Text = Field(
        "", description="what it does, in a few sentences; read by people and by the semantic level"
    )
    input_schema: Schema = Field(
        default_factory=dict, description="JSON Schema of the payload; {} takes anything"
    )
    output_schema: Schema = Field(
        default_factory=dict, description="JSON Schema of the answer; {} allows anything"
    )
    tags: Names = Field((), description="properties that tasks may require")
    side_effects: bool = Field(default=False, description="whether running it twice would do harm")
    declared_cost: float = Field(
        3.0,
        alias="cost",
        allow_inf_nan=False,
        description="relative cost, 1 (least) to 5; clamped to that range",
    )
    declared_latency_ms: float = Field(
        5_500.0,
        alias="latency_ms",
        allow_inf_nan=False,
        description="usual time to the answer, in milliseconds; clamped to 1,000-10,000",
    )
    timeout_ms: int | None = Field(
        None, gt=0, le=MAX_TIMEOUT_MS, description="longest time an attempt may take, in milliseconds"
    )
    examples: tuple[Text, ...] = Field(
        (), max_length=100, description="how people ask for it, one sentence each"
    )

    @property
    def cost(self) -> float:
        """The declared cost, clamped to 1-5."""
        return _clamp(self.declared_cost, COST_RANGE)

    @property
    def latency_ms(self) -> float:
        """The declared latency, clamped to 1,000-10,000 ms."""
        return _clamp(self.declared_latency_ms, LATENCY_RANGE_MS)

    @property
    def title(self) -> str:
        """The name for people: the declared one, or the id."""
        return self.name or self.id

    @cached_property
    def input_validator(self) -> jsonschema_rs.Validator:
        """The input schema, compiled once."""
        return compile_schema(self.input_schema)


class Price(_Declared):
    """What the agent costs in money, in the currency of the whole fleet."""

    per_task: Amount | None = Field(None, description="money per task")
    per_1k_tokens: Amount | None = Field(None, description="money per 1,000 tokens")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.per_task is None and self.per_1k_tokens is None:
            raise ValueError("needs per_task or per_1k_tokens")
        return self


class Manifest(_Declared):
    """An agent's declaration, as ``load_manifest`` and ``manifest_from`` build it."""

    id: Identifier = Field(description="the agent's id; its file is `<id>.yaml`, its queue `agent.<id>`")
    name: Line | None = Field(None, description="name for people; the id where it is left out")
    version: Line = Field("1", description="version of this declaration; the newest one counts")
    capabilities: tuple[Capability, ...] = Field(min_length=1, max_length=1_000, description="what it can do")
    mutually_exclusive_tags: Names = Field(
        description="tags of tasks it never handles; write [] if there are none"
    )
    permission_domains: Names = Field(
        (), description='permission domains it may work in, "*" for all; a task without a domain needs none'
    )
    callable_by: Callers = Field((ANYONE,), description='callers who may send it work, "*" for anyone')
    max_concurrency: int = Field(
        1,
        ge=1,
        le=100_000,
        description="tasks that one instance runs at once; with `presence: consumers` all of its workers together",
    )
    rate: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="tasks per second it takes at most; none = no limit"
    )
    region: Line | None = Field(None, description="where it runs")
    team: Line | None = Field(None, description="who owns it")
    price: Price | None = Field(None, description="what it costs in money")
    pii: tuple[Line, ...] = Field(
        (),
        max_length=1_000,
        description="output fields that hold personal data; where a payload holds one of them, the task goes only to "
        "agents whose input_schema asks for it",
    )
    presence: Literal["heartbeat", "consumers"] = Field(
        "heartbeat",
        description="how it shows that it is there; `consumers` for workers that only consume its queue and reply",
    )
    _declaration: str = PrivateAttr("")

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        counts = Counter(capability.id for capability in self.capabilities)
        for index, capability in reversed(list(enumerate(self.capabilities))):
            if counts[capability.id] > 1:
                message = f"two capabilities have the id {capability.id!r}"
                raise fault(message, "capabilities", index, "id", hint="ids are compared without case")
        return self

    def model_post_init(self, _context: object, /) -> None:
        """Note the declaration, before any tag table is applied."""
        self._declaration = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @property
    def declaration(self) -> str:
        """The agent's own words as canonical JSON, tags as it spells them: what travels and is stored."""
        return self._declaration

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the declaration: the same at agent and router, whatever tag table each of them has."""
        return hashlib.sha256(self._declaration.encode()).hexdigest()

    @property
    def title(self) -> str:
        """The name for people: the declared one, or the id."""
        return self.name or self.id

    def capability(self, capability_id: str) -> Capability | None:
        """The capability with this id, as it is written here (folded)."""
        return self.by_id.get(capability_id)

    @cached_property
    def by_id(self) -> Mapping[str, Capability]:
        """The capabilities by their ids. Looked up for each task, so no private attribute: pydantic's take long."""
        return {capability.id: capability for capability in self.capabilities}

    def with_tags(self, tags: TagTable) -> Self:
        """The same declaration, each tag in the one spelling of the table."""
        capabilities = tuple(
            capability.model_copy(update={"tags": _mapped(capability.tags, tags)})
            for capability in self.capabilities
        )
        never = _mapped(self.mutually_exclusive_tags, tags)
        copy = self.model_copy(update={"capabilities": capabilities, "mutually_exclusive_tags": never})
        copy.__dict__.pop("by_id", None)  # of the copied capabilities
        return copy


def _clamp(value: float, limits: tuple[float, float]) -> float:
    return min(limits[1], max(limits[0], value))


def _mapped(names: tuple[str, ...], tags: TagTable) -> tuple[str, ...]:
    return _once(tuple(tags.normalise(name) for name in names))


def load_manifest(text: str, *, file: str | None, tags: TagTable) -> Manifest:
    """The manifest in YAML text. Raises ``BadInput`` with file, line, column and field of every problem."""
    return manifest_from(parse(text, file=file), tags=tags)


def manifest_from(document: Document, *, tags: TagTable) -> Manifest:
    """The manifest in plain data, as ``Document(json.loads(manifest.declaration))``. Raises ``BadInput``."""
    return validate(Manifest, document).with_tags(tags)


def manifest_json_schema() -> dict[str, Any]:
    """JSON Schema of a manifest file, for editors; ``manifest.schema.json`` beside this module holds it."""
    schema = Manifest.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "reach_worker manifest",
    }


def payload_problem(capability: Capability, payload: Mapping[str, Any]) -> tuple[str, str] | None:
    """JSON pointer and words for the first thing in the payload that the input schema forbids, if any."""
    return first_fault(capability.input_validator, payload)
