"""The limit of asyncio on Redis, and a peer: both lock by SET NX PX and a compare-and-delete script."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from urllib.parse import urlsplit

from bench.contestants.locks import AsyncLock
from bench.contestants.redis_raw import COMPARE_AND_DELETE, key_of, packed, ttl_of
from bench.model import Place


class Streams:
    """Plain asyncio streams and commands encoded beforehand: the least possible cost of a lock for a task."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        digest = hashlib.sha1(COMPARE_AND_DELETE, usedforsecurity=False).hexdigest()
        key, token = key_of(place), secrets.token_hex(16)
        self._take = packed("SET", key, token, "NX", "PX", int(ttl_of(place) * 1000))
        self._give = packed("EVALSHA", digest, 1, key, token)

    async def _ask(self, command: bytes) -> bytes:
        if self._streams is None:
            parts = urlsplit(self._place.facts["url"])
            self._streams = await asyncio.open_connection(parts.hostname or "127.0.0.1", parts.port or 6379)
            await self._ask(packed("SCRIPT", "LOAD", COMPARE_AND_DELETE))
        reader, writer = self._streams
        writer.write(command)
        reply = await reader.read(4096)
        if not reply or reply.startswith(b"-"):
            raise RuntimeError(f"the server says {reply!r}")
        return reply

    async def acquire(self) -> None:
        """Take the key, which is free."""
        if await self._ask(self._take) != b"+OK\r\n":
            raise RuntimeError("somebody else has the key")

    async def release(self) -> None:
        """Delete it."""
        if await self._ask(self._give) != b":1\r\n":
            raise RuntimeError("the key was not ours")


def streams(place: Place) -> AsyncLock:
    """The limit; call it inside a running loop."""
    return Streams(place)
