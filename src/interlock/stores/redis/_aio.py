"""Sockets for asyncio tasks, with absolute deadlines; the same names as in `_threads`."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.runtime.process import OwnedDescriptor, running_loop
from interlock.stores.redis.library import keep_alive
from interlock.stores.redis.settings import Address

RECV_SIZE = 65536  # bytes received at a time, into one buffer: by default asyncio makes a large one for each message


class AsyncStream(asyncio.BufferedProtocol):
    """A socket with its own asyncio protocol, for one task at a time.

    Args:
        sock: the socket of the transport.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._sock = sock
        self._file = OwnedDescriptor(sock.fileno(), sock)
        self._buffer = memoryview(bytearray(RECV_SIZE))
        self._data = b""
        self._waiter: rt.AsyncWaiter[None] = rt.AsyncWaiter()
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start like `Protocol.connection_made`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport has another class

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return like `BufferedProtocol.get_buffer`."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Receive like `BufferedProtocol.buffer_updated`."""
        self._data += self._buffer[:nbytes].tobytes()
        self._waiter.wake()

    def connection_lost(self, error: Exception | None) -> None:
        """End like `Protocol.connection_lost`."""
        self._ended = True
        self._waiter.wake()

    def give_to(self, protocol: asyncio.BufferedProtocol) -> None:
        """Let another protocol receive all further data."""
        self._transport.set_protocol(protocol)
        if self._ended:
            self._loop.call_soon(protocol.connection_lost, None)

    def write(self, data: bytes) -> None:
        """Send without waiting; a failure shows when the reply does not come in time."""
        if self._file.is_ours():
            self._transport.write(data)
        else:
            self._transport.abort()

    async def send(self, data: bytes, deadline: float) -> None:
        """Send like `_threads`, but without waiting, so the deadline is ignored."""
        self.write(data)

    async def receive(self, deadline: float) -> bytes:
        """Receive like `_threads`."""
        while not self._data and not self._ended:
            left = deadline - clock.now()
            if left <= 0:
                raise TimeoutError
            await self._waiter.wait(left)
        data, self._data = self._data, b""
        return data

    def send_and_close(self, data: bytes) -> None:
        """Send a last request after those without a reply, and close."""
        if not self._ended and not self._loop.is_closed():
            self.write(data)
        self.close()

    def close(self) -> None:
        """Close, from any thread, also after the event loop has ended."""
        if self._loop.is_closed():
            self._file.shut_down()  # the socket is closed when it is collected
        elif running_loop() is self._loop:
            self._close()
        else:
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self._ended = True
        self._waiter.wake()
        self._file.is_ours()  # if not, the socket detaches the number
        # Not `close`: that waits for the peer's TLS close or for a full buffer, perhaps longer than the loop runs.
        self._transport.abort()


async def open_stream(
    address: Address | str, tls: Any, deadline: float, io_timeout: float, looks: bool
) -> AsyncStream:
    """Open a stream like `_threads`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(max(0.0, deadline - clock.now())):
        sock = await _connected(address)
        try:
            keep_alive(sock, io_timeout)
            name = None if tls is None else address[0]
            _, stream = await loop.create_connection(
                lambda: AsyncStream(sock), sock=sock, ssl=tls, server_hostname=name
            )
        except BaseException:
            sock.close()
            raise
    return stream


async def _connected(address: Address | str) -> socket.socket:
    """Return a connected socket object of our own, which can be detached if the program closes its descriptor."""
    if isinstance(address, str):
        return await _dialled(socket.AF_UNIX, address)
    try:  # a numeric address needs no thread
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    problem = OSError(f"{address[0]} has no address")
    for family, _, _, _, where in found:
        try:
            return await _dialled(family, where)
        except OSError as error:
            problem = error
    raise problem


async def _dialled(family: int, where: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def read_reply(connection: Any, seconds: float) -> object:
    """Read a reply like `_threads`."""
    until = clock.now() + seconds
    reply = await connection.read_response(disable_decoding=True, timeout=seconds, disconnect_on_error=False)
    if reply is None and clock.now() >= until:
        raise TimeoutError
    return reply


def at_home() -> Callable[..., None]:
    """Return a function that performs a call in the running loop, from any thread."""
    loop = asyncio.get_running_loop()

    def perform(function: Callable[..., Any], *args: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda: rt.start_background("interlock-disconnects", function, *args))

    return perform
