"""Sockets of threads, with absolute deadlines; the names of `_aio`."""

import os
import select
import socket
from typing import Any

from interlock.runtime import clock
from interlock.runtime._threads import is_own_poll
from interlock.runtime.process import Descriptor
from interlock.stores.redis.library import answered, as_bytes, as_of_socket
from interlock.stores.redis.settings import Address
from interlock.stores.redis.sockets import keep_alive

LOOK = 250e-6  # seconds to look for a reply before the thread sleeps
MOST_MISSES = 3  # looks in a row that were in vain
SKIPPED = 200  # commands without a look then
MOST = 65536  # bytes taken at a time
SEVERAL = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) > 1


class Stream:
    """A socket; each call has an absolute deadline."""

    __slots__ = ("_file", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = Descriptor(sock.fileno())

    def send(self, data: bytes, deadline: float) -> None:
        """Send all.

        Raises:
            TimeoutError: not until the deadline.
            OSError: the connection ended.
        """
        self._see_that_it_is_ours()
        self._sock.settimeout(_left(deadline))
        self._sock.sendall(data)

    def receive(self, deadline: float) -> bytes:
        """Return what comes next; nothing if the connection ended.

        Raises:
            TimeoutError: nothing came until the deadline.
            OSError: the connection ended.
        """
        self._sock.settimeout(_left(deadline))
        data: bytes = self._sock.recv(MOST)
        return data

    def send_and_close(self, data: bytes) -> None:
        """Send behind what had no answer, if that is possible at once, and close."""
        try:
            self._see_that_it_is_ours()
            self._sock.settimeout(0)
            self._sock.send(data)
        except (OSError, ValueError):
            pass  # its buffer is full, or it has ended: then nothing of it can be late
        self.close()

    def close(self) -> None:
        """Close, and wake a thread that receives."""
        try:
            self._see_that_it_is_ours()
            self._sock.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):
            pass
        self._sock.close()

    def _see_that_it_is_ours(self) -> None:
        """Raise ConnectionResetError if the program has closed its descriptor, which may be another file by now."""
        if not self._file.is_ours():
            self._sock.detach()
            raise ConnectionResetError("the program has closed its descriptor")

    def __del__(self) -> None:
        """Close the socket of a connection that was dropped; in a forked child, its copy only."""
        if not self._file.is_ours():
            self._sock.detach()
        self._sock.close()


class PolledStream(Stream):
    """As `Stream`, by a socket that never blocks; it looks for a reply before the thread sleeps, where that pays.

    A server that is near answers sooner than a thread is woken.  Where several looks in a row were in vain, since the
    server is far away or others use the processors, most commands go without.
    """

    __slots__ = ("_looks", "_misses", "_poll", "_receive", "_send", "_skip")

    def __init__(self, sock: socket.socket, looks: bool) -> None:
        super().__init__(sock)
        sock.setblocking(False)
        self._send, self._receive = sock.send, sock.recv
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._looks = looks and SEVERAL
        self._misses = self._skip = 0

    def send(self, data: bytes, deadline: float) -> None:
        """As `Stream.send`."""
        self._see_that_it_is_ours()
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            super().send(data[sent:], deadline)
            self._sock.setblocking(False)

    def receive(self, deadline: float) -> bytes:
        """As `Stream.receive`."""
        if not self._looks:
            return self._after_sleep(deadline)
        if self._skip:
            self._skip -= 1
            return self._after_sleep(deadline)
        until = clock.now() + LOOK
        while clock.now() < until:
            try:
                data: bytes = self._receive(MOST)
                self._misses = 0
                return data
            except BlockingIOError:
                os.sched_yield()  # to other threads that want the processor
        self._misses += 1
        if self._misses >= MOST_MISSES:
            self._skip = SKIPPED
        return self._after_sleep(deadline)

    def _after_sleep(self, deadline: float) -> bytes:
        while True:
            if not self._poll.poll(_left(deadline) * 1000):
                raise TimeoutError
            try:
                return self._receive(MOST)
            except BlockingIOError:
                pass  # woken for nothing


class LibraryStream:
    """As `Stream`, over a connection that the program's own class has made.

    Args:
        connection: of redis-py or valkey-py.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def send(self, data: bytes, deadline: float) -> None:
        """As `Stream.send`."""
        try:
            self._connection.send_packed_command([data], check_health=False)
        except Exception as error:
            raise as_of_socket(error) from error

    def receive(self, deadline: float) -> bytes:
        """As `Stream.receive`: the next reply."""
        try:
            if not self._connection.can_read(timeout=_left(deadline)):
                raise TimeoutError
            return as_bytes(self._connection.read_response(disable_decoding=True))
        except Exception as error:
            return answered(error)

    def send_and_close(self, data: bytes) -> None:
        """As `Stream.send_and_close`."""
        try:
            self.send(data, 0.0)
        except OSError:
            pass
        self.close()

    def close(self) -> None:
        """As `Stream.close`."""
        self._connection.disconnect()


def open_library(connection: Any, deadline: float) -> Any:
    """Let a connection of the program's own class connect.

    Raises:
        OSError: it could not be done.
    """
    try:
        connection.connect()
    except Exception as error:
        raise as_of_socket(error) from error
    return LibraryStream(connection)


def open_stream(address: Address | str, tls: Any, deadline: float, io_timeout: float, looks: bool) -> Stream:
    """Connect.

    Args:
        address: host and port, or the path of a UNIX socket.
        tls: the context of TLS; None without.
        deadline: until when.
        io_timeout: seconds after which the kernel gives up data that the server does not take.
        looks: True where replies are expected at once.

    Raises:
        OSError: it could not be done; TimeoutError: not in time.
    """
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(_left(deadline))
        try:
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
    else:
        sock = socket.create_connection(address, timeout=_left(deadline))
    try:
        keep_alive(sock, io_timeout)
        if tls is not None:
            sock.settimeout(_left(deadline))
            return Stream(tls.wrap_socket(sock, server_hostname=address[0]))
        # gevent and its like put a socket and a way of waiting of their own there.
        if type(sock) is socket.socket and is_own_poll() and type(sock).__module__ == "socket":
            return PolledStream(sock, looks and hasattr(os, "sched_yield"))
    except BaseException:
        sock.close()
        raise
    return Stream(sock)


def _left(deadline: float) -> float:
    left = deadline - clock.now()
    if left <= 0:
        raise TimeoutError
    return left
