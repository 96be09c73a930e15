"""A TCP proxy that cuts, delays and drops traffic, on command."""

import asyncio
import random
import socket

from interlock.testing.actors import Background
from tests.servers.home import Closing, Port

CHUNK = 65_536


class Proxy(Closing):
    """A proxy on a free port, before a server; use it as a context manager.

    A request is the data that a client sent at once; its reply is the data that the server sends next on that
    connection. Every method has taken effect when it returns.

    Args:
        host, port: the server.
        address: the address of this machine on which to listen.

    Attributes:
        host, port: the address for clients.
        connections: the number of connections from clients, including those made while the server was down.
        requests: the number of requests, including those that were dropped.
        cuts: the number of replies that were cut off.
    """

    def __init__(self, host: str, port: int, address: str = "127.0.0.1") -> None:
        self._server = (host, port)
        self.host = address
        self._port = Port()  # reserved: otherwise another process might get the port during `refuse`
        self.port = self._port.number
        self.connections = 0
        self.requests = 0
        self.cuts = 0
        self._sent = bytearray()
        self._links: set[_Link] = set()
        self._patterns: list[bytes] = []
        self._losing: tuple[int, bool, float] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._delay = self._scatter = 0.0
        self._swallows_requests = False
        self._swallows_replies = False
        self._forgets_new = False
        self._caught: tuple[bytes, str] | None = None
        self._listener: socket.socket | None = None
        self._background = Background()
        self._background.run(self._listen())

    @property
    def url(self) -> str:
        """The URL for clients of Redis."""
        return f"redis://{self.host}:{self.port}"

    def redirect(self, host: str, port: int) -> None:
        """Connect new clients to another server; present connections stay."""
        self._server = (host, port)

    @property
    def sent(self) -> bytes:
        """All data that clients have sent, in the order of arrival."""
        return bytes(self._sent)

    def cut(self) -> None:
        """Close all connections; new ones are accepted."""
        self._background.run(self._cut())

    def cut_after_request(self, pattern: bytes, times: int = 1) -> None:
        """Pass the next request that contains `pattern`, wait for its reply, drop it, and close the connection.

        Args:
            pattern: a part of the request's bytes; empty for any request.
            times: for how many requests.
        """
        self._patterns = [pattern] * times

    def drop_next_reply(self) -> None:
        """Pass the next request, wait for its reply, drop it, and close the connection."""
        self.cut_after_request(b"")

    def lose_reply(self, number: int, swallow: bool = False, away: float = 0.0) -> None:
        """Lose one reply of the server, and close its connection.

        Args:
            number: how many replies pass before it.
            swallow: True to keep the connection, which is silent from then on.
            away: seconds for which all connections are closed then and new ones refused.
        """
        self._losing = (number, swallow, away)

    def delay(self, seconds: float) -> None:
        """Delay each reply by so many seconds."""
        self._delay = seconds

    def scatter(self, seconds: float) -> None:
        """Delay each reply by a random time up to so many seconds, so that some arrive in another order."""
        self._scatter = seconds

    def black_hole(self, passes_requests: bool = False) -> None:
        """Keep all connections and accept new ones, but drop all data.

        Args:
            passes_requests: True to drop only the replies.
        """
        self._swallows_requests = not passes_requests
        self._swallows_replies = True

    def forget(self) -> None:
        """Drop all data of the present connections, like a load balancer that has forgotten them; new ones work."""
        for link in list(self._links):
            link.forgotten = True

    def forget_new(self) -> None:
        """Drop all data of connections made from now on, until `restore`; the present ones work."""
        self._forgets_new = True

    def hold(self) -> None:
        """Hold back the data of clients on the present connections, until `pass_on`; new ones work."""
        for link in list(self._links):
            link.held = b""

    def catch(self, pattern: bytes, fault: str) -> None:
        """Break the connection on which the next request that contains `pattern` comes, with that request.

        Args:
            pattern: a part of the request's bytes.
            fault: "hold" as by `hold`, "drop" as by `forget`, or "cut" to close the connection.
        """
        self._caught = pattern, fault

    @property
    def has_caught(self) -> bool:
        """True once the request of `catch` has come."""
        return self._caught is None

    def pass_on(self) -> None:
        """Pass on the data that was held back, also of clients that have closed meanwhile."""
        self._background.run(self._pass_on())

    def refuse(self) -> None:
        """Close all connections and refuse new ones."""
        self._background.run(self._refuse())

    def restore(self) -> None:
        """End all faults; dropped data stay lost, and the kept connections work again."""
        self._patterns = []
        self._losing = None
        self._delay = self._scatter = 0.0
        self._swallows_requests = self._swallows_replies = self._forgets_new = False
        self._background.run(self._listen())

    def close(self) -> None:
        """Close everything."""
        self._background.run(self._refuse())
        self._background.close()
        self._port.close()

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port), backlog=100)
            self._listener.setblocking(False)
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def _refuse(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._cut()

    async def _go_away(self, seconds: float) -> None:
        await self._refuse()
        await asyncio.sleep(seconds)
        await self._listen()

    def _accept(self, listener: socket.socket) -> None:
        """Accept connections without asyncio's server, which has accepted connections that are not visible yet."""
        try:
            accepted, _ = listener.accept()
        except OSError:
            return  # the client has given up
        self.connections += 1
        link = _Link()
        link.forgotten = self._forgets_new
        self._links.add(link)
        link.task = asyncio.create_task(self._serve(link, accepted))

    async def _cut(self) -> None:
        links = list(self._links)
        for link in links:
            link.abort()
        await asyncio.gather(*(link.closed.wait() for link in links))

    async def _pass_on(self) -> None:
        for link in list(self._links):
            held, link.held = link.held, None
            if held is not None:
                link.writers[-1].write(held)
                await link.writers[-1].drain()
            link.passed.set()

    async def _serve(self, link: "_Link", accepted: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=accepted)
            link.add(writer)
            far_reader, far_writer = await asyncio.open_connection(*self._server)
            link.add(far_writer)
            pumps = [
                asyncio.create_task(self._requests(link, reader, far_writer)),
                asyncio.create_task(self._replies(link, far_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                link.abort()
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the server is down: the client sees its connection closed
        finally:
            link.abort()
            self._links.discard(link)
            link.closed.set()

    async def _requests(self, link: "_Link", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            self.requests += 1
            self._sent += data
            if self._caught is not None and self._caught[0] in data:
                fault, self._caught = self._caught[1], None
                if fault == "cut":
                    return
                link.forgotten = fault == "drop"
                link.held = b"" if fault == "hold" else None
            if self._swallows_requests or link.forgotten:
                continue
            if link.held is not None:
                link.held += data
                continue
            if self._patterns and self._patterns[0] in data:
                del self._patterns[0]
                link.cutting = True
            writer.write(data)
            await writer.drain()
        if link.held is not None:
            await link.passed.wait()

    async def _replies(self, link: "_Link", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if link.cutting:
                self.cuts += 1
                return
            if self._losing is not None and not link.forgotten:
                number, swallow, away = self._losing
                self._losing = (number - 1, swallow, away) if number else None
                if not number:
                    self.cuts += 1
                    link.forgotten = swallow
                    if away:
                        self._ending = asyncio.create_task(self._go_away(away))
                    if not swallow:
                        return
            if self._swallows_replies or link.forgotten:
                continue
            if self._delay or self._scatter:
                await asyncio.sleep(self._delay + random.uniform(0.0, self._scatter))
            writer.write(data)
            await writer.drain()


class _Link:
    """One connection through the proxy."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.task: asyncio.Task[None] | None = None
        self.aborted = self.cutting = False
        self.forgotten = False
        self.held: bytes | None = None
        self.passed = asyncio.Event()
        self.closed = asyncio.Event()

    def add(self, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        if self.aborted:
            writer.transport.abort()

    def abort(self) -> None:
        self.aborted = True
        for writer in self.writers:
            writer.transport.abort()
