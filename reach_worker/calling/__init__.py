"""What callers import: tasks sent, their answers awaited, streamed, fetched later, taken back.

The client is ``reach_worker.ReachClient``; here are the events of a stream.
"""

from reach_worker.core.stream_reading import Chunk, ChunksLost, Event, Progress, Rerouted, Result, Started

__all__ = ["Chunk", "ChunksLost", "Event", "Progress", "Rerouted", "Result", "Started"]
