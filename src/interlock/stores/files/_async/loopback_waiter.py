"""A waiter that datagrams and the death watch wake."""

from interlock.core.queue import Granted
from interlock.runtime import _aio as rt
from interlock.stores.files.loopback import Loopback, LoopbackWaiting


class AsyncLoopbackWaiter(LoopbackWaiting):
    """A waiter of one claim.

    Args:
        loopback: the notifications of the queue.
    """

    __slots__ = ("_waiter",)

    def __init__(self, loopback: Loopback) -> None:
        super().__init__(loopback)
        self._waiter: rt.AsyncWaiter[Granted] = rt.AsyncWaiter()

    def wake(self, message: Granted | None = None) -> None:
        """Wake the waiter, from any thread; it keeps the last message until the next `wait`."""
        self._waiter.wake(message)

    async def wait(self, seconds: float) -> Granted | None:
        """Wait until notified, until a watched process dies, or until `seconds` have passed."""
        return await self._waiter.wait(seconds)
