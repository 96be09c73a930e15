"""A private server for benchmarks: on a free port, with its data in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.model import Facts, Unavailable


@contextmanager
def stage() -> Iterator[Facts]:
    """A Valkey server without persistence."""
    # Imported here, since the command's help needs no server.
    from tests.servers import Missing, RedisServer

    try:
        server = RedisServer("valkey")
    except Missing as missing:
        raise Unavailable(str(missing)) from missing
    with server:
        yield {"url": server.url}
