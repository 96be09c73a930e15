"""What asyncio tasks wait on in a folder."""

import asyncio

from interlock.errors import StoreError
from interlock.protocols.queue import Told
from interlock.stores.files.presence import Presence, Wakeup


class TaskWakeup(Wakeup):
    """A wake-up for one asyncio task."""

    async def wait(self, seconds: float) -> Told | None:
        """Wait until told, until somebody watched dies, or until `seconds` have passed."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        watched = list(self._watched.items())
        try:
            loop.add_reader(self.bell.fd, event.set)
            for token, fd in watched:
                loop.add_reader(fd, self._died, loop, token, fd, event)
        except NotImplementedError as error:
            raise StoreError("file:// needs an event loop with add_reader, e.g. asyncio's default") from error
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(self.bell.fd)
            for _, fd in watched:
                loop.remove_reader(fd)
        for token, _ in watched:
            if token in self._gone:
                self._unwatch(token)
        self._gone.clear()
        return self.bell.drain()

    def __init__(self, presence: Presence) -> None:
        super().__init__(presence)
        self._gone: set[str] = set()

    def _died(self, loop: asyncio.AbstractEventLoop, token: str, fd: int, event: asyncio.Event) -> None:
        self._gone.add(token)
        loop.remove_reader(fd)
        event.set()
