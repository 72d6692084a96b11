"""An HTTP endpoint as an agent: each task is one request, the JSON answer is its result."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit, urlunsplit

import orjson
from pydantic import Field

from reach_worker.adapters.json_answer import read_json, result_at
from reach_worker.adapters.network import Network
from reach_worker.adapters.secrets import secrets_in
from reach_worker.adapters.section import (
    NetworkSection,
    Pointer,
    Shape,
    Text,
    WebAddress,
    checked_address,
)
from reach_worker.adapters.templates import PAYLOAD, Template, Values, filled_body, template, values_of
from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import BadRequest
from reach_worker.ports import Clock

WITHOUT_BODY: Final = ("GET", "HEAD", "DELETE")


class HttpSection(NetworkSection):
    """``kind: http``."""

    kind: Literal["http"] = "http"
    url: WebAddress = Field(description="where, with {fields} of the payload after the host, quoted")
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = Field("POST", description="how")
    query: dict[str, Text] = Field(
        default_factory=dict,
        description="query parameters; one whose {optional?} field is missing is left out",
    )
    body: Shape = Field(
        PAYLOAD,
        description="the JSON body: `payload` for the payload as it is, or any JSON with {fields} in its texts; "
        "GET, HEAD and DELETE have none",
    )
    result: Pointer = Field(
        "", description="where the result is in the answer, a JSON pointer; all of it by default"
    )


class HttpAdapter:
    """Sends requests."""

    def __init__(self, section: HttpSection, environ: Mapping[str, str], clock: Clock) -> None:
        self._section = section
        self._environ = environ
        self._secrets = secrets_in(section.model_dump(), environ)
        self._url = checked_address(section.url, environ, "url")
        self._query = {name: template(text).within(environ) for name, text in section.query.items()}
        self._network = Network(section, environ, self._secrets, clock, varies=bool(self._url.places))
        self._where = f"{section.method} {self._secrets.hidden(section.url)}"

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Open its connections."""
        return self._network.opened()

    def warnings(self) -> list[str]:
        """What is probably not meant."""
        return []

    async def run(self, payload: Mapping[str, Any], context: Context) -> Any:
        """One task: one request."""
        values = values_of(payload, context)
        has_body = self._section.method not in WITHOUT_BODY
        request = self._network.request(
            self._section.method,
            address(self._url, self._query, values),
            headers={"accept": "application/json", **self._network.headers(values)},
            body=orjson.dumps(filled_body(self._section.body, values, self._environ)) if has_body else None,
        )
        async with self._network.answer(request, self._where, context) as response:
            body = await response.aread()
            if not body.strip():
                return None
            return result_at(read_json(body, "the answer"), self._section.result, "the answer")


def address(url: Template, query: Mapping[str, Template], values: Values) -> str:
    """The address for one task: every value quoted, so that it stays in its place.

    Raises :class:`BadRequest` for a value that would change the way: an empty one, ``.`` and ``..``.
    """
    for place in url.places:
        if not place.optional and str(values.find(place)) in ("", ".", ".."):
            raise BadRequest(f"the payload's {place} cannot stand in an address: {str(values.find(place))!r}")
    filled = url.filled(values, _quoted)
    if filled is None:
        names = ", ".join(str(place) for place in url.places if place.optional)
        raise BadRequest(f"the payload lacks one of {names}, which the address needs")
    parameters = [(name, text.filled(values)) for name, text in query.items()]
    written = "&".join(f"{_quoted(name)}={_quoted(text)}" for name, text in parameters if text is not None)
    parts = urlsplit(filled)
    return urlunsplit(parts._replace(query="&".join(part for part in (parts.query, written) if part)))


def _quoted(text: str) -> str:
    return quote(text, safe="")
