"""A connection of threads: one command out, one reply in, with as little as possible in between."""

import os
import select
import socket
from time import monotonic
from typing import Any

from interlock._redis.clients import ConnectionFactory
from interlock._redis.errors import full, is_full
from interlock._redis.keepalive import keep_alive
from interlock._redis.limit import Permit
from interlock._redis.message import unreachable
from interlock._redis.resp import MISSING, Garbage, Push, pack, parser
from interlock.runtime.polling import is_own_poll

ASKING = pack("ASKING")
MOST = 65536  # bytes taken at a time
SHORT = 4096  # bytes taken at first: nearly all replies are one number
LOOK = 250e-6  # seconds
MOST_MISSES = 8  # looked in vain so often in a row: stop looking
PAUSE = 200  # commands until the next tries
SHORTEST = 0.1  # seconds to connect in, also after a long wait for the turn
MOST_LATE = 4  # connections kept for one claim


class Looking:
    """Whether to look for a reply before the thread sleeps: a server that is near answers sooner than it is woken.

    Between two looks the processor is given to whoever else wants it.  Where looking was in vain, because the server
    is far away or the machine has one processor, it stops, but for one try in 200 commands.
    """

    def __init__(self) -> None:
        # Not all systems can tell which processors are this process's own.
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.seconds = LOOK if processors > 1 else 0.0
        self._misses = 0

    def pays(self) -> bool:
        """Tell whether to look now."""
        if self._misses < MOST_MISSES:
            return self.seconds > 0
        self._misses += 1
        if self._misses >= MOST_MISSES + PAUSE:
            self._misses = MOST_MISSES - 1  # one look; in vain again, the next comes as late
        return False

    def found(self) -> None:
        """Note that a look found the reply."""
        self._misses = 0

    def missed(self) -> None:
        """Note that a look was in vain."""
        self._misses += 1


class Connection:
    """One connection; the library has connected it and logged in.

    Each command has one absolute deadline, which signals do not stretch.

    Args:
        factory: how to connect.
        io_timeout: seconds to wait for each answer while connecting; None for the usual.
        generation: of the pool, when it was made.
        looking: whether to look before sleeping.
        permit: what it takes of the limit, until it is closed; None if it is not counted.

    Attributes:
        sock: the socket.
        used: the deadline of the last command; monotonic.
    """

    __slots__ = (
        "_looking",
        "_poll",
        "_raw",
        "_receive",
        "_send",
        "generation",
        "parser",
        "permit",
        "primary",
        "sock",
        "used",
    )  # fmt: skip

    def __init__(
        self,
        factory: ConnectionFactory,
        io_timeout: float | None = None,
        generation: object = None,
        looking: Looking | None = None,
        permit: Permit | None = None,
    ) -> None:
        self.generation = generation
        self.primary: object = None
        self.permit = permit
        self.used = 0.0
        self._looking = looking
        self._raw = factory.new_connection(io_timeout)
        try:
            self._raw.connect()
        except Exception as error:
            self._raw.disconnect()
            raise (full if is_full(error) else unreachable)(factory.where, error) from error
        except BaseException:
            self._raw.disconnect()
            raise
        self.sock: socket.socket = self._raw._sock
        self.parser = parser()
        keep_alive(self.sock, factory.io_timeout)
        self._poll: Any = None
        # gevent and its like put a socket and a way of waiting of their own there; TLS has its own too.
        if type(self.sock) is socket.socket and is_own_poll() and type(self.sock).__module__ == "socket":
            self.sock.setblocking(False)
            self._poll = select.poll()
        self._send, self._receive = self.sock.send, self.sock.recv

    @property
    def raw(self) -> Any:
        """The library's connection."""
        return self._raw

    def ask(self, command: bytes, seconds: float) -> Any:
        """Send a command and return the reply, which may be a ReplyError.

        Args:
            command: as it is sent.
            seconds: to wait for all of it at most.
        """
        self.used = end = monotonic() + seconds
        self.send(command, end)
        return self.rest(self.first(end), end)

    def send(self, command: bytes, end: float) -> None:
        """Send a command until the moment `end`."""
        if self._poll is None:
            self.sock.settimeout(_left(end))
            self.sock.sendall(command)
            return
        sent = 0
        while True:
            try:
                sent += self._send(command[sent:] if sent else command)
            except BlockingIOError:
                self._wait(select.POLLOUT, end)
            if sent == len(command):
                return

    def first(self, end: float) -> bytes:
        """Return what comes first, after a look for it."""
        looking = self._looking
        if looking is not None and self._poll is not None and looking.pays():
            until = monotonic() + looking.seconds
            while True:
                try:
                    data = self._receive(SHORT)
                except BlockingIOError:
                    os.sched_yield()
                else:
                    looking.found()
                    return data
                if monotonic() >= until:
                    looking.missed()
                    break
        return self.receive(end)

    def receive(self, end: float) -> bytes:
        """Return what comes next, at the moment `end` at the latest."""
        if self._poll is None:
            self.sock.settimeout(_left(end))
            return self.sock.recv(MOST)
        while True:
            self._wait(select.POLLIN, end)
            try:
                return self._receive(MOST)
            except BlockingIOError:
                pass  # woken for nothing

    def _wait(self, what: int, end: float) -> None:
        # `poll` takes the signals that come out of its time (PEP 475).
        self._poll.register(self.sock, what)
        if not self._poll.poll(_left(end) * 1000):
            raise TimeoutError

    def rest(self, data: bytes, end: float) -> Any:
        """Return the reply that begins with `data`."""
        while True:
            if not data:
                raise ConnectionResetError("closed by the server")
            try:
                self.parser.feed(data)
                while True:
                    reply = self.parser.next()
                    if reply is MISSING:
                        break
                    if type(reply) is not Push:
                        return reply
            except Garbage:
                raise Garbage(data) from None
            data = self.receive(end)

    def next(self, end: float) -> Any:
        """Return one more reply, at the moment `end` at the latest."""
        while type(reply := self.parser.next()) is Push:
            pass
        return self.rest(self.receive(end), end) if reply is MISSING else reply

    def send_and_close(self, command: bytes) -> None:
        """Send a command behind one that had no answer, without waiting for the reply, and close.

        If the server ever gets the first one, it gets this one right after it.
        """
        try:
            if self._poll is None:
                self.sock.settimeout(0)
            self.sock.send(command)
        except OSError:
            pass  # its buffer is full, or it has ended: then nothing of it can be late
        self.close()

    def close(self) -> None:
        """Close the socket; a forked child closes its copy only."""
        try:
            self.sock.close()
        except OSError:
            pass
        self._raw._sock = None
        self.permit = None


def _left(end: float) -> float:
    left = end - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
