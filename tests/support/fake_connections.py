"""Connections, pools and subscriptions in memory, for the tests of the pool and of the queue of a server."""

import asyncio
import threading
from typing import Any

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.core.failures import NoRoom
from interlock.storekit._async.listener import AsyncSubscription
from interlock.storekit._async.pool import AsyncPooled
from interlock.storekit._sync.pool import Pooled
from interlock.storekit._sync.server_queue import Asks
from interlock.testing.waiting import WAIT_LIMIT


class FakeConnection(Pooled[Any, Any]):
    """A connection that answers with the request, or raises it; after `hold` it waits for `go`."""

    def __init__(self, server: "FakeServer") -> None:
        self.server = server
        self.trust: object = None
        self.closed = False
        self.inside = 0

    def ask(self, request: Any, deadline: float) -> Any:
        self.inside += 1
        assert self.inside == 1, "two use one connection"
        assert not self.closed
        try:
            if request == "hold":
                assert self.server.go.wait(WAIT_LIMIT)
            if isinstance(request, Exception):
                raise request
            return request
        finally:
            self.inside -= 1

    def abandon(self, undo: Any) -> None:
        self.server.undone.append(undo)
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.server.open.remove(self)


class FakeServer:
    """The server that these connections connect to.

    Attributes:
        open: the open connections.
        made: the number of connections that were ever made.
        most: the number of connections that it accepts.
        undone: the requests that abandoned connections left for the server.
        go: lets requests of `hold` continue.
    """

    def __init__(self) -> None:
        self.open: list[FakeConnection] = []
        self.made = 0
        self.most = 1000
        self.undone: list[Any] = []
        self.go = threading.Event()

    def connect(self, deadline: float) -> FakeConnection:
        """Open a connection."""
        if len(self.open) >= self.most:
            raise NoRoom("as many as there may be")
        self.made += 1
        self.open.append(FakeConnection(self))
        return self.open[-1]


class AsyncEcho(AsyncPooled[str, str]):
    """A connection for tasks that answers with the request."""

    def __init__(self) -> None:
        self.trust: object = None

    async def ask(self, request: str, deadline: float) -> str:
        return request

    def abandon(self, undo: str | None) -> None:
        """Do nothing: there is nothing to close."""

    def close(self) -> None:
        """Do nothing, as well."""


class FailingPool(Asks[str, None]):
    """A pool whose requests meet errors, one after the other; later requests are answered.

    Attributes:
        asked: the requests.
    """

    def __init__(self, *errors: StoreError) -> None:
        self.entering: set[str] = set()
        self.asked: list[str] = []
        self._left = list(errors)

    def ask(self, request: str, deadline: float, undo: Claim | None = None) -> None:
        self.asked.append(request)
        if self._left:
            raise self._left.pop(0)

    def invalidate_connections(self) -> None:
        """Do nothing: there are no connections."""

    close = close_idle = invalidate_connections


class SilentSubscription(AsyncSubscription):
    """A subscription that receives nothing."""

    async def receive(self, deadline: float) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def confirm(self, deadline: float) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
