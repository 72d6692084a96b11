"""What callers import: tasks sent, their answers awaited, streamed, fetched later, cancelled.

The client is ``reach_worker.ReachClient``; here are the events of a stream, and the names of what the client gives.
"""

from reach_worker.calling.client import Cancellation, Handle
from reach_worker.calling.plain import PlainClient, PlainHandle
from reach_worker.core.lookup import Found
from reach_worker.core.stream_reading import Chunk, ChunksLost, Event, Progress, Rerouted, Result, Started

__all__ = [
    "Cancellation",
    "Chunk",
    "ChunksLost",
    "Event",
    "Found",
    "Handle",
    "PlainClient",
    "PlainHandle",
    "Progress",
    "Rerouted",
    "Result",
    "Started",
]
