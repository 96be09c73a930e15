"""Fixtures of the tests of the locks with one key: both servers, both colours."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from interlock import redis as locks
from interlock.testing.actors import Actor, Background, TaskActor, ThreadActor
from tests.servers import Proxy, RedisServer, serving

CLIENTS = {
    ("redis", "threads"): redis.Redis, ("redis", "tasks"): redis.asyncio.Redis,
    ("valkey", "threads"): valkey.Valkey, ("valkey", "tasks"): valkey.asyncio.Valkey,
}  # fmt: skip


_names = count(1)


async def until(condition: Callable[[], Any]) -> None:
    """Wait in a task until something is true."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not happen")


class KeyLockEnvironment:
    """A server, a colour, and the actors of a test.

    Args:
        server: empty when the test begins.
        sync_or_async: "threads" or "tasks".

    Attributes:
        eye: a separate connection to look at the server.
        actor: the first actor; `do` asks it.
    """

    def __init__(self, server: RedisServer, sync_or_async: str) -> None:
        self.server = server
        self.sync_or_async = sync_or_async
        self.eye = redis.Redis(host=server.host, port=server.port, decode_responses=True)
        self.eye.flushall()
        self._background = Background() if sync_or_async == "tasks" else None
        self._clients: list[Any] = []
        self._actors: list[Actor] = []
        self._proxies: list[Proxy] = []
        self._numbers = count(1)
        self.key = f"lock:{next(_names)}"
        self.actor = self.new_actor()
        self.do = self.actor.do

    def client(self, library: str = "redis", **how: Any) -> Any:
        """Return a new client of this colour."""
        how = {"host": self.server.host, "port": self.server.port, **how}
        client = self.call(CLIENTS[library, self.sync_or_async], **how)
        self._clients.append(client)
        return client

    def proxy(self) -> Proxy:
        """Return a proxy in front of the server."""
        proxy = Proxy(self.server.host, self.server.port)
        self._proxies.append(proxy)
        return proxy

    def client_through(self, proxy: Proxy, retries: int | None = None, **how: Any) -> Any:
        """Return a client that connects through a proxy.

        Args:
            proxy: the proxy.
            retries: how often the client tries again by itself; None for the library's own default.
            how: as for `client`.
        """
        if retries is not None:
            how["retry"] = self.retry(how.get("library", "redis"), retries)
        return self.client(host=proxy.host, port=proxy.port, **how)

    def retry(self, library: str, retries: int) -> Any:
        """Return a library's setting of how often its clients try again, without a pause."""
        kind = import_module(f"{library}.retry" if self.sync_or_async == "threads" else f"{library}.asyncio.retry")
        return kind.Retry(import_module(f"{library}.backoff").NoBackoff(), retries)

    def call(self, function: Any, *args: Any, **how: Any) -> Any:
        """Call a function where this colour runs: on the loop, or in this thread."""
        if self._background is None:
            return function(*args, **how)

        async def called() -> Any:
            result = function(*args, **how)
            return await result if inspect.isawaitable(result) else result

        return self._background.run(called())

    def lock(self, name: str = "KeyLock", key: str | bytes | None = None, client: Any = None, **how: Any) -> Any:
        """Return a lock of this colour, by the name of its class for threads."""
        kind = getattr(locks, name if self.sync_or_async == "threads" else f"Async{name}")
        if name == "ClientLock":
            return self.call((client or self.client()).lock, key or self.key, lock_class=kind, **how)
        return self.call(kind, client or self.client(), key or self.key, **how)

    def new_actor(self) -> Actor:
        """Return a new thread or task."""
        actor = ThreadActor() if self._background is None else TaskActor(self._background.loop)
        self._actors.append(actor)
        return actor

    until = staticmethod(until)

    def calls(self, command: str) -> int:
        """Return how often the server ran a command (that it knows) since the test began."""
        found = self.eye.info("commandstats").get(f"cmdstat_{command.lower()}", {})
        return int(found.get("calls", 0))

    def close(self) -> None:
        """End all actors, clients and proxies."""
        for actor in self._actors:
            actor.end()
        for client in self._clients:
            if self._background is None:
                client.close()
            else:
                self._background.run(client.aclose())
        for proxy in self._proxies:
            proxy.close()
        self.eye.close()
        if self._background is not None:
            self._background.close()


@pytest.fixture(scope="session", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server that all tests of this process share."""
    yield from serving(request.param, lambda: RedisServer(request.param))


@pytest.fixture(params=["threads", "tasks"])
def sync_or_async(request: pytest.FixtureRequest) -> str:
    """Who acquires."""
    found: str = request.param
    return found


@pytest.fixture
def env(server: RedisServer, sync_or_async: str) -> Iterator[KeyLockEnvironment]:
    """An empty server and actors."""
    playing = KeyLockEnvironment(server, sync_or_async)
    playing.eye.config_resetstat()
    try:
        yield playing
    finally:
        playing.close()


@pytest.fixture(params=["valkey", "redis"])
def own_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server that the test may change."""
    yield from serving(request.param, lambda: RedisServer(request.param))
