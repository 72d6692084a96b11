"""One HTTP client for an adapter: time limits, bounded answers, and what each way of breaking means."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import httpx

from reach_worker.adapters.endings import Failed, TimedOut
from reach_worker.adapters.http_status import Reading, problem_of
from reach_worker.adapters.secrets import Secrets
from reach_worker.adapters.section import NetworkSection, outcome_table
from reach_worker.adapters.templates import Template, Values, template
from reach_worker.adapters.to_the_end import to_the_end
from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import BadRequest, Unavailable
from reach_worker.core.outcome import OutcomeClass
from reach_worker.errors import OurBug
from reach_worker.ports import Clock

ERROR_BODY_S: Final = 2.0
ERROR_BODY_BYTES: Final = 65_536


class _Bounded(httpx.AsyncByteStream):
    """A body that may not be longer than so many bytes."""

    def __init__(self, stream: httpx.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._stream:
            seen += len(chunk)
            if seen > self._limit:
                raise Failed(f"the answer is longer than {self._limit} bytes (max_answer_bytes)")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class Network:
    """Sends requests for one adapter. Open it (``async with network.opened()``) before the first."""

    def __init__(
        self,
        section: NetworkSection,
        environ: Mapping[str, str],
        secrets: Secrets,
        clock: Clock,
        *,
        varies: bool,
    ) -> None:
        self._section = section
        self._secrets = secrets
        self._clock = clock
        self._headers = {name: template(text).within(environ) for name, text in section.headers.items()}
        self._reading = Reading(
            outcome_table(section.statuses), section.rest_s, section.longest_rest_s, address_varies=varies
        )
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The client, for all tasks; its connections are closed at the end."""
        timeout = httpx.Timeout(
            self._section.silence_timeout_s, connect=self._section.connect_timeout_s, pool=None
        )
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        headers = {"accept-encoding": "identity", "user-agent": "reach_worker"}
        async with httpx.AsyncClient(timeout=timeout, limits=limits, headers=headers) as self._client:
            yield
        self._client = None

    def headers(self, values: Values) -> dict[str, str]:
        """The file's headers for one task. Raises :class:`BadRequest` for values that no header can hold."""
        filled = {name: text.filled(values) for name, text in self._headers.items()}
        return {
            name: _safe(name, text, self._headers[name]) for name, text in filled.items() if text is not None
        }

    @asynccontextmanager
    async def answer(
        self, request: httpx.Request, where: str, context: Context
    ) -> AsyncIterator[httpx.Response]:
        """The answer's head; its body is to be read in the block. ``where``: for texts.

        Raises the attempt's ending for every answer that is no success, and for each way to get none.
        """
        limit = asyncio.timeout(context.seconds_left())
        with self._secrets.kept(where), self._in_our_words(context.timeout_s, limit):
            async with limit:
                response = await self._open_client().send(request, stream=True)
                try:
                    if isinstance(response.stream, httpx.AsyncByteStream):
                        response.stream = _Bounded(response.stream, self._section.max_answer_bytes)
                    await self._refuse(response)
                    yield response
                finally:
                    await to_the_end(response.aclose())

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> httpx.Request:
        """A request. Raises :class:`BadRequest` if the task made an address that is none."""
        given = {**headers, **({} if body is None else {"content-type": "application/json"})}
        try:
            return self._open_client().build_request(method, url, headers=given, content=body)
        except (httpx.InvalidURL, ValueError) as error:
            raise BadRequest(self._secrets.hidden(f"no request can be made of this task: {error}")) from None

    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            raise OurBug("an adapter ran before it was opened")
        return self._client

    async def _refuse(self, response: httpx.Response) -> None:
        usual = OutcomeClass.SUCCEEDED if response.is_success else None
        if self._reading.statuses.get(response.status_code, usual) is OutcomeClass.SUCCEEDED:
            return
        body = await _beginning(response)
        problem = problem_of(
            response.status_code, response.headers, body, self._reading, utc_us=self._clock.utc_us()
        )
        if problem is not None:
            raise problem

    @contextmanager
    def _in_our_words(self, seconds: float, limit: asyncio.Timeout) -> Iterator[None]:
        """Foreign errors as endings."""
        try:
            yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(f"no whole answer within {seconds:g} s") from None
        except (httpx.ConnectTimeout, httpx.ConnectError, ssl.SSLError) as error:
            raise Unavailable(f"cannot connect: {_words(error)}") from None
        except httpx.TimeoutException:
            raise TimedOut(f"silent for {self._section.silence_timeout_s:g} s") from None
        except httpx.TransportError as error:
            raise Unavailable(f"the connection broke: {_words(error)}") from None
        except httpx.HTTPError as error:
            raise Failed(_words(error)) from None


async def _beginning(response: httpx.Response) -> bytes:
    """What an error says, as far as it comes soon: the status counts, whatever becomes of the rest."""
    found = b""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(ERROR_BODY_S):
            async for chunk in response.aiter_bytes():
                found += chunk
                if len(found) >= ERROR_BODY_BYTES:
                    break
    return found


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _safe(name: str, text: str, given: Template) -> str:
    if text.isascii() and text.isprintable():
        return text
    if not given.places:
        raise Unavailable(f"the header {name} of the adapter holds what no header can; look at its variables")
    raise BadRequest(f"the header {name} would hold characters that no header can")
