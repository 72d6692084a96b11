"""What an attempt says to its caller while it runs: chunks and progress, in order, bounded, confirmed.

In a race nothing reaches the caller before this one has won: its first chunk is announced to its router, which tells it
to go on, or takes it back.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

import orjson

from reach_worker.agent.outcomes import Cancelled
from reach_worker.agent.plain_json import plain
from reach_worker.core.dispatch import OUTCOME, SPOKE_NOTE, Dispatch
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.streaming import Speaker, StreamPolicy
from reach_worker.core.task import Task
from reach_worker.ports import Bus, Clock, Sent

AGAIN_S: Final = 0.2
ASK_AGAIN_S: Final = 1.0


class StreamError(ValueError):
    """A chunk that is no JSON or too large, or one too many. A handler that lets it pass ends as ``failed``."""


class Voice:
    """One attempt's way to its caller. ``heard``: he asked for chunks, and there is a queue for them."""

    def __init__(
        self, dispatch: Dispatch, task: Task, names: Names, speech: "Speech", policy: StreamPolicy
    ) -> None:
        self._dispatch, self._names = dispatch, names
        self._speech, self._policy = speech, policy
        self.heard = bool(task.stream and dispatch.envelope.reply_to)
        self.may_go = not dispatch.envelope.race
        self._note_due: float | None = None
        self._pending: deque[Message] = deque()
        self._waiting_bytes = 0
        self._chunks = self._bytes = 0
        self._progress_at = self._again_at = float("-inf")
        self._closed = False
        self._moved: asyncio.Event | None = None

    @property
    def chunks(self) -> int:
        """So many were said to the caller, if somebody listens."""
        return self._chunks if self.heard else 0

    # -- for the handler

    async def stream(self, chunk: Any) -> None:
        """Send a chunk; waits while too many are not confirmed. Raises :class:`StreamError` and :class:`Cancelled`."""
        self._still_wanted()
        body = _as_json(chunk, self._policy)
        self._count(len(body))
        if not self.may_go and self._note_due is None:
            self._note_due = float("-inf")
            self._speech.take(self)
        await self._room()
        if not self.heard:
            return
        if self._chunks == 1:
            self._put(self._speaker.started())
        self._put(self._speaker.chunk(self._chunks - 1, body))

    async def progress(self, fraction: float | None, note: str, now: float) -> None:
        """Tell how far it is, unless that was told just now. It is no chunk: in a race it wins nothing."""
        self._still_wanted()
        if fraction is not None and not 0 <= fraction <= 1:
            raise StreamError(f"progress is a fraction from 0 to 1, or None, not {fraction!r}")
        if not self.heard or not self.may_go or now - self._progress_at < self._policy.progress_s:
            return
        await self._room()
        self._progress_at = now
        self._put(self._speaker.progress(fraction, note))

    # -- for the worker

    def go(self) -> None:
        """It has won its race: what it has said may reach the caller."""
        self.may_go = True
        self._note_due = None
        self._wake()
        self._speech.take(self)

    def silence(self) -> None:
        """Nothing more is to be said: whoever waits to say something gets :class:`Cancelled`."""
        self._closed = True
        self._forget()

    async def flush(self) -> None:
        """Wait until the broker has all that was said. What it does not take in ``flush_s`` is given up."""
        try:
            async with asyncio.timeout(self._policy.flush_s):
                while self._pending:
                    await self._change()
        except TimeoutError:
            self._forget()

    # -- for the sender

    def next_messages(self, now: float) -> list[Message]:
        """What is to be sent now, in order."""
        if self.may_go:
            return list(self._pending) if now >= self._again_at else []
        if self._closed or self._note_due is None or now < self._note_due:
            return []
        self._note_due = now + ASK_AGAIN_S
        return [self._note]

    def took(self, batch: Sequence[Message], results: Sequence[Sent], now: float) -> None:
        """What became of :meth:`next_messages`: from the first one on that was not confirmed all is sent again.

        Meanwhile the race may have been won, or all been given up: of what waits only what was sent is done with.
        """
        if batch[0] is self._note:
            if Sent.UNROUTABLE in results:
                self._note = replace(self._note, routing_key=self._names.returns)
            return
        for message, result in zip(batch, results, strict=True):
            if not self._pending or self._pending[0] is not message:
                break
            if result is not Sent.CONFIRMED:
                self._again_at = now + AGAIN_S
                break
            self._waiting_bytes -= len(self._pending.popleft().body)
        if Sent.UNROUTABLE in results:  # nobody listens any more
            self.heard = False
            self._forget()
        self._wake()

    @property
    def idle(self) -> bool:
        """It has nothing to send."""
        return self._closed or not (self._pending or self._note_due is not None)

    @property
    def unsent(self) -> bool:
        """Something that was said waits for the broker's word."""
        return bool(self._pending)

    # -- inside; most attempts say nothing, so what it takes to say something is made with the first word

    @cached_property
    def _speaker(self) -> Speaker:
        envelope = self._dispatch.envelope
        return Speaker(
            envelope.group or envelope.task_id,
            envelope.flow_id,
            self._dispatch.agent_id,
            envelope.group_round or envelope.next_attempt,
            self._dispatch.dispatch_id,
        )

    @cached_property
    def _note(self) -> Message:
        """To the router that leads the race; another one may have sent this leg."""
        headers = {**self._dispatch.headers(), OUTCOME: SPOKE_NOTE}
        leader = self._dispatch.envelope.group_owner or self._dispatch.owner
        return Message(self._names.outcomes(leader), b"", headers)

    def _still_wanted(self) -> None:
        if self._closed:
            raise Cancelled("the attempt is over: nobody waits for what it says")

    def _count(self, size: int) -> None:
        self._chunks += 1
        self._bytes += size
        policy = self._policy
        if self._chunks > policy.max_chunks:
            raise StreamError(f"more than {policy.max_chunks} chunks (streaming.max_chunks)")
        if self._bytes > policy.max_bytes:
            raise StreamError(f"more than {policy.max_bytes} bytes of chunks (streaming.max_bytes)")

    async def _room(self) -> None:
        full = self._policy.chunk_bytes * 2
        while len(self._pending) >= self._policy.ahead or self._waiting_bytes >= full:
            await self._change()
            self._still_wanted()

    def _put(self, body: bytes) -> None:
        to, mark = self._dispatch.envelope.reply_to or "", self._dispatch.envelope.correlation_id
        self._pending.append(Message(to, body, correlation_id=mark, persistent=False))
        self._waiting_bytes += len(body)
        self._speech.take(self)

    def _forget(self) -> None:
        self._pending.clear()
        self._waiting_bytes = 0
        self._wake()

    async def _change(self) -> None:
        """Wait until there may be less to send."""
        if self._moved is None:
            self._moved = asyncio.Event()
        self._moved.clear()
        await self._moved.wait()

    def _wake(self) -> None:
        if self._moved is not None:
            self._moved.set()


class Speech:
    """Sends what the attempts of one worker say, all of them together."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._voices: dict[int, Voice] = {}
        self._work = asyncio.Event()

    def take(self, voice: Voice) -> None:
        """It has something to say."""
        self._voices[id(voice)] = voice
        self._work.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if self._voices else None):
                    await self._work.wait()
            self._work.clear()
            await self._send()
            self._voices = {key: voice for key, voice in self._voices.items() if not voice.idle}

    async def _send(self) -> None:
        """Send what there is."""
        now = self._clock.monotonic()
        batches = [(voice, voice.next_messages(now)) for voice in self._voices.values()]
        messages = [message for _, batch in batches for message in batch]
        results = iter(await self._bus.publish(messages) if messages else ())
        for voice, batch in batches:
            if batch:
                voice.took(batch, list(islice(results, len(batch))), now)


def _as_json(chunk: Any, policy: StreamPolicy) -> bytes:
    try:
        body = orjson.dumps(chunk, default=plain)
    except TypeError as error:
        raise StreamError(f"a chunk must be JSON: {error}") from error
    if len(body) > policy.chunk_bytes:
        raise StreamError(
            f"a chunk has {len(body)} bytes, the limit is {policy.chunk_bytes} (streaming.chunk_bytes)"
        )
    return body
