"""Waiting for sockets, and being woken from it, on systems with poll(2) and on those that only know select()."""

import os
import select
from typing import Any

from interlock.core.errors import StoreError

READABLE = getattr(select, "POLLIN", 1)
WRITABLE = getattr(select, "POLLOUT", 4)
_poll = getattr(select, "poll", None)


def poller() -> Any:
    """Return what waits for several sockets, with the methods `register` and `poll` of `select.poll`."""
    made = getattr(select, "poll", None)  # asked each time: gevent and its like put another one there
    return SelectPoller() if made is None else made()


def is_own_poll() -> bool:
    """Tell whether poll(2) is there, and nobody has put something else in its place."""
    return _poll is not None and getattr(select, "poll", None) is _poll


class SelectPoller:
    """As `select.poll`, by `select.select`: Windows has no other."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    def register(self, one: Any, events: int) -> None:
        """Wait for a socket from now on."""
        self._wanted[one if isinstance(one, int) else one.fileno()] = events

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        """Return what is ready, after that time at the latest; an error counts as all that was waited for."""
        reads = [fd for fd, events in self._wanted.items() if events & READABLE]
        writes = [fd for fd, events in self._wanted.items() if events & WRITABLE]
        found = select.select(reads, writes, list(self._wanted), max(0.0, milliseconds) / 1000)
        readable, writable, broken = map(set, found)
        ready = (
            (fd, (READABLE * (fd in readable) | WRITABLE * (fd in writable)) or events * (fd in broken))
            for fd, events in self._wanted.items()
        )
        return [(fd, events) for fd, events in ready if events]


class WakePipe:
    """Wakes a thread that waits at a poller: a pipe, or two sockets where pipes can't be waited for.

    Raises:
        StoreError: the process may have no more open files.
    """

    def __init__(self) -> None:
        self._sockets: tuple[Any, ...] = ()
        try:
            if hasattr(select, "poll"):
                self._reads, self._writes = os.pipe()
                os.set_blocking(self._writes, False)
                return
            import socket  # only where it is needed: it is slow to load

            self._sockets = socket.socketpair()
        except OSError as error:
            raise StoreError(f"nothing can be opened to wake who waits: {error}") from error
        self._reads, self._writes = (each.fileno() for each in self._sockets)
        self._sockets[1].setblocking(False)

    def fileno(self) -> int:
        """Return what becomes readable."""
        return self._reads

    def wake(self) -> None:
        """Make it readable; once it is full, it is so anyway."""
        try:
            if self._sockets:
                self._sockets[1].send(b"!")
            else:
                os.write(self._writes, b"!")
        except OSError:
            pass

    def drain(self) -> None:
        """Take what made it readable."""
        if self._sockets:
            self._sockets[0].recv(512)
        else:
            os.read(self._reads, 512)

    def close(self) -> None:
        """Close both ends; in a forked child, its copies."""
        for each in self._sockets:
            each.close()
        if not self._sockets:
            os.close(self._reads)
            os.close(self._writes)
