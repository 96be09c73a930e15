"""A private server for benchmarks: on a free port, with its data in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.model import Facts, Unavailable


def stage(**facts: str) -> Callable[[], AbstractContextManager[Facts]]:
    """A stage with a Valkey server without persistence.

    Args:
        facts: more facts for the workers, for example the lease: ttl="1".
    """

    @contextmanager
    def stand() -> Iterator[Facts]:
        # Imported here, since the command's help needs no server.
        from tests.servers import Missing, RedisServer

        try:
            server = RedisServer("valkey")
        except Missing as missing:
            raise Unavailable(str(missing)) from missing
        with server:
            yield {"url": server.url, **facts}

    return stand
