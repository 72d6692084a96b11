"""What the ``adapter`` sections of all kinds share."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from reach_worker.adapters.templates import Template, are_templates, is_template, template
from reach_worker.core.outcome import OutcomeClass
from reach_worker.errors import BadInput, Problem

MEBIBYTE: Final = 1024 * 1024

Text = Annotated[str, Field(max_length=100_000), AfterValidator(is_template)]
"""A text with places, see ``templates``."""

Shape = Annotated[Any, AfterValidator(are_templates)]
"""A JSON value whose texts are templates."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Rest = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=1, le=1024 * MEBIBYTE)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,3}$")]
"""A status or exit code as the name of a field."""

Kind = Literal["succeeded", "rate_limited", "timeout", "unavailable", "failed", "bad_request", "rejected"]
"""The outcome classes that a table in the file may name."""


def _pointer(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValueError("a JSON pointer begins with /, as /choices/0/text")
    return text


Pointer = Annotated[str, AfterValidator(_pointer)]
"""Where in a JSON answer something is: ``/choices/0/text``; nothing is all of it."""


_WHOLE_HOST: Final = re.compile(r"https?://[^/?#]+\Z")
_PAST_THE_HOST: Final = re.compile(r"https?://[^/?#]+[/?#]")


def address_problem(text: Template) -> str | None:
    """What is wrong with a web address. Only what follows the host may come from a task: nobody else chooses the host.

    One that begins with a variable of the environment is looked at when that is known.
    """
    begin = ""
    for part in text.parts:
        if not isinstance(part, str):
            break
        begin += part
    if _PAST_THE_HOST.match(begin) or (len(text.parts) == 1 and _WHOLE_HOST.match(begin)):
        return None
    if begin.startswith(("http://", "https://")) or not begin:
        if text.variables:
            return None
        if text.places:
            return "takes a field of the payload before the end of its host; only what follows may come from a task"
    return "must be a web address, http://… or https://…"


def _web_address(text: str) -> str:
    problem = address_problem(template(text))
    if problem:
        raise ValueError(problem)
    return text


def checked_address(text: str, environ: Mapping[str, str], name: str) -> Template:
    """An address with its variables looked up. Raises ``BadInput`` if that made it none."""
    found = template(text).within(environ)
    problem = address_problem(found)
    if problem:
        raise BadInput(Problem(f"{text!r} with its variables {problem}", f"/adapter/{name}"))
    return found


WebAddress = Annotated[Text, AfterValidator(_web_address)]


def _is_fixed(text: str) -> str:
    if template(text).places:
        raise ValueError("takes a field of the payload; it is the same for all tasks")
    return text


FixedText = Annotated[Text, AfterValidator(_is_fixed)]
"""A text that is made at the start: of variables of the environment only."""

FixedAddress = Annotated[WebAddress, AfterValidator(_is_fixed)]


class Section(BaseModel):
    """The base of every ``adapter`` section."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NetworkSection(Section):
    """What every adapter that speaks HTTP has."""

    headers: dict[str, Text] = Field(
        default_factory=dict,
        description="sent with every request; `Bearer ${API_KEY}` takes it from the environment",
    )
    connect_timeout_s: Seconds = Field(5.0, description="longest time to connect; then it is `unavailable`")
    silence_timeout_s: Seconds | None = Field(
        None, description="longest time without a byte; without it only the attempt's own time counts"
    )
    max_answer_bytes: Bytes = Field(
        8 * MEBIBYTE, description="longer answers are not read to their end: `failed`"
    )
    rest_s: Rest = Field(5.0, description="seconds of rest after a 429 that names no Retry-After")
    longest_rest_s: Rest = Field(3_600.0, description="a longer Retry-After is cut to this")
    statuses: dict[Number, Kind] = Field(
        default_factory=dict, description="outcome classes by status code, where the usual ones do not fit"
    )


class Prices(Section):
    """Money per 1,000 tokens, in the currency of the whole fleet."""

    input_per_1k: Amount = Field(0.0, description="of what is sent")
    output_per_1k: Amount = Field(0.0, description="of what comes back")

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """The money for so many tokens."""
        return (tokens_in * self.input_per_1k + tokens_out * self.output_per_1k) / 1000


def outcome_table(table: Mapping[str, str]) -> dict[int, OutcomeClass]:
    """A table of the file: by number."""
    return {int(number): OutcomeClass(name) for number, name in table.items()}
