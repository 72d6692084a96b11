"""Saying that an instance is there: heartbeats, and the manifest to whoever asks."""

from collections.abc import Callable

from reach_worker.core.announcement import beat_body, manifest_key, presence_key
from reach_worker.core.manifest import Manifest
from reach_worker.core.message import Message
from reach_worker.core.presence import Heartbeat
from reach_worker.ports import Clock, ConsumingBus


class Announcer:
    """Heartbeats of one instance. ``state`` tells its slots, what it runs at the moment, and how many runs have ended.

    ``subscription``: what it consumes dispatches by.
    """

    def __init__(
        self,
        manifest: Manifest,
        instance_id: str,
        events: str,
        bus: ConsumingBus,
        state: Callable[[], tuple[int, tuple[str, ...], int]],
        subscription: str = "work",
    ) -> None:
        self._manifest = manifest
        self._instance_id = instance_id
        self._events = events
        self._bus = bus
        self._state = state
        self._subscription = subscription
        self._introduced_as = ""
        self._stopping = False

    async def introduce(self) -> None:
        """Heartbeat first, then the manifest: who hears it knows whom it is from."""
        self._introduced_as = self._bus.mailbox
        await self.beat()
        await self._say(manifest_key(self._manifest.id), self._manifest.declaration.encode())

    async def beat(self, *, stopping: bool = False) -> None:
        """One heartbeat; with ``stopping`` it says goodbye, and from then on every other one does so too.

        What still runs is listed to the last: it is nobody's to run again.
        """
        self._stopping = self._stopping or stopping
        capacity, running, completed = self._state()
        beat = Heartbeat(
            agent_id=self._manifest.id,
            instance_id=self._instance_id,
            mailbox=self._bus.mailbox,
            capacity=capacity,
            running=running,
            manifest_hash=self._manifest.hash,
            version=self._manifest.version,
            stopping=self._stopping,
            completed=completed,
            consuming=self._bus.consumes(self._subscription),
        )
        await self._say(presence_key(self._manifest.id), beat_body(beat))

    async def beat_forever(self, clock: Clock, heartbeat_s: float) -> None:
        """A heartbeat every ``heartbeat_s`` seconds; with a new mailbox (a new session) an introduction."""
        while True:
            await clock.sleep(heartbeat_s)
            await (self.beat() if self._bus.mailbox == self._introduced_as else self.introduce())

    async def _say(self, key: str, body: bytes) -> None:
        message = Message(key, body, {}, self._events, persistent=False, mandatory=False)
        await self._bus.publish([message])
