"""Sockets for threads, with absolute deadlines; the same names as in `_aio`."""

import select
import socket
from collections.abc import Callable
from typing import Any

from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.runtime.process import OwnedDescriptor
from interlock.stores.redis.library import keep_alive
from interlock.stores.redis.settings import Address

RECV_SIZE = 65536  # bytes received at a time


class Stream:
    """A socket; each call has an absolute deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = OwnedDescriptor(sock.fileno(), sock)

    def send(self, data: bytes, deadline: float) -> None:
        """Send all bytes.

        Raises:
            TimeoutError: the socket did not accept all until the deadline.
            OSError: the connection ended.
        """
        self._file.check()
        self._sock.settimeout(_left(deadline))
        self._sock.sendall(data)

    def receive(self, deadline: float) -> bytes:
        """Return the next bytes; b"" if the connection ended.

        Raises:
            TimeoutError: no bytes came until the deadline.
            OSError: the connection ended.
        """
        self._sock.settimeout(_left(deadline))
        data: bytes = self._sock.recv(RECV_SIZE)
        return data

    def send_and_close(self, data: bytes) -> None:
        """Send a last request after those without a reply, if possible immediately, and close."""
        try:
            self._file.check()
            self._sock.settimeout(0)
            self._sock.send(data)
        except (OSError, ValueError):
            pass  # the buffer is full, or the connection has ended
        self.close()

    def close(self) -> None:
        """Close, and wake a thread that receives."""
        try:
            self._file.check()
            self._sock.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):
            pass
        self._sock.close()

    def __del__(self) -> None:
        """Close the socket of an unclosed connection; in a forked child only its copy."""
        self._file.is_ours()  # if not, the socket detaches the number
        self._sock.close()


class PolledStream(Stream):
    """A stream on a non-blocking socket, which looks before the thread sleeps."""

    def __init__(self, sock: socket.socket, looks: bool) -> None:
        super().__init__(sock)
        sock.setblocking(False)
        self._send, self._receive = sock.send, sock.recv
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._looks = rt.Looks(looks)

    def send(self, data: bytes, deadline: float) -> None:
        """Send like `Stream.send`."""
        self._file.check()
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            super().send(data[sent:], deadline)
            self._sock.setblocking(False)

    def receive(self, deadline: float) -> bytes:
        """Receive like `Stream.receive`."""
        data = self._looks.find(self._arrived)
        return self._after_sleep(deadline) if data is None else data

    def _arrived(self) -> bytes | None:
        try:
            return self._receive(RECV_SIZE)
        except BlockingIOError:
            return None

    def _after_sleep(self, deadline: float) -> bytes:
        while True:
            if not self._poll.poll(_left(deadline) * 1000):
                raise TimeoutError
            try:
                return self._receive(RECV_SIZE)
            except BlockingIOError:
                pass  # a spurious wake-up


def open_stream(address: Address | str, tls: Any, deadline: float, io_timeout: float, looks: bool) -> Stream:
    """Connect.

    Args:
        address: host and port, or the path of a UNIX socket.
        tls: the TLS context; None without TLS.
        deadline: the end of the wait, by `clock.now`.
        io_timeout: seconds after which the kernel drops a connection whose peer does not acknowledge.
        looks: True if replies are expected soon.

    Raises:
        TimeoutError: the deadline has passed.
        OSError: the connection failed.
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
        # gevent and eventlet replace the socket class and `select.poll`: then use blocking calls.
        own = type(sock) is socket.socket and type(sock).__module__ == "socket"
        if own and rt.has_own_poll():
            return PolledStream(sock, looks)
    except BaseException:
        sock.close()
        raise
    return Stream(sock)


def _left(deadline: float) -> float:
    left = deadline - clock.now()
    if left <= 0:
        raise TimeoutError
    return left


def read_reply(connection: Any, seconds: float) -> object:
    """Return the next reply to a connection of redis-py or valkey-py.

    Raises:
        TimeoutError: no reply came within `seconds`.
    """
    if not connection.can_read(timeout=seconds):
        raise TimeoutError
    return connection.read_response(disable_decoding=True)


def at_home() -> Callable[..., None]:
    """Return a function that performs a call: for threads directly."""
    return rt.offload
