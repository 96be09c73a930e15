"""How many connections a process has to one server: a caller that finds none waits, first come, first served."""

import random
import threading
from collections import deque
from time import monotonic
from typing import Any
from weakref import ref

MOST = 32  # connections to a server, unless the URL or the client says otherwise
IDLE = 60.0  # seconds without use, after which a connection is closed
PAUSE = 0.1  # seconds at most, until a server that has too many connections is asked for one again
LOOK_AGAIN = 0.1  # seconds; an interrupt at an unlucky moment may have lost a wake-up


class Permit:
    """Room for one connection; free again as soon as nobody refers to it, so that no interrupt can lose it."""

    __slots__ = ("__weakref__",)


class _Waiter:
    __slots__ = ("found", "lock", "urgent")

    def __init__(self, urgent: bool) -> None:
        self.urgent = urgent
        self.found: Any = None
        self.lock = threading.Lock()
        self.lock.acquire()


class ConnectionLimit:
    """The idle connections to a server, and the room for more of them.

    Args:
        most: so many connections at once.

    Attributes:
        idle: connections that nobody uses; the last one used is the last.
        waiting: threads that wait for one; whoever puts one back while there are any calls `serve`.
        tidy_at: when to look for connections that were idle for long; monotonic.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.idle: list[Any] = []
        self.tidy_at = 0.0
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.closed = self._full = False
        self._asks_at = 0.0
        self.waiting: deque[_Waiter] = deque()
        self._permits: set[ref[Permit]] = set()
        # Re-entrant: a signal handler, or the garbage collector, may come here in the middle of any step.
        self._mutex = threading.RLock()

    def take(self, urgent: bool, end: float) -> Any:
        """Return an idle connection, or the permit for a new one.

        Args:
            urgent: before those that are not: a release or a renewal does not wait for those who want more.
            end: wait until then; monotonic.

        Returns:
            None if there was none in time, or it was closed.
        """
        if not self.waiting:
            try:
                return self.idle.pop()
            except IndexError:
                pass
        waiter = _Waiter(urgent)
        with self._mutex:
            self.waiting.insert(sum(each.urgent for each in self.waiting) if urgent else len(self.waiting), waiter)
        try:
            self.serve()
            while waiter.found is None and not self.closed and (left := end - monotonic()) > 0:
                waiter.lock.acquire(timeout=min(left, LOOK_AGAIN))
                self.serve()
            found, waiter.found = waiter.found, None
            return found
        finally:
            self._leaves(waiter)

    def _leaves(self, waiter: _Waiter) -> None:
        with self._mutex:
            if waiter in self.waiting:
                self.waiting.remove(waiter)
            found, waiter.found = waiter.found, None
        if found is not None and type(found) is not Permit:
            self.idle.append(found)
        del found
        self.serve()

    def serve(self) -> None:
        """Give what is free to those who wait."""
        if not self.waiting:
            return
        with self._mutex:
            while self.waiting:
                waiter = self.waiting[0]
                if waiter.found is None:
                    try:
                        waiter.found = self.idle.pop()
                    except IndexError:
                        waiter.found = self._permit()
                if waiter.found is None:
                    return
                if self.waiting[0] is waiter:
                    self.waiting.popleft()
                _wake(waiter)

    def _permit(self) -> Permit | None:
        if len(self._permits) >= self._most:
            return None
        if self._full:
            now = monotonic()
            if now < self._asks_at:
                return None
            self._asks_at = now + random.uniform(0.5, 1.0) * PAUSE  # one tries, the others wait for what is there
        permit = Permit()
        self._permits.add(ref(permit, self._is_free))
        return permit

    def server_is_full(self, permit: Permit) -> None:
        """The server has too many connections: ask for another one in a while, and share those that are there."""
        self._full, self._asks_at = True, monotonic() + random.uniform(0.5, 1.0) * PAUSE
        self.free(permit)

    def server_has_room(self) -> None:
        """A connection was made."""
        self._full = False

    def free(self, permit: Permit) -> None:
        """Give a permit back: the traceback of an error may refer to it for long."""
        self._is_free(ref(permit))

    def _is_free(self, gone: "ref[Permit]") -> None:
        self._permits.discard(gone)
        self.serve()

    def tidy(self) -> None:
        """Close the connections that were idle for long."""
        now = monotonic()
        self.tidy_at = now + IDLE / 4
        self._close([connection for connection in self.idle if connection.used < now - IDLE])

    def rest(self) -> None:
        """Close all that are idle but the last one used."""
        self._close(self.idle[:-1])

    def _close(self, connections: list[Any]) -> None:
        for connection in connections:
            try:
                self.idle.remove(connection)
            except ValueError:
                continue  # somebody took it
            connection.close()

    def close(self) -> None:
        """Wake all who wait."""
        self.closed = True
        for waiter in list(self.waiting):
            _wake(waiter)

    def reset(self) -> None:
        """In a forked child: forget who waits, and what the parent has."""
        self._start_afresh()


def _wake(waiter: _Waiter) -> None:
    try:
        waiter.lock.release()
    except RuntimeError:
        pass  # it was woken
