"""One interface to the transactions of both colours, so that a test is written once, as a coroutine function."""

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, NamedTuple

from interlock.optimistic import Queued, atransact, transact


class Kind(NamedTuple):
    """A kind of client: its library, decoding of replies, and protocol version."""

    library: str = "redis"
    decode: bool = False
    protocol: int = 2

    def __str__(self) -> str:
        return f"{self.library}-{'str' if self.decode else 'bytes'}-resp{self.protocol}"


KINDS = [Kind(library, decode, protocol) for library in ("redis", "valkey") for decode in (False, True)
         for protocol in (2, 3)]  # fmt: skip


class Ready:
    """An awaitable with a result that is ready."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from ()
        return self.value


class Awaited:
    """The transaction of threads, with the interface of the one for tasks."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            value = found(*args, **kwargs)
            return value if isinstance(value, Queued) else Ready(value)

        return call


def played(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a coroutine for threads waited for an event loop")


class Interface:
    """Makes clients of one colour, and closes them."""

    package = ""  # of the clients, below their library

    def __init__(self) -> None:
        self._clients: list[Any] = []

    def client(self, url: str, kind: Kind = Kind(), **settings: Any) -> Any:
        """A client, which `close` closes."""
        return self._new("", "", url, kind, settings)

    def cluster(self, url: str, kind: Kind = Kind(), **settings: Any) -> Any:
        """A client of a cluster."""
        return self._new(".cluster", "Cluster", url, kind, settings)

    def _new(self, module: str, suffix: str, url: str, kind: Kind, settings: dict[str, Any]) -> Any:
        where = import_module(f"{kind.library}{self.package}{module}")
        root = getattr(where, f"{kind.library.capitalize()}{suffix}")
        how = {"decode_responses": kind.decode, "protocol": kind.protocol, **settings}
        self._clients.append(self._made(lambda: root.from_url(url, **how)))
        return self._clients[-1]

    def _made(self, make: Callable[[], Any]) -> Any:
        """Make a client where it is used."""
        return make()


class Threads(Interface):
    """`transact`."""

    name = "threads"

    def transact(self, where: Any, function: Callable[[Any], Any], *keys: Any, **limits: Any) -> Any:
        """Run a coroutine function in a transaction."""
        return transact(where, lambda tx: played(function(Awaited(tx))), *keys, **limits)

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients:
            client.close()


class Tasks(Interface):
    """`atransact`."""

    name = "tasks"
    package = ".asyncio"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()

    def _made(self, make: Callable[[], Any]) -> Any:
        async def made() -> Any:
            return make()

        return self.runner.run(made())

    def transact(self, where: Any, function: Callable[[Any], Any], *keys: Any, **limits: Any) -> Any:
        """Run a coroutine function in a transaction."""
        return self.runner.run(atransact(where, function, *keys, **limits))

    def close(self) -> None:
        """Close the clients and the loop."""
        for client in self._clients:
            self.runner.run(client.aclose())
        self.runner.close()
