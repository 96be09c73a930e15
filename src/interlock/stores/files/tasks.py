"""What asyncio tasks wait on in a folder."""

import asyncio
from collections.abc import Callable

from interlock.core.errors import StoreError
from interlock.core.queue import Granted
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.wakeups import Wakeup


class TaskFileWakeup(Wakeup):
    """A wake-up for one asyncio task."""

    def __init__(self, liveness: Liveness, given_back: Callable[[], None]) -> None:
        super().__init__(liveness, given_back)
        self._gone: set[str] = set()

    async def wait(self, seconds: float) -> Granted | None:
        """Wait until told, until somebody watched dies, or until `seconds` have passed.

        Raises:
            StoreError: the store was closed, or the loop can't watch files.
        """
        self._go_on()
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        readers: list[int] = []
        timer = loop.call_later(max(0.0, seconds), _set, woken)
        try:
            loop.add_reader(self.pipe.fd, _set, woken)
            readers.append(self.pipe.fd)
            for token, fd in self._watched.items():
                loop.add_reader(fd, self._died, loop, token, fd, woken)
                readers.append(fd)
            await woken
        except NotImplementedError as error:
            raise StoreError("file:// needs an event loop with add_reader, e.g. asyncio's default") from error
        finally:
            timer.cancel()
            for fd in readers:
                loop.remove_reader(fd)
        for token in self._gone:
            self._unwatch(token)  # it would only report its death again and again
        self._gone.clear()
        granted = self.pipe.drain()
        self._go_on()
        return granted

    def _died(self, loop: asyncio.AbstractEventLoop, token: str, fd: int, woken: "asyncio.Future[None]") -> None:
        self._gone.add(token)
        loop.remove_reader(fd)
        _set(woken)


def _set(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
