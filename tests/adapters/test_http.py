"""An HTTP endpoint as an agent, against a real server: what is asked, and what each answer means."""

import asyncio
import socket
from typing import Any

import pytest

from reach_worker.adapters import http_agent
from reach_worker.adapters.agents import AdapterAgent
from reach_worker.agent.outcomes import AgentOutcome
from reach_worker.core.outcome import OutcomeClass
from tests.adapters.attempts import MANIFEST, attempt, ending_of, result_of
from tests.adapters.web import Request, Web, a_moment, reply, send_chunk, send_head, web


def agent(url: str, environ: dict[str, str] | None = None, **section: Any) -> AdapterAgent:
    return http_agent(MANIFEST, environ=environ or {}, url=url, **section)


async def answered(payload: dict[str, Any], path: str = "/", **section: Any) -> tuple[Any, Request]:
    """The result of a task, and what the server was asked."""
    environ = section.pop("environ", {})
    async with web(reply({"fine": True})) as site:
        result = await result_of(agent(site.url + path, environ, **section), payload)
    return result, site.requests[0]


async def test_the_payload_is_the_body_and_the_answer_is_the_result() -> None:
    result, asked = await answered({"text": "Grüße", "n": [1, None]})
    assert result == {"fine": True}
    assert (asked.method, asked.target, asked.json()) == ("POST", "/", {"text": "Grüße", "n": [1, None]})
    assert asked.headers["content-type"] == "application/json"


async def test_fields_of_the_payload_stand_in_the_address_and_stay_in_their_place() -> None:
    _, asked = await answered(
        {"city": "a/b?c#d%2F é", "unit": "K&x=1", "days": 3},
        "/now/{city}/x?fixed=1",
        method="GET",
        query={"unit": "{unit}", "days": "{days}", "lang": "{lang?}"},
    )
    assert asked.method == "GET"
    assert asked.target == "/now/a%2Fb%3Fc%23d%252F%20%C3%A9/x?fixed=1&unit=K%26x%3D1&days=3"
    assert asked.body == b""


@pytest.mark.parametrize("city", ["", ".", ".."])
async def test_a_field_that_would_change_the_way_is_refused(city: str) -> None:
    async with web(reply()) as site:
        kind, words = await ending_of(agent(f"{site.url}/v1/{{city}}"), {"city": city})
    assert (kind, site.requests) == (OutcomeClass.BAD_REQUEST, [])
    assert "city" in words


async def test_a_field_that_is_missing_is_the_callers_fault() -> None:
    async with web(reply()) as site:
        kind, words = await ending_of(agent(f"{site.url}/v1/{{city}}"), {"town": "x"})
    assert (kind, site.requests) == (OutcomeClass.BAD_REQUEST, [])
    assert "the payload has no city" in words


async def test_a_body_with_places() -> None:
    _, asked = await answered(
        {"a": {"b": [1, 2]}, "name": "N"},
        body={
            "deep": {"all": "{a.b}", "first": "{a.b.0}", "said": "{{{name}}} is {a.b}"},
            "no": "{none?}",
            "n": 1,
        },
    )
    assert asked.json() == {"deep": {"all": [1, 2], "first": 1, "said": "{N} is [1,2]"}, "n": 1}


async def test_headers_come_from_the_environment_and_from_the_attempt() -> None:
    headers = {"Authorization": "Bearer ${KEY}", "Idempotency-Key": "{@task_id}", "X-None": "{none?}"}
    _, asked = await answered({}, headers=headers, environ={"KEY": "secret-1"})
    assert asked.headers["authorization"] == "Bearer secret-1"
    assert asked.headers["idempotency-key"] == "t1"
    assert "x-none" not in asked.headers


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "naïve", "a\0"])
async def test_no_field_makes_a_header_of_its_own(value: str) -> None:
    async with web(reply()) as site:
        kind, _ = await ending_of(agent(site.url, headers={"X-Name": "{name}"}), {"name": value})
    assert (kind, site.requests) == (OutcomeClass.BAD_REQUEST, [])


async def test_what_came_from_the_environment_shows_in_no_error() -> None:
    async with web(reply({"error": {"message": "no such key: secret-1"}}, 401)) as site:
        section = {"headers": {"Authorization": "${KEY}"}, "query": {"k": "${KEY}"}}
        kind, words = await ending_of(agent(site.url, {"KEY": "secret-1"}, **section))
    assert kind is OutcomeClass.UNAVAILABLE
    assert "secret-1" not in words
    assert "the agent's key or its header is wrong: no such key: ***" in words


async def test_a_part_of_the_answer() -> None:
    async with web(reply({"data": [{"x/y": 5}]})) as site:
        assert await result_of(agent(site.url, result="/data/0/x~1y")) == 5
        kind, words = await ending_of(agent(site.url, result="/data/1"))
    assert (kind, "nothing at /data/1" in words) == (OutcomeClass.FAILED, True)


async def test_an_empty_answer_is_null() -> None:
    async with web(reply(raw=b"", status=204)) as site:
        assert await result_of(agent(site.url)) is None


STATUSES = [
    (302, OutcomeClass.FAILED),
    (400, OutcomeClass.BAD_REQUEST),
    (401, OutcomeClass.UNAVAILABLE),
    (403, OutcomeClass.UNAVAILABLE),
    (404, OutcomeClass.UNAVAILABLE),
    (405, OutcomeClass.UNAVAILABLE),
    (407, OutcomeClass.UNAVAILABLE),
    (408, OutcomeClass.TIMEOUT),
    (409, OutcomeClass.BAD_REQUEST),
    (410, OutcomeClass.UNAVAILABLE),
    (413, OutcomeClass.BAD_REQUEST),
    (422, OutcomeClass.BAD_REQUEST),
    (425, OutcomeClass.UNAVAILABLE),
    (429, OutcomeClass.RATE_LIMITED),
    (500, OutcomeClass.FAILED),
    (501, OutcomeClass.UNAVAILABLE),
    (502, OutcomeClass.UNAVAILABLE),
    (503, OutcomeClass.UNAVAILABLE),
    (504, OutcomeClass.UNAVAILABLE),
    (507, OutcomeClass.FAILED),
    (529, OutcomeClass.UNAVAILABLE),
]


@pytest.mark.parametrize(("status", "kind"), STATUSES)
async def test_what_a_status_means(status: int, kind: OutcomeClass) -> None:
    async with web(reply({"detail": "these words"}, status)) as site:
        found, words = await ending_of(agent(site.url))
    assert found is kind
    assert f"HTTP {status}" in words
    assert "these words" in words


@pytest.mark.parametrize("status", [404, 410])
async def test_what_is_not_there_is_the_callers_fault_where_the_address_varies(status: int) -> None:
    async with web(reply({}, status)) as site:
        kind, _ = await ending_of(agent(f"{site.url}/users/{{id}}"), {"id": 7})
    assert kind is OutcomeClass.BAD_REQUEST


async def test_a_table_in_the_file_has_the_last_word() -> None:
    statuses = {"409": "succeeded", "200": "rejected"}
    async with web(reply({"was": "there"}, 409)) as site:
        assert await result_of(agent(site.url, statuses=statuses)) == {"was": "there"}
    async with web(reply({})) as site:
        kind, _ = await ending_of(agent(site.url, statuses=statuses))
    assert kind is OutcomeClass.REJECTED


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 10),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0),
        ({"retry-after": "9999999"}, 3600),
        ({"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"}, 3600),
        ({"retry-after": "soon"}, 5),
        ({"retry-after": "-3"}, 5),
        ({"retry-after": "nan"}, 5),
        ({}, 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("status", [429, 503, 529])
async def test_how_long_it_rests(headers: dict[str, str], seconds: float, status: int) -> None:
    async with web(reply({}, status, headers=headers)) as site:
        with pytest.raises(AgentOutcome) as found:
            await result_of(agent(site.url))
    readable = headers and headers["retry-after"] not in ("soon", "-3", "nan")
    if status != 429 and not readable:
        assert found.value.kind is OutcomeClass.UNAVAILABLE
    else:
        assert (found.value.kind, found.value.retry_after_s) == (OutcomeClass.RATE_LIMITED, seconds)


async def test_a_status_counts_however_long_its_words_are() -> None:
    async def endless(_: Request, writer: asyncio.StreamWriter) -> None:
        await send_head(writer, 429, {"transfer-encoding": "chunked", "retry-after": "3"})
        while True:
            await send_chunk(writer, b"x" * 65_536)

    async with web(endless) as site:
        kind, words = await ending_of(agent(site.url))
    assert kind is OutcomeClass.RATE_LIMITED
    assert len(words) < 500


# ---- Trouble


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    kind, words = await ending_of(agent(f"http://127.0.0.1:{port}/"))
    assert kind is OutcomeClass.UNAVAILABLE
    assert "cannot connect" in words


async def test_there_is_no_such_host() -> None:
    kind, words = await ending_of(agent("http://no-such-host.invalid/"))
    assert kind is OutcomeClass.UNAVAILABLE
    assert "cannot connect" in words


async def test_it_speaks_no_tls() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kind, words = await ending_of(agent(f"https://127.0.0.1:{port}/"))
    assert kind is OutcomeClass.UNAVAILABLE
    assert "cannot connect" in words
    assert "SSL" in words


async def test_it_hangs_up_in_the_middle() -> None:
    async def half(_: Request, writer: asyncio.StreamWriter) -> None:
        await send_head(writer, 200, {"content-length": "100"})
        writer.write(b'{"half":')
        await writer.drain()
        writer.close()

    async with web(half) as site:
        kind, words = await ending_of(agent(site.url))
    assert kind is OutcomeClass.UNAVAILABLE
    assert "the connection broke" in words


async def test_it_hangs_up_without_a_word() -> None:
    async def nothing(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with web(nothing) as site:
        kind, _ = await ending_of(agent(site.url))
    assert kind is OutcomeClass.UNAVAILABLE


async def test_it_speaks_no_http() -> None:
    async def strange(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-whatever\r\n\r\n")
        await writer.drain()
        writer.close()

    async with web(strange) as site:
        kind, _ = await ending_of(agent(site.url))
    assert kind is OutcomeClass.UNAVAILABLE


@pytest.mark.parametrize("raw", [b"<html>Please log in</html>", b'{"a":', b"\xff\xfe", b"NaN"])
async def test_an_answer_that_is_no_json(raw: bytes) -> None:
    async with web(reply(raw=raw)) as site:
        kind, words = await ending_of(agent(site.url))
    assert kind is OutcomeClass.FAILED
    assert "no JSON, it begins" in words


async def test_an_answer_that_is_too_long_is_not_read_to_its_end() -> None:
    sent = 0

    async def huge(_: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await send_head(writer, 200, {"transfer-encoding": "chunked"})
        while True:
            await send_chunk(writer, b"x" * 65_536)
            sent += 65_536

    async with web(huge) as site:
        kind, words = await ending_of(agent(site.url, max_answer_bytes=1_000_000))
        await asyncio.wait_for(site.gone.wait(), 10)
    assert kind is OutcomeClass.FAILED
    assert "longer than 1000000 bytes" in words
    assert sent < 50_000_000


async def drip(_: Request, writer: asyncio.StreamWriter) -> None:
    """An answer that never ends, a byte at a time."""
    await send_head(writer, 200, {"transfer-encoding": "chunked"})
    while True:
        await send_chunk(writer, b" ")
        await a_moment()


async def silence(_: Request, __: asyncio.StreamWriter) -> None:
    """No answer at all."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("slow", [drip, silence])
async def test_it_takes_longer_than_the_attempt_may(slow: Any) -> None:
    async with web(slow) as site:
        kind, words = await ending_of(agent(site.url), context=attempt(1.5))
        await asyncio.wait_for(site.gone.wait(), 10)
    assert kind is OutcomeClass.TIMEOUT
    assert "within 1.5 s" in words


async def test_it_says_nothing_for_too_long() -> None:
    async with web(silence) as site:
        kind, words = await ending_of(agent(site.url, silence_timeout_s=0.1))
    assert kind is OutcomeClass.TIMEOUT
    assert "silent for 0.1 s" in words


async def test_a_cancelled_task_hangs_up() -> None:
    async with web(silence) as site, asyncio.TaskGroup() as group:
        running = group.create_task(result_of(agent(site.url)))
        await until_asked(site)
        running.cancel()
        await asyncio.wait_for(site.gone.wait(), 10)
    assert running.cancelled()


async def until_asked(site: Web) -> None:
    while not site.requests:
        await a_moment()


async def test_one_client_for_all_tasks_and_no_connection_after_them() -> None:
    async with web(reply({})) as site:
        one = agent(site.url)
        async with one.adapter.opened():
            for _ in range(5):
                await one.adapter.run({}, attempt())
            assert site.connections == 1
        await asyncio.wait_for(site.gone.wait(), 10)
