"""What a worker takes from the settings."""

from dataclasses import dataclass, field

from reach_worker.core.call_limits import CallPolicy
from reach_worker.core.slots import SlotPolicy
from reach_worker.core.streaming import StreamPolicy


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """The worker's share of the settings. Times in seconds. No delivery is held for half of ``consumer_timeout_s``."""

    heartbeat_s: float = 3.0
    grace_s: float = 20.0
    max_body_bytes: int = 8 * 1024 * 1024
    slots: SlotPolicy = field(default_factory=SlotPolicy)
    consumer_timeout_s: float = 1800.0
    streaming: StreamPolicy = field(default_factory=StreamPolicy)
    calls: CallPolicy = field(default_factory=CallPolicy)
