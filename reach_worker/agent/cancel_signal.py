"""The flag that tells a handler to stop, for threads and for coroutines."""

import asyncio
import threading


class CancelSignal(threading.Event):
    """A ``threading.Event`` that coroutines can wait for too. It may be set from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def set(self) -> None:
        super().set()
        with self._lock:
            for woken, loop in self._waiting.items():
                loop.call_soon_threadsafe(woken.set)
            self._waiting.clear()

    async def wait_async(self) -> None:
        """Wait until it is set; at once where it is."""
        woken = asyncio.Event()
        with self._lock:
            if self.is_set():
                return
            self._waiting[woken] = asyncio.get_running_loop()
        try:
            await woken.wait()
        finally:
            with self._lock:
                self._waiting.pop(woken, None)
