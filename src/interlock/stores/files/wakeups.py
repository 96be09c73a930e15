"""What threads wait on in a folder; tasks have their own in `tasks`."""

import os
import select
from collections.abc import Callable, Iterable

from interlock.core.errors import StoreError
from interlock.core.queue import Granted
from interlock.stores.files.liveness import Liveness


class Wakeup:
    """A wake-up pipe, and the liveness pipes of the processes whose death matters to its waiter.

    Only the waiter itself closes its pipes: a descriptor that is closed under a waiter may be another file by the
    time it is read.

    Args:
        liveness: this process in the folder.
        given_back: called when nobody waits on it any more.
    """

    def __init__(self, liveness: Liveness, given_back: Callable[[], None]) -> None:
        self._liveness = liveness
        self._given_back = given_back
        self.pipe = liveness.pipe()
        self._watched = self.pipe.watched
        self._waiters: set[object] = set()
        self._ended = False

    def be_reachable(self) -> None:
        """See that others can ring, before they are told where: a wake-up pipe whose name is gone is replaced."""
        self.pipe = self._liveness.exchange(self.pipe)
        self._watched = self.pipe.watched

    def stand_in(self, waiters: set[object]) -> None:
        """Be counted among those of this process who wait in one line."""
        self._waiters = waiters
        waiters.add(self)

    def watch(self, tokens: Iterable[str]) -> None:
        """Be woken also by the death of these processes, and of no others."""
        wanted = {token for token in tokens if token != self._liveness.token}
        if not wanted and not self._watched:
            return
        for token in [token for token in self._watched if token not in wanted]:
            self._unwatch(token)
        for token in wanted:
            if token not in self._watched:
                fd = self._liveness.open_liveness_pipe(token)
                if fd is not None:
                    self._watched[token] = fd
                elif not self._liveness.is_alive(token):
                    self.wake()  # it died since the line was looked at: look again at once

    def _unwatch(self, token: str) -> None:
        os.close(self._watched.pop(token))

    def wake(self) -> None:
        """Make the waiter look again, from any thread; nothing happens if nobody waits any more."""
        self._liveness.wake(self.pipe)

    def end(self) -> None:
        """End the wait, from any thread: the waiter gets a StoreError."""
        self._ended = True
        self.wake()

    def _go_on(self) -> None:
        if self._ended:
            raise StoreError("this connection was closed while it waited for a lock: connect again")

    def close(self) -> None:
        """Give the pipe back."""
        self._waiters.discard(self)
        self._liveness.put_back(self.pipe)
        self._given_back()


class ThreadFileWakeup(Wakeup):
    """A wake-up for one thread."""

    def wait(self, seconds: float) -> Granted | None:
        """Block until told, until somebody watched dies, or until `seconds` have passed.

        Raises:
            StoreError: the store was closed.
        """
        self._go_on()
        fd = self.pipe.fd
        poll = select.poll()  # looked up each time: gevent and its like put their own there
        poll.register(fd, select.POLLIN)
        for each in self._watched.values():
            poll.register(each, 0)
        events = poll.poll(max(0.0, seconds) * 1000)
        # A process that has slept runs slowly: no more than this is done when it was simply told.
        if len(events) != 1 or events[0][0] != fd:
            gone = {each for each, _ in events if each != fd}
            for token in [token for token, each in self._watched.items() if each in gone]:
                self._unwatch(token)  # it would only report its death again and again
        granted = self.pipe.drain()
        self._go_on()
        return granted
