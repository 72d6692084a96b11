"""What an agent tells the caller while it works: chunks, progress, and who it is that speaks.

A caller asks for it with the task field ``stream``. Everything goes straight from the agent to the caller's queue, as
JSON objects with ``final: false``; all of them are confirmed before the outcome is sent, so the answer comes after.
``run`` names the dispatch: a task that is routed again begins a new run, which says ``started`` before its first
chunk, and a reader leaves the chunks of any other run. ``seq`` counts a run's chunks from 0; what the broker did not take
is sent again from there on, so a reader takes a run's chunks in order and leaves those that are not next.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field

STARTED: Final = "started"
STREAMING: Final = "streaming"
PROGRESS: Final = "progress"
"""What the field ``status`` of such a message says."""

RUN_DIGITS: Final = 12
"""The last ones of a dispatch's id: its first ones tell the time."""

NOTE_LIMIT: Final = 500


class StreamPolicy(BaseModel):
    """How much an attempt may say to its caller while it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    chunk_bytes: int = Field(256 * 1024, ge=1024, description="largest chunk, bytes of JSON")
    max_chunks: int = Field(100_000, ge=1, description="chunks of one attempt")
    max_bytes: int = Field(64 * 1024 * 1024, ge=1024, description="bytes of all chunks of one attempt")
    ahead: int = Field(
        64, ge=1, le=10_000, description="chunks that the broker has not confirmed; then the handler waits"
    )
    flush_s: float = Field(
        10.0,
        gt=0,
        le=600,
        description="so long an outcome waits for its chunks at most, seconds; then they are lost",
    )
    progress_s: float = Field(
        0.25, ge=0, le=60, description="progress is told this often at most, seconds between"
    )


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who speaks, and of what."""

    task_id: str
    flow_id: str
    agent_id: str
    attempt: int
    dispatch_id: str

    def started(self) -> bytes:
        """The first message of a run."""
        return orjson.dumps(self._head(STARTED))

    def chunk(self, seq: int, chunk: bytes) -> bytes:
        """One chunk, which is JSON already."""
        return orjson.dumps({**self._head(STREAMING), "seq": seq, "chunk": orjson.Fragment(chunk)})

    def progress(self, fraction: float | None, note: str) -> bytes:
        """How far it is: a fraction in [0, 1] if that is known, and some words."""
        return orjson.dumps({**self._head(PROGRESS), "progress": fraction, "note": note[:NOTE_LIMIT]})

    def _head(self, status: str) -> dict[str, Any]:
        return {
            "task_id": self.task_id,
            "flow_id": self.flow_id,
            "status": status,
            "final": False,
            "agent": self.agent_id,
            "attempt": self.attempt,
            "run": self.dispatch_id[-RUN_DIGITS:],
        }
