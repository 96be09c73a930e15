"""How a waiter is notified where there are no named pipes: over the loopback interface (Windows).

A datagram is a hint: the waiter polls.  To notice the death of the process ahead, one thread keeps a TCP connection
to the liveness port of that process, which is in the name of its liveness file.  The connection stays unaccepted and
carries no data; the system closes it when the process dies.  If loopback is blocked, waiters poll once a second.
"""

import contextlib
import math
import select
import socket
import threading
from collections.abc import Iterable
from contextvars import Context
from weakref import ref

from interlock.core.failures import closed
from interlock.core.line import QueuedClaim
from interlock.runtime import clock, log
from interlock.runtime.host_notifier import LOOPBACK, PASSING, neighbours
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.wakeups import FileWaiter, Wakeups

MOST_WATCHED = 400  # connections: `select` of Python takes 512 sockets on Windows
CONNECTING = 0.05  # seconds: a living process is connected to immediately
FIRST_RETRY = 0.005  # seconds until a process whose connection ended is asked again; then twice as long, and so on
MOST_RETRIES = 8  # within 1.3 seconds: its socket may end before the OS lock of its liveness file
IDLE = 1.0  # seconds


class Watched:
    """A process whose death wakes waiters.

    Args:
        liveness: asks whether it lives.
        token: its liveness token, which ends with the port at which it listens.

    Attributes:
        waiters: the waiters to wake.
        socket: the connection, if there is one.
        next: when to connect next.
    """

    __slots__ = ("liveness", "next", "retries", "socket", "token", "waiters")

    def __init__(self, liveness: Liveness, token: str) -> None:
        self.liveness, self.token = liveness, token
        self.waiters: set[ref[LoopbackWaiting]] = set()
        self.socket: socket.socket | None = None
        self.next, self.retries = 0.0, 0

    def connect(self) -> bool:
        """Connect again; return False if the process is dead."""
        port = self.token.rpartition("-")[2]
        self.close()
        if self.liveness.is_alive(self.token) and port.isdecimal() and int(port):
            with contextlib.suppress(OSError):
                self.socket = socket.create_connection((LOOPBACK, int(port)), CONNECTING)
        if not self.liveness.is_alive(self.token):  # or another program has its port now
            return False
        if self.socket is None:
            self.retries += 1
            self.next = clock.now() + FIRST_RETRY * 2**self.retries if self.retries <= MOST_RETRIES else math.inf
        return True

    def close(self) -> None:
        """Close the connection."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None


class DeathWatch:
    """Wakes waiters at the death of processes, by one thread for all queues and event loops of this process."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._watched: dict[tuple[Liveness, str], Watched] = {}
        self._bell: socket.socket | None = None
        self._blocked = False

    def watch(self, liveness: Liveness, waiter: "LoopbackWaiting", tokens: set[str]) -> None:
        """Let the death of exactly these processes wake a waiter."""
        me, new = ref(waiter), False
        with self._mutex:
            for token in waiter.watched - tokens:
                watched = self._watched.get((liveness, token))
                if watched is not None:
                    watched.waiters.discard(me)
            waiter.watched = tokens
            for token in tokens:
                watched = self._watched.get((liveness, token))
                if watched is None and len(self._watched) < MOST_WATCHED:
                    watched, new = self._watched.setdefault((liveness, token), Watched(liveness, token)), True
                if watched is not None:
                    watched.waiters.add(me)
            if new and not self._blocked:
                self._start_or_ring()

    def forget(self, liveness: Liveness) -> None:
        """Close the connections of a queue."""
        with self._mutex:
            for key in [key for key in self._watched if key[0] is liveness]:
                self._watched.pop(key).close()

    def _start_or_ring(self) -> None:
        bell = self._bell
        try:
            if bell is None:
                bell = self._bell = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                bell.bind((LOOPBACK, 0))
                bell.setblocking(False)
                run = Context().run
                threading.Thread(target=run, args=(self._run, bell), name="interlock-watches", daemon=True).start()
            else:
                bell.sendto(b"", bell.getsockname())
        except (OSError, RuntimeError) as error:  # loopback is blocked; no thread
            self._blocked = isinstance(error, OSError) and error.errno not in PASSING
            log.warn("Cannot watch other processes; waiters will poll: %s", error)
            if bell is not None and self._bell is bell:
                self._bell = None
                bell.close()

    def _run(self, bell: socket.socket) -> None:
        """Connect, and wait for ends, until nobody waits for a while."""
        idle = False
        while self._prune(bell, idle):
            now = clock.now()
            pause = IDLE
            for watched in list(self._watched.values()):
                if watched.socket is None and watched.next <= now:
                    self._check(watched)
                if watched.socket is None:
                    pause = min(pause, max(0.0, watched.next - now))
            sockets = {each.socket: each for each in list(self._watched.values()) if each.socket is not None}
            try:
                ready = select.select([bell, *sockets], [], [], pause)[0]
            except (OSError, ValueError):  # one was closed by `forget`
                continue
            idle = not ready
            with contextlib.suppress(OSError):
                while bell in ready:
                    bell.recv(1)
            for each in ready:
                if each in sockets:
                    sockets[each].retries = 0
                    self._check(sockets[each])

    def _prune(self, bell: socket.socket, idle: bool) -> bool:
        """Forget processes without waiters after a while; return False if none is left."""
        with self._mutex:
            if idle:
                for key, watched in list(self._watched.items()):
                    watched.waiters = {each for each in watched.waiters if each() is not None}
                    if not watched.waiters:
                        self._watched.pop(key).close()
                if not self._watched:
                    self._bell = None
                    bell.close()
                    return False
            return self._bell is bell

    def _check(self, watched: Watched) -> None:
        """Connect to a process, or wake its waiters if it is dead."""
        try:
            if watched.connect():
                return
        except Exception:
            log.exception("Unexpected error in watching a process, which continues.")
        finally:
            if watched.liveness.closed:  # since the question
                watched.close()
                with watched.liveness.section.entered():
                    watched.liveness.close_others()
        with self._mutex:
            self._watched.pop((watched.liveness, watched.token), None)
            waiters = list(watched.waiters)
        watched.close()
        for each in waiters:
            waiter = each()
            if waiter is not None:
                waiter.wake()


deaths = DeathWatch()


class Loopback(Wakeups):
    """The notifications of a queue.

    Args:
        liveness: the liveness file of the queue, and those of other processes.
    """

    def __init__(self, liveness: Liveness) -> None:
        self.liveness = liveness
        self.waiters = neighbours.waiters
        self._closed = False
        neighbours.join()

    def notify(self, place: QueuedClaim) -> None:
        """Let a waiter in another process poll."""
        neighbours.send(place.channel, [f"{place.id} 0"])

    def close(self) -> None:
        """Watch nobody any more."""
        deaths.forget(self.liveness)
        if not self._closed:  # the lines are closed again when their queue is collected
            self._closed = True
            neighbours.leave()

    def forget(self) -> None:
        """Do nothing: only systems without forks use this."""


class LoopbackWaiting(FileWaiter):
    """A waiter that datagrams and the death watch wake.

    Args:
        loopback: the notifications of the queue.

    Attributes:
        watched: the liveness tokens of the processes whose death wakes it.
    """

    __slots__ = ("__weakref__", "_loopback", "watched")

    def __init__(self, loopback: Loopback) -> None:
        if loopback.liveness.closed:
            raise closed()
        self._loopback = loopback
        self.watched: set[str] = set()

    def wake(self) -> None:
        """Wake the waiter, from any thread."""
        raise NotImplementedError

    def channel(self) -> str:
        """Return the port of this process."""
        neighbours.listen()
        return neighbours.channel

    def watch(self, tokens: Iterable[str]) -> None:
        """See `FileWaiter.watch`."""
        liveness = self._loopback.liveness
        deaths.watch(liveness, self, {token for token in tokens if token and token != liveness.token})

    def close(self) -> None:
        """Watch nobody any more."""
        deaths.watch(self._loopback.liveness, self, set())
