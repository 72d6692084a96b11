"""Messages that are odd in every part, each with a number that is found again wherever the message ends.

The number stands in the body where that is possible, else in the correlation id of otherwise plain properties. The same
seed makes the same messages.
"""

import gzip
import json
import random  # noqa: TID251 - only with a seed: the same messages every time
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.bus.hostile_publisher import (
    ODD_HEADERS,
    ODD_TEXTS,
    ODD_VALUES,
    TIMESTAMPS,
    OddMessage,
    array,
    headers,
    nested,
    properties,
    short,
    table,
    text,
)

LIMIT: Final = 64 * 1024
"""The largest body that the router of these tests takes."""
FRAME: Final = 131_072 - 8


def mark(number: int) -> str:
    """What a message is known by."""
    return f"odd-{number:05d};"


def odd_tasks(seed: int, count: int, prefix: str) -> Iterator[OddMessage]:
    """So many. ``prefix``: of the router's own queues, which some of them name."""
    rng = random.Random(seed)
    for number in range(count):
        draw = rng.random()
        if draw < 0.4:
            yield OddMessage("properties", _odd_properties(rng, number, prefix), _pieces(_task(number)))
        elif draw < 0.8:
            body = _odd_body(rng, number)
            yield OddMessage("body", _plain_properties(rng, number), _pieces(body, rng), _odd_key(rng))
        else:
            body = _marked_body(rng, number)
            yield OddMessage("both", _odd_properties(rng, number, prefix), _pieces(body, rng), _odd_key(rng))


def _pieces(body: bytes, rng: random.Random | None = None) -> tuple[bytes, ...]:
    """The body in frames: as few as it takes, or oddly cut."""
    size = FRAME
    if rng is not None and rng.random() < 0.1 and len(body) < 500:
        size = rng.choice((1, 7, 100))
    return tuple(body[at : at + size] for at in range(0, len(body), size))


def _odd_key(rng: random.Random) -> bytes | None:
    return rng.choice(list(ODD_TEXTS.values())) if rng.random() < 0.1 else None


# ---- Bodies


def _task(number: int, **more: Any) -> bytes:
    return json.dumps(
        {"capability": "text.echo", "payload": {"text": mark(number)}, "task_id": mark(number), **more}
    ).encode()


ODD_JSON: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 1e308, -0.0, 0.5, float("nan"), float("inf"),
    "", " ", "x" * 201, "y" * 5000, "\0", "a\nb", "\x1b[2J", "\x7f", "\u202e", "\ud800", "🙈", "ﷺ" * 300, "Ünïcödé",
    "text.echo", "TEXT.ECHO", "../../etc/passwd", "{{7*7}}", "'; DROP TABLE tasks;--", "%s%n", "<b>", "__proto__",
    [], [[]], [None], ["x"] * 100, {}, {"": ""}, {"a": {"b": {"c": None}}}, {"text": 5}, {"text": None},
)  # fmt: skip
FIELDS: Final = (
    "capability", "payload", "task_id", "intent", "flow_id", "requires", "domain", "mode", "deadline_ms", "max_cost",
    "side_effects", "session_id", "metadata", "attachments", "schema_version", "paylod", "x", "", "🙈", "a" * 300,
)  # fmt: skip


def _odd_fields(rng: random.Random, number: int) -> bytes:
    """A task with odd values in some fields; ``metadata`` bears the number where nothing else does.

    No two have the same id: one of them would be a duplicate, which leaves nothing behind.
    """
    task: dict[str, Any] = json.loads(_task(number, metadata={"mark": mark(number)}))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        field, value = rng.choice(FIELDS), rng.choice(ODD_JSON)
        task[field] = value + mark(number) if field == "task_id" and isinstance(value, str) else value
    if mark(number) not in json.dumps(task):
        task["metadata"] = {"mark": mark(number)}
    return json.dumps(task, ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")


def _random_bytes(rng: random.Random, number: int) -> bytes:
    return rng.randbytes(rng.randrange(200)) + mark(number).encode() + rng.randbytes(rng.randrange(200))


def _spoilt(rng: random.Random, number: int) -> bytes:
    """A good task with some bytes changed."""
    body = bytearray(_task(number, flow_id="flow", deadline_ms=60_000))
    safe = range(body.index(mark(number).encode()), body.index(mark(number).encode()) + len(mark(number)))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(body))
        if at not in safe:
            body[at] = rng.randrange(256)
    return bytes(body)


def _deep(rng: random.Random, number: int) -> bytes:
    depth = rng.choice((100, 500, 900, 2_000, 20_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    if len(opening) * depth > LIMIT:
        depth = LIMIT // len(opening) // 2
    inside = opening * depth + b"1" + closing * depth
    return _task(number)[:-1] + b', "attachments": ' + inside + b"}"


def _of_size(rng: random.Random, number: int) -> bytes:
    size = rng.choice((LIMIT - 1, LIMIT, LIMIT + 1, 2 * LIMIT, 5 * LIMIT))
    return _task(number).ljust(size, rng.choice((b" ", b"\n", b"\0", b"x")))


def _twice(rng: random.Random, number: int) -> bytes:
    again = rng.choice((b'"capability": 5', b'"payload": []', b'"capability": "text.echo"'))
    return _task(number)[:-1] + b", " + again + b"}"


def _in_another_code(rng: random.Random, number: int) -> bytes:
    code = rng.choice(("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "utf-7"))
    return _task(number).decode().encode(code)


def _numbers(rng: random.Random, number: int) -> bytes:
    odd = rng.choice(
        (b"9" * 5000, b"1e999", b"-1e-999", b"0x10", b"01", b"1.", b"NaN", b"-Infinity", b"1" + b"0" * 400)
    )
    return b'{"capability": "text.echo", "payload": {"text": "%s", "n": %s}}' % (mark(number).encode(), odd)


def _many(rng: random.Random, number: int) -> bytes:
    """Very many of something."""
    much: dict[str, Any] = rng.choice(
        (
            {f"k{n}": n for n in range(3000)},
            {"requires": ["x"] * 2000},
            {"metadata": {str(n): "" for n in range(2000)}},
            {"attachments": [{}] * 2000},
        )
    )
    return _task(number, **much)


def _another_kind(rng: random.Random, number: int) -> bytes:
    """JSON that is no object, and what is no JSON at all."""
    word = mark(number)
    return rng.choice(
        (f'["{word}"]', f'"{word}"', word, f"<task>{word}</task>", f"--- {word}", f'{{"{word}": 1}}')
    ).encode()


MARKED: Final[tuple[Callable[[random.Random, int], bytes], ...]] = (
    _odd_fields, _odd_fields, _odd_fields, _odd_fields, _random_bytes, _spoilt, _spoilt, _deep, _twice,
    _in_another_code, _numbers, _another_kind,
)  # fmt: skip


def _marked_body(rng: random.Random, number: int) -> bytes:
    if rng.random() < 0.02:
        return rng.choice((_of_size, _many))(rng, number)
    return rng.choice(MARKED)(rng, number)


def _odd_body(rng: random.Random, number: int) -> bytes:
    """Also such as do not bear the number."""
    if rng.random() < 0.8:
        return _marked_body(rng, number)
    return rng.choice(
        (
            b"", b"\0", b"null", b"{}", b"[]", b"\xef\xbb\xbf", b"\xff\xfe", b"1", b'"', bytes(1000),
            gzip.compress(_task(number)), zlib.compress(_task(number)), rng.randbytes(rng.randrange(1, 3000)),
        )
    )  # fmt: skip


# ---- Properties


def _plain_properties(rng: random.Random, number: int) -> bytes:
    values = {"correlation_id": short(mark(number).encode()), "delivery_mode": b"\x02"}
    if rng.random() < 0.1:
        values["content_encoding"] = short(
            rng.choice((b"gzip", b"deflate", b"identity", b"utf-8", b"UTF-8", b"br"))
        )
    return properties(**values)


def _odd_properties(rng: random.Random, number: int, prefix: str) -> bytes:
    values: dict[str, bytes] = {"delivery_mode": bytes([rng.choice((1, 2, 2))])}
    odd: dict[str, Callable[[], bytes]] = {
        "message_id": lambda: short(mark(number).encode() + rng.choice(list(ODD_TEXTS.values()))[:240]),
        "correlation_id": lambda: _odd_text(rng),
        "reply_to": lambda: short(rng.choice(_addresses(prefix))),
        "content_type": lambda: _odd_text(rng),
        "content_encoding": lambda: _odd_text(rng),
        "message_type": lambda: _odd_text(rng),
        "app_id": lambda: _odd_text(rng),
        "cluster_id": lambda: _odd_text(rng),
        "priority": lambda: bytes([rng.choice((0, 1, 9, 10, 255))]),
        "timestamp": lambda: struct.pack(">Q", rng.choice(list(TIMESTAMPS.values()))),
        "headers": lambda: _odd_headers(rng, prefix),
    }
    for name in rng.sample(sorted(odd), rng.choice((1, 1, 2, 3, 5))):
        values[name] = odd[name]()
    if rng.random() < 0.02:
        values["delivery_mode"] = bytes([rng.choice((0, 3, 255))])
    if rng.random() < 0.05:
        values["expiration"] = short(
            rng.choice((b"0", b"1", b"50", b"60000", b"4294967295", b"abc", b"-1", b"1e3"))
        )
    if rng.random() < 0.01:
        values["user_id"] = short(rng.choice((b"guest", b"root", b"")))
    return properties(**values)


def _odd_text(rng: random.Random) -> bytes:
    return short(rng.choice(list(ODD_TEXTS.values())))


def _addresses(prefix: str) -> list[bytes]:
    """Where an answer might be asked to go: our own queues, names in other spellings, what is no queue at all."""
    ours = [
        f"{prefix}.{kind}"
        for kind in (
            "intake",
            "returns",
            "dlq",
            "unmatched",
            "retry.1000",
            "outcomes.router-1",
            "agent.echo",
            "lane.text.echo",
        )
    ]
    near = [
        prefix,
        prefix.upper() + ".dlq",
        f" {prefix}.dlq",
        f"{prefix}.dlq ",
        f"{prefix}.dlq\0",
        f"/{prefix}.dlq",
        "",
    ]
    other = [
        "nobody",
        "amq.rabbitmq.reply-to.nobody",
        "amq.rabbitmq.reply-to.g2dkABByZXBseUA=.x",
        "amq.direct",
        "#",
        "*",
    ]
    return [name.encode() for name in (*ours, *near, *other)] + list(ODD_TEXTS.values())


NAMES: Final = (
    b"x-reach-task", b"x-reach-first-seen", b"x-reach-attempts", b"x-reach-to-agent", b"x-reach-caller",
    b"x-reach-outcome", b"x-reach-dispatch", b"x-reach-owner", b"x-reach-life", b"x-reach-reply-to",
    b"x-reach-undecodable", b"x-reach-past", b"x-reach-reason", b"x-death", b"x-delivery-count", b"x-first-death-queue",
    b"x-match", b"CC", b"BCC", b"traceparent", b"tracestate", b"baggage", b"k", *ODD_TEXTS.values(),
)  # fmt: skip
SMALL: Final = tuple(value for value in ODD_VALUES.values() if len(value) < 1000)
_REFUSED: Final = ("not a number", "infinity", "unknown", "longer than", "cut short")
TAKEN: Final = tuple(
    value
    for name, value in ODD_VALUES.items()
    if value in SMALL and not any(word in name for word in _REFUSED)
)
"""What the broker passes on. It closes the connection over the others, so they are rare."""
LARGE: Final = tuple(value for value in ODD_VALUES.values() if len(value) >= 1000)


def _odd_headers(rng: random.Random, prefix: str) -> bytes:
    draw = rng.random()
    if draw < 0.1:
        return rng.choice(list(ODD_HEADERS.values()))
    if draw < 0.12:
        return headers((b"k", rng.choice(LARGE)))
    if draw < 0.3:
        return _forged(rng, prefix)
    return headers(*((rng.choice(NAMES), _value(rng, 3)) for _ in range(rng.randrange(1, 8))))


def _value(rng: random.Random, depth: int) -> bytes:
    match rng.randrange(10) if depth else 0:
        case 7:
            return array(*(_value(rng, depth - 1) for _ in range(rng.randrange(5))))
        case 8:
            return table(*((rng.choice(NAMES), _value(rng, depth - 1)) for _ in range(rng.randrange(5))))
        case 9:
            return nested(rng.randrange(1, 60), as_array=rng.random() < 0.5)
        case _:
            return rng.choice(SMALL if rng.random() < 0.005 else TAKEN)


def _forged(rng: random.Random, prefix: str) -> bytes:
    """Headers as a router would write them, of a task that somebody else may have."""
    said = {
        b"x-reach-task": text(b"victim"),
        b"x-reach-first-seen": b"l" + struct.pack(">q", 1),
        b"x-reach-caller": text(b"boss"),
        b"x-reach-capability": text(b"text.echo"),
        b"x-reach-reply-to": text(f"{prefix}.returns".encode()),
        b"x-reach-to-agent": text(b"nobody"),
        b"x-reach-deadline": b"l" + struct.pack(">q", rng.choice((1, 2**62))),
        b"x-reach-not-before": b"l" + struct.pack(">q", 2**62),
        b"x-reach-life": b"I\0\0\0\x07",
        b"x-reach-outcome": text(b"succeeded"),
        b"x-reach-dispatch": text(b"d"),
        b"x-reach-agent": text(b"echo"),
        b"x-reach-owner": text(b"router-1"),
        b"x-reach-reason": text(b"poison"),
        b"x-death": array(
            table((b"queue", text(f"{prefix}.lane.x".encode())), (b"reason", text(b"expired")))
        ),
        b"x-delivery-count": b"I\0\0\0\x63",
    }
    return headers(*rng.sample(sorted(said.items()), rng.randrange(3, len(said))))
