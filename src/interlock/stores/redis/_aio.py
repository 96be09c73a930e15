"""Sockets of tasks, with absolute deadlines; the names of `_threads`."""

import asyncio
from typing import Any, cast

from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.runtime.process import Descriptor, running_loop
from interlock.stores.redis.library import answered, as_bytes, as_of_socket
from interlock.stores.redis.settings import Address
from interlock.stores.redis.sockets import keep_alive

MOST = 65536  # bytes taken at a time; into one buffer, since asyncio makes a large one for each message else


class AsyncStream(asyncio.BufferedProtocol):
    """A socket by a protocol of its own, for one task at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._file: Descriptor | None
        self._buffer = memoryview(bytearray(MOST))
        self._data = b""
        self._future: asyncio.Future[None] | None = None
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As `Protocol.connection_made`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none of that class
        sock = transport.get_extra_info("socket")
        self._file = None if sock is None else Descriptor(sock.fileno())

    def get_buffer(self, sizehint: int) -> memoryview:
        """As `BufferedProtocol.get_buffer`."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """As `BufferedProtocol.buffer_updated`."""
        self._data += self._buffer[:nbytes].tobytes()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """As `Protocol.connection_lost`."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def give_to(self, protocol: asyncio.BufferedProtocol) -> asyncio.Transport:
        """Let another protocol have what comes from now on; return what sends."""
        self._transport.set_protocol(protocol)
        if self._ended:
            self._loop.call_soon(protocol.connection_lost, None)
        return self._transport

    async def send(self, data: bytes, deadline: float) -> None:
        """Send; what does not go out until somebody receives in vain is noticed then."""
        self._transport.write(data)

    async def receive(self, deadline: float) -> bytes:
        """As the `receive` of threads."""
        if not self._data and not self._ended:
            self._future = self._loop.create_future()
            timer = self._loop.call_later(max(0.0, deadline - clock.now()), self._wake)
            try:
                await self._future
            finally:
                self._future = None
                timer.cancel()
            if not self._data and not self._ended:
                raise TimeoutError
        data, self._data = self._data, b""
        return data

    def send_and_close(self, data: bytes) -> None:
        """Send behind what had no answer, and close."""
        if not self._ended and not self._loop.is_closed():
            self._transport.write(data)
        self.close()

    def close(self) -> None:
        """Close; from any thread, and also where the loop has ended."""
        if self._loop.is_closed():
            if self._file is not None:
                self._file.shut_down()  # closed when it is collected
        elif running_loop() is self._loop:
            self._close()
        else:
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self._ended = True
        self._wake()
        # Not `close`: that waits for the other end of TLS, or for a full buffer, longer than the loop may run.
        self._transport.abort()


async def open_stream(
    address: Address | str, tls: Any, deadline: float, io_timeout: float, looks: bool
) -> AsyncStream:
    """As the `open_stream` of threads."""
    loop = asyncio.get_running_loop()
    stream: AsyncStream
    async with asyncio.timeout(max(0.0, deadline - clock.now())):
        if isinstance(address, str):
            _, stream = await loop.create_unix_connection(AsyncStream, address)
        else:
            name = None if tls is None else address[0]
            _, stream = await loop.create_connection(AsyncStream, *address, ssl=tls, server_hostname=name)
    try:
        sock = stream._transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock, io_timeout)
    except BaseException:
        stream.close()
        raise
    return stream


class LibraryTransport(asyncio.Transport):
    """What `AsyncStream` writes to, where the program's own class has made the connection.

    Args:
        connection: of redis-py or valkey-py.
        stream: takes what comes.
    """

    def __init__(self, connection: Any, stream: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._connection = connection
        self._stream = stream
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks = [asyncio.ensure_future(each()) for each in (self._send, self._receive)]

    def write(self, data: Any) -> None:
        """As `Transport.write`."""
        self._unsent.put_nowait(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """As `Transport.set_protocol`."""
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._stream = protocol

    async def _send(self) -> None:
        while True:
            data = await self._unsent.get()
            try:
                await self._connection.send_packed_command(data, check_health=False)
            except Exception:
                self.abort()

    async def _receive(self) -> None:
        try:
            while True:
                try:
                    data = as_bytes(await self._connection.read_response(disable_decoding=True))
                except Exception as error:
                    data = answered(error)
                while data:
                    buffer = memoryview(self._stream.get_buffer(len(data)))
                    some = data[: len(buffer)]
                    buffer[: len(some)] = some
                    self._stream.buffer_updated(len(some))
                    data = data[len(some) :]
        except OSError:
            self.abort()

    def abort(self) -> None:
        """Close; what was not sent is lost."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        rt.spawn("interlock-disconnects", self._connection.disconnect, True)
        self._stream.connection_lost(None)


async def open_library(connection: Any, deadline: float) -> Any:
    """As the `open_library` of threads."""
    try:
        async with asyncio.timeout(max(0.0, deadline - clock.now())):
            await connection.connect()
    except Exception as error:
        raise as_of_socket(error) from error
    stream = AsyncStream()
    stream.connection_made(LibraryTransport(connection, stream))
    return stream
