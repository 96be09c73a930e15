# Generated from _async/gateway.py by tools/unasync.py; change that one.
"""Requests to the members of an etcd cluster over the JSON gateway: log-in, deadlines, and the next member."""

import encodings.idna  # noqa: F401  # else the first connection imports it, perhaps in a forked child
import json
import random
import ssl
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import httpx

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.remote.failures import Denied, Passing, Refused, Unreachable, closed, ended, no_answer, no_room
from interlock.runtime import clock
from interlock.runtime.process import checked_pid
from interlock.stores.etcd.options import EtcdOptions
from interlock.stores.etcd.wire import LOGIN, Json, refusal

LEADER = {"Grpc-Metadata-Hasleader": "true"}
"""Lets a member that is cut off from the majority say so at once, and end its watches."""
LONGEST_SILENCE = 10.0  # seconds, after which a watch is asked for anew


class Transacted(NamedTuple):
    """The answer to a transaction.

    Attributes:
        succeeded: whether what was compared was so.
        responses: of the operations that were performed.
        revision: of etcd, after it.
    """

    succeeded: bool
    responses: list[Json]
    revision: int


class Gateway:
    """The members of one cluster, for one process or event loop.

    Args:
        options: how to connect.

    Attributes:
        answered: whether one of them ever did: then the address is right.
    """

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._pid = checked_pid()
        self._member = random.randrange(len(options.members))
        self._token = ""
        self._closed = False
        self.answered = False
        # Transports, not clients: what those add (redirects, cookies, proxies) costs as much as the request itself.
        limits = httpx.Limits(max_connections=options.most, max_keepalive_connections=options.most)
        self._requests = httpx.HTTPTransport(options.tls, trust_env=False, limits=limits)
        # Watches have connections of their own, which end with them: who waits keeps nobody from asking.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._watches = httpx.HTTPTransport(options.tls, trust_env=False, limits=limits)

    @property
    def where(self) -> str:
        """The member that is asked now."""
        return self._options.members[self._member]

    def transact(
        self, compare: Sequence[Json], success: Sequence[Json], failure: Sequence[Json] = (), repeat: bool = True
    ) -> Transacted:
        """Perform operations as one transaction.

        Args:
            compare: what must be so.
            success, failure: what is done then, and otherwise.
            repeat: whether it may be performed twice.

        Raises:
            StoreError: as `ask`.
        """
        (reply,) = self.ask(
            "kv/txn", json.dumps({"compare": compare, "success": success, "failure": failure}), repeat
        )
        return Transacted("succeeded" in reply, reply.get("responses", []), int(reply["header"]["revision"]))

    def ask(self, path: str, body: str, repeat: bool = True, limit: float = 0.0) -> list[Json]:
        """Send a request to one member after the other, until one answers.

        Args:
            path: of the request.
            body: one JSON object, or several for a stream.
            repeat: whether it may be performed twice.
            limit: seconds to wait at most; 0 for those of the options.

        Raises:
            Refused, Unreachable, Denied: nothing was done.
            UnknownOutcome: there was no answer.
        """
        deadline = clock.now() + (limit or self._options.io_timeout)
        left = len(self._options.members)
        while True:
            member = self._member
            try:
                return self._ask(path, body, (deadline - clock.now()) / left)
            except (Denied, Refused, Unreachable, UnknownOutcome) as error:
                if not isinstance(error, (Unreachable, Passing, UnknownOutcome)) or isinstance(error, Denied):
                    raise
                if member == self._member:  # else somebody else has found that out already
                    self._member = (member + 1) % len(self._options.members)
                left -= 1
                if not left or clock.now() >= deadline or (isinstance(error, UnknownOutcome) and not repeat):
                    raise

    def _ask(self, path: str, body: str, seconds: float) -> list[Json]:
        """Ask one member, and log in where that is needed."""
        try:
            return self._send(path, body, self._login(seconds), seconds)
        except Refused as error:
            if error.code != LOGIN:
                raise
        self._token = ""  # it was restarted, or somebody changed a user
        return self._send(path, body, self._login(seconds), seconds)

    def _login(self, seconds: float) -> dict[str, str]:
        """Return the headers of a request."""
        if not self._options.user:
            return LEADER
        if not self._token:
            who = {"name": self._options.user, "password": self._options.password}
            (reply,) = self._send("auth/authenticate", json.dumps(who), LEADER, seconds)
            self._token = reply["token"]
        return LEADER | {"Authorization": self._token}

    def _send(self, path: str, body: str, headers: dict[str, str], seconds: float) -> list[Json]:
        where = self.where
        try:
            request = self._request(where, path, body, headers, seconds, seconds)
            response = self._requests.handle_request(request)
            text = response.read()
        except (httpx.HTTPError, OSError) as error:  # anyio passes on some of TLS
            raise self._failure(error, where, seconds) from error
        answers = _read(response.status_code, text, where)
        self.answered = True
        return answers

    def _request(
        self, where: str, path: str, body: str, headers: dict[str, str], seconds: float, silence: float
    ) -> httpx.Request:
        """Return a request of a member; of this process, which is no child of the one that connected."""
        if self._closed or self._pid != checked_pid():
            raise closed()
        limits = {"connect": seconds, "read": silence, "write": seconds, "pool": seconds}
        url = _url(f"{where}/v3/{path}")
        return httpx.Request("POST", url, headers=headers, content=body, extensions={"timeout": limits})

    def _failure(self, error: Exception, where: str, seconds: float) -> StoreError:
        """Return what an error of httpx, or of what is below it, means."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            return Denied(f"{where} refuses TLS, or is somebody else: {cause}; see ssl_ca=, ssl_cert= and ssl_key=")
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return Unreachable(f"{where} can't be reached: {error}")
        if isinstance(error, httpx.PoolTimeout):
            return no_room(where, self._options.most, seconds)
        if isinstance(error, httpx.TimeoutException):
            return no_answer(where, seconds)
        # In TLS 1.3 a server that misses a certificate says so after the handshake, or just hangs up.
        if self._options.tls and not self.answered:
            error = OSError(f"{error or 'it hung up'}; does it want a client certificate? See ssl_cert= and ssl_key=")
        return ended(where, error)

    def listen(self, body: str, hear: Any, open: Any) -> None:
        """Watch, until nothing was said for a while.

        Args:
            body: the request.
            hear: is called, in this colour, with each line of the answer.
            open: is called with the socket.

        Raises:
            StoreError: the watch ended otherwise.
        """
        where, silence = self.where, LONGEST_SILENCE * random.uniform(0.8, 1.0)
        seconds = self._options.io_timeout
        try:
            request = self._request(where, "watch", body, self._login(seconds), seconds, silence)
            response = self._watches.handle_request(request)
            try:
                if response.status_code != 200:
                    _read(response.status_code, response.read(), where)
                open(response.extensions["network_stream"].get_extra_info("socket"))
                for line in response.iter_lines():
                    hear(line)
            finally:
                response.close()
        except httpx.ReadTimeout:
            return
        except (httpx.HTTPError, OSError) as error:
            raise self._failure(error, where, silence) from error
        raise ended(where)

    def distrust(self) -> None:
        """Ask another member from now on."""
        self._member = (self._member + 1) % len(self._options.members)

    def close(self) -> None:
        """Close the connections, but for those of watches, which end with their readers."""
        self._closed = True
        self._requests.close()

    def abort(self) -> None:
        """Take no more requests: the loop has ended."""
        self._closed = True


_url = lru_cache(64)(httpx.URL)


def _read(status: int, text: bytes, where: str) -> list[Json]:
    """Return what a member answered.

    Raises:
        StoreError: it refused; or it is no etcd.
    """
    try:
        answers = [json.loads(line) for line in text.splitlines() if line]
    except ValueError:
        answers = []
    if not answers:
        raise StoreError(f"{where} does not answer as etcd 3.4 or later does (HTTP {status}): is it one?")
    for each in answers:
        if "error" in each:
            error = each["error"]
            raise refusal(each if isinstance(error, str) else error, where)
    return [each.get("result", each) for each in answers]
