"""Requests to the members of an etcd cluster over the JSON gateway: log-in, deadlines, and the next member."""

import contextlib
import encodings.idna  # noqa: F401  # else the first connection imports it, perhaps in a forked child
import json
import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache

import httpx

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.remote.failures import Denied, Passing, Unreachable, closed, ended, no_answer, no_room
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.runtime.process import Descriptor, checked_pid
from interlock.stores.etcd.options import EtcdOptions
from interlock.stores.etcd.wire import Json, LoggedOut, refusal

LEADER = {"Grpc-Metadata-Hasleader": "true"}
"""Lets a member that is cut off from the majority say so at once, and end its watches."""
LONGEST_SILENCE = 10.0  # seconds, after which a watch is asked for anew


class AsyncGateway:
    """The members of one cluster, for one process or event loop.

    Args:
        options: how to connect.

    Attributes:
        answered: whether one of them ever did: then the address is right.
        closed: whether nothing is asked any more.
    """

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._pid = checked_pid()
        self._member = random.randrange(len(options.members))
        self._token = ""
        self.closed = False
        self._watch: Descriptor | None = None
        self.answered = False
        # No client: what that adds (redirects, cookies, proxies) costs as much as the request itself.
        limits = httpx.Limits(max_connections=options.most + 1, max_keepalive_connections=options.most)  # and a watch
        self._transport = httpx.AsyncHTTPTransport(options.tls, trust_env=False, limits=limits)

    def deadline(self, limit: float = math.inf) -> float:
        """Return until when all requests of a step are to be answered, after so many seconds at most."""
        return clock.now() + min(limit, self._options.io_timeout)

    async def transact(
        self,
        compare: Sequence[Json],
        success: Sequence[Json],
        failure: Sequence[Json],
        deadline: float,
        repeat: bool = True,
    ) -> Json:
        """Perform operations as one transaction; return etcd's answer.

        Args:
            compare: what must be so.
            success, failure: what is done then, and otherwise.
            deadline, repeat: as for `ask`.

        Raises:
            StoreError: as `ask`.
        """
        body = {"compare": compare, "success": success, "failure": failure}
        return (await self.ask("kv/txn", json.dumps(body), deadline, repeat))[0]

    async def ask(self, path: str, body: str, deadline: float, repeat: bool = True, left: int = 0) -> list[Json]:
        """Send a request to one member after the other, until one answers; to the first one twice.

        Args:
            path: of the request.
            body: one JSON object, or several for a stream.
            deadline: until when to wait, by `clock.now`.
            repeat: whether it may be performed twice.
            left: so many members may be asked; 0 for all.

        Raises:
            Refused, Unreachable, Denied: nothing was done.
            UnknownOutcome: there was no answer.
        """
        left, member = left or len(self._options.members) + 1, self._member
        shares = left if repeat else min(left, 2)  # where no other is asked after this one, it may take longer
        try:
            return await self._ask(path, body, max(0.001, (deadline - clock.now()) / shares))
        except (Passing, Unreachable, UnknownOutcome) as error:
            if isinstance(error, Denied) or left == 1 or (isinstance(error, UnknownOutcome) and not repeat):
                raise
        if member == self._member:  # else another request has found that out already
            self.distrust()
        return await self.ask(path, body, deadline, repeat, left - 1)

    async def _ask(self, path: str, body: str, seconds: float) -> list[Json]:
        """Ask one member, and log in where that is needed."""
        try:
            return await self._send(path, body, seconds)
        except LoggedOut:
            if not self._options.login:
                raise
        self._token = ""
        (reply,) = await self._send("auth/authenticate", json.dumps(self._options.login), seconds)
        self._token = reply["token"]
        return await self._send(path, body, seconds)

    async def _send(self, path: str, body: str, seconds: float) -> list[Json]:
        where = self._options.members[self._member]
        try:
            response = await self._transport.handle_async_request(self._request(where, path, body, seconds, seconds))
            text = await response.aread()
            if self.closed:  # a connection that opened meanwhile: the pool has forgotten it
                await response.extensions["network_stream"].aclose()
        except (httpx.HTTPError, OSError) as error:  # anyio passes on some of TLS
            raise self._failure(error, where, seconds) from error
        self.answered = True
        return _read(response.status_code, text, where)

    def _request(self, where: str, path: str, body: str, seconds: float, silence: float) -> httpx.Request:
        """Return a request of a member; of this process, which is no child of the one that connected."""
        if self.closed or self._pid != checked_pid():
            raise closed()
        limits = {"connect": seconds, "read": silence, "write": seconds, "pool": seconds}
        headers = LEADER | {"Authorization": self._token} if self._token else LEADER
        url = _url(f"{where}/v3/{path}")
        return httpx.Request("POST", url, headers=headers, content=body, extensions={"timeout": limits})

    def _failure(self, error: Exception, where: str, seconds: float) -> StoreError:
        """Return what an error of httpx, or of what is below it, means."""
        if "SSL" in str(error):
            return Denied(f"{where} refuses TLS, or is another server: {error}; see ssl_ca=, ssl_cert= and ssl_key=")
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return Unreachable(f"{where} can't be reached: {error}; does etcd run there, and is the URL right?")
        if isinstance(error, httpx.PoolTimeout):
            return no_room(where, self._options.most, seconds)
        if isinstance(error, httpx.TimeoutException):
            return no_answer(where, seconds)
        # In TLS 1.3 a server that misses a certificate says so after the handshake, or just hangs up.
        if self._options.tls and not self.answered:
            error = OSError(f"{error or 'it hung up'}; does it want a client certificate? See ssl_cert= and ssl_key=")
        return ended(where, error)

    async def listen(self, body: str, hear: Callable[[str], rt.Result[bool]]) -> None:
        """Watch, until nothing was said for a while; one watch at a time.

        Args:
            body: the request.
            hear: is called with each line of the answer, until it answers False.

        Raises:
            StoreError: the watch ended otherwise.
        """
        where, silence = self._options.members[self._member], LONGEST_SILENCE * random.uniform(0.8, 1.0)
        try:
            request = self._request(where, "watch", body, self._options.io_timeout, silence)
            response = await self._transport.handle_async_request(request)
            try:
                self._watch = Descriptor(response.extensions["network_stream"].get_extra_info("socket").fileno())
                if self.closed:  # asked after that: who closes shuts down what is there
                    raise closed()
                async for line in response.aiter_lines():
                    if not await hear(line):
                        return
            finally:
                self._watch = None
                await response.aclose()
        except httpx.ReadTimeout:
            return
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self._failure(error, where, silence) from error
        raise ended(where)

    def distrust(self) -> None:
        """Ask another member from now on."""
        self._member = (self._member + 1) % len(self._options.members)

    async def aclose(self) -> None:
        """Close the connections, after `abort`."""
        await self._transport.aclose()

    def abort(self) -> None:
        """Take no more requests, and end the watch; never waits."""
        self.closed = True
        watch = self._watch
        if watch is not None:
            with contextlib.suppress(OSError):
                watch.shut_down()


_url = lru_cache(64)(httpx.URL)


def _read(status: int, text: bytes, where: str) -> list[Json]:
    """Return what a member answered.

    Raises:
        StoreError: it refused; or it is no etcd.
    """
    try:
        answers = [json.loads(line) for line in text.splitlines() or [b""]]
    except ValueError as error:
        raise StoreError(f"{where} does not answer as etcd 3.4 or later does (HTTP {status}): is it one?") from error
    for each in answers:
        if "error" in each:
            raise refusal(each, where)
    return [each.get("result", each) for each in answers]
