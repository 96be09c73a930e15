"""Waiting for sockets, on systems with poll(2) and on those that only know select()."""

import select
from typing import Any

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

    def register(self, fd: int, events: int) -> None:
        """Wait for a socket from now on."""
        self._wanted[fd] = events

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
