"""What asyncio tasks of one process wait on."""

import asyncio
from typing import Any


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class TaskBell:
    """A wake-up for one asyncio task."""

    __slots__ = ("_event", "_loop", "_message")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._message: Any = None

    def tell(self, message: Any = None) -> None:
        """Wake the waiter, from any thread; a message is kept until it is read."""
        if message is not None:
            self._message = message
        if _running_loop() is self._loop:
            self._event.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            pass  # its loop is closed: nobody waits there any more

    async def wait(self, seconds: float) -> Any:
        """Wait until told or until `seconds` have passed; return the message or None."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()
        message, self._message = self._message, None
        return message

    def wake(self) -> None:
        """Let the waiter look again, from any thread."""
        self.tell()

    def close(self) -> None:
        """Nothing to give back."""
