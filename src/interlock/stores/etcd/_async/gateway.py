"""Requests to the members of an etcd cluster over the JSON gateway: log-in, deadlines, and fail-over."""

import contextlib
import encodings.idna  # noqa: F401  # loaded now: the first connection imports it, perhaps in a forked child
import json
import math
import random
import socket
from collections.abc import Callable, Sequence
from functools import lru_cache

import httpx

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.failures import Denied, TransientRefusal, Unreachable, closed, ended, no_answer, no_room
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.runtime.process import OwnedDescriptor, checked_pid
from interlock.stores.etcd.options import EtcdOptions
from interlock.stores.etcd.wire import Json, LoggedOut, refusal

LEADER = {"Grpc-Metadata-Hasleader": "true"}
"""With this header a member without a leader fails immediately, and ends its watches."""
LONGEST_SILENCE = 10.0  # seconds without an event, after which the watch is requested again


class AsyncGateway:
    """The members of one cluster, for one process or event loop.

    Args:
        options: how to connect.

    Attributes:
        answered: True if a member has ever answered: then the address is right.
        closed: True if no more requests are sent.
    """

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._pid = checked_pid()
        self._member = random.randrange(len(options.members))
        self._token = ""
        self.closed = False
        self._sockets: dict[int, OwnedDescriptor] = {}  # by the numbers of their descriptors
        self.answered = False
        # A transport, not a Client: its redirects, cookies and proxies cost as much as the request itself.
        limits = httpx.Limits(max_connections=options.most + 1, max_keepalive_connections=options.most)  # + the watch
        self._transport = httpx.AsyncHTTPTransport(options.tls, trust_env=False, limits=limits)

    def deadline(self, limit: float = math.inf) -> float:
        """Return the deadline for all requests of a step: after the I/O time-out, or `limit` seconds if shorter."""
        return clock.now() + min(limit, self._options.io_timeout)

    async def transact(
        self,
        compare: Sequence[Json],
        success: Sequence[Json],
        failure: Sequence[Json],
        deadline: float,
        repeat: bool = True,
    ) -> Json:
        """Perform operations as one transaction; return etcd's reply.

        Args:
            compare: the comparisons.
            success, failure: the operations if all comparisons are true, and otherwise.
            deadline, repeat: as for `ask`.

        Raises:
            StoreError: as `ask`.
        """
        body = {"compare": compare, "success": success, "failure": failure}
        return (await self.ask("kv/txn", json.dumps(body), deadline, repeat))[0]

    async def ask(self, path: str, body: str, deadline: float, repeat: bool = True, left: int = 0) -> list[Json]:
        """Send a request to one member after another until a reply comes; first one twice.

        Args:
            path: the path of the request, without "/v3/".
            body: one JSON object, or several for a stream.
            deadline: the end of the wait, by `clock.now`.
            repeat: True if the request may be performed twice.
            left: the maximum number of members to ask; 0 for all.

        Raises:
            Refused, Unreachable, Denied: nothing was done.
            UnknownOutcome: there was no reply.
        """
        left, member = left or len(self._options.members) + 1, self._member
        shares = left if repeat else min(left, 2)  # without a retry the first request may take more of the time
        try:
            return await self._ask(path, body, max(0.001, (deadline - clock.now()) / shares))
        except (TransientRefusal, Unreachable, UnknownOutcome) as error:
            if member == self._member:  # otherwise another request has already changed the member
                self.invalidate_connections()
            if isinstance(error, Denied) or left == 1 or (isinstance(error, UnknownOutcome) and not repeat):
                raise
        return await self.ask(path, body, deadline, repeat, left - 1)

    async def _ask(self, path: str, body: str, seconds: float) -> list[Json]:
        """Send a request to one member; log in first if it asks for that."""
        try:
            return await self._send(path, body, seconds)
        except LoggedOut:
            if not self._options.login:
                raise
        self._token = ""
        self._token = (await self._send("auth/authenticate", json.dumps(self._options.login), seconds))[0]["token"]
        return await self._send(path, body, seconds)

    async def _send(self, path: str, body: str, seconds: float) -> list[Json]:
        where = self._options.members[self._member]
        try:
            response = await self._respond(where, path, body, seconds, seconds)
            text = await response.aread()
        except (httpx.HTTPError, OSError) as error:  # anyio lets some TLS errors through as OSError
            raise self._failure(error, where, seconds) from error
        self.answered = True
        return _read(response.status_code, text, where)

    async def _respond(self, where: str, path: str, body: str, seconds: float, silence: float) -> httpx.Response:
        """Send a request to a member, and note its socket; send nothing in a forked child."""
        if self.closed or self._pid != checked_pid():
            raise closed()
        self._let_go()
        limits = {"connect": seconds, "read": silence, "write": seconds, "pool": seconds}
        headers = LEADER | {"Authorization": self._token} if self._token else LEADER
        url = _url(f"{where}/v3/{path}")
        request = httpx.Request("POST", url, headers=headers, content=body, extensions={"timeout": limits})
        response = await self._transport.handle_async_request(request)
        used = response.extensions["network_stream"].get_extra_info("socket")
        owner = used if isinstance(used, socket.socket) else None  # asyncio does not give its sockets away
        self._sockets[used.fileno()] = OwnedDescriptor(used.fileno(), owner)
        if self.closed:  # checked after the socket is recorded: `abort` shuts down only recorded sockets
            await response.aclose()
            raise closed()
        return response

    def _let_go(self) -> None:
        """Detach sockets that the program has closed, so that httpx closes no other file."""
        for file in list(self._sockets.values()):
            file.is_ours()  # if not, the socket detaches the number

    def _failure(self, error: Exception, where: str, seconds: float) -> StoreError:
        """Return the StoreError for an error of httpx or of its transport."""
        if "SSL" in str(error):
            return Denied(f"{where} refuses TLS, or is not etcd: {error}. Check ssl_ca=, ssl_cert= and ssl_key=.")
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return Unreachable(f"Cannot connect to {where}: {error}. Check that etcd is running, and check the URL.")
        if isinstance(error, httpx.PoolTimeout):
            return no_room(where, self._options.most, seconds)
        if isinstance(error, httpx.TimeoutException):
            return no_answer(where, seconds)
        # A TLS 1.3 server that requires a client certificate reports that after the handshake, or only disconnects.
        if self._options.tls and not self.answered:
            error = OSError(
                f"{error or 'it closed the connection'} (if it requires a client certificate, see "
                "ssl_cert= and ssl_key=)"
            )
        return ended(where, error)

    async def listen(self, body: str, on_line: Callable[[str], rt.Result[bool]]) -> None:
        """Watch until no event came for `LONGEST_SILENCE`; one watch at a time.

        Args:
            body: the request.
            on_line: is called with each line of the reply, until it returns False.

        Raises:
            StoreError: the watch ended for another reason.
        """
        where, silence = self._options.members[self._member], LONGEST_SILENCE * random.uniform(0.8, 1.0)
        try:
            response = await self._respond(where, "watch", body, self._options.io_timeout, silence)
            try:
                async for line in response.aiter_lines():
                    if not await on_line(line):
                        return
            finally:
                self._let_go()
                await response.aclose()
        except httpx.ReadTimeout:
            return
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self._failure(error, where, silence) from error
        raise ended(where)

    def invalidate_connections(self) -> None:
        """Send further requests to the next member."""
        self._member = (self._member + 1) % len(self._options.members)

    async def aclose(self) -> None:
        """Close the connections, after `abort`."""
        await self._transport.aclose()

    def abort(self) -> None:
        """Refuse further requests, and end those in progress and the watch, without waiting."""
        self.closed = True
        self._let_go()
        for file in list(self._sockets.values()):
            with contextlib.suppress(OSError):
                file.shut_down()


_url = lru_cache(64)(httpx.URL)


def _read(status: int, text: bytes, where: str) -> list[Json]:
    """Return the JSON objects of a member's reply.

    Raises:
        StoreError: the member refused, or the server is not etcd.
    """
    try:
        answers = [json.loads(line) for line in text.splitlines() or [b""]]
    except ValueError as error:
        raise StoreError(f"{where} does not reply like etcd 3.4 or later (HTTP {status}). Check the URL.") from error
    for each in answers:
        if "error" in each:
            raise refusal(each, where)
    return [each.get("result", each) for each in answers]
