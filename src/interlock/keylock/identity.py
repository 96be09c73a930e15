"""The lock with an identity that the caller chooses, released by an optimistic transaction, in both colours."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from interlock.core.effects import Op
from interlock.core.errors import StoreError
from interlock.keylock import commands
from interlock.keylock.arguments import checked_client, checked_key, checked_limit, checked_text, milliseconds
from interlock.keylock.faults import names_of, translated
from interlock.keylock.server import CANCELLED_IO_TIMEOUT, KeyServer, end_of
from interlock.runtime.aio import arun
from interlock.runtime.sync import run

TRIES = 64
"""So often a release looks again when the key changes while it looks, which takes others a round trip each."""


class _IdentitySteps:
    _tasks = False

    def __init__(self, client: Any, key: str | bytes) -> None:
        self._client = checked_client(client, self._tasks)
        self._key = checked_key(key)
        self._server = KeyServer(client)

    @property
    def key(self) -> str | bytes:
        """The key of the lock."""
        return self._key

    def _acquiring(self, identity: object, ttl: object) -> Op[bool]:
        text, limit = checked_text(identity, "identity"), checked_limit(ttl)
        ms = None if limit is None else milliseconds(limit)
        return commands.take(self._server, self._key, text, ms, once=False)

    def _looking(self) -> Op[bytes | None]:
        return commands.holder(self._server, self._key)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Translate what a client raises; what it raises because the key has changed is no failure."""
        try:
            yield
        except Exception as error:
            failure = None if "WatchError" in names_of(error) else translated(error, "WATCH … EXEC", self._key)
            if failure is None:
                raise
            raise failure from error

    def _restless(self) -> StoreError:
        return StoreError(f"the key {self._key!r} changed {TRIES} times while it was looked at; call release() again")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r}>"


class IdentityLock(_IdentitySteps):
    """A lock whose key holds the identity that its owner chose: whoever knows it can release.

    So an owner can be asked for by name, and a program that starts again can give back what it held. The identity
    must be its owner's own: the lock can't tell two that use the same.

    Args:
        client: a blocking client of redis-py or valkey-py.
        key: the key.

    Raises:
        InvalidArgument: an argument is of a wrong type.
    """

    def acquire(self, identity: str | bytes, ttl: float | None = 30.0) -> bool:
        """Take the lock if it is free; one try.

        Args:
            identity: what is written into the key.
            ttl: seconds until the key expires; None for never.

        Returns:
            True if it is now the caller's; False if it is held, be it by the same identity.

        Raises:
            InvalidArgument: an argument is of a wrong type or out of its range.
            StoreError: the server can't be reached or refuses; `owned` tells whether it was done nevertheless, also
                after an interrupt.
        """
        return run(self._acquiring(identity, ttl))

    def release(self, identity: str | bytes) -> bool:
        """Delete the key if it holds this identity.

        The key is watched, read, and deleted by a transaction that the server refuses if the key has changed since.

        Args:
            identity: what `acquire` was given.

        Returns:
            True if the lock is free now, by this call or already; False if it is somebody else's.

        Raises:
            InvalidArgument: the identity is of a wrong type.
            StoreError: the server can't be reached or refuses; call again.
        """
        text = checked_text(identity, "identity")
        for _ in range(TRIES):
            try:
                with self._watching():
                    return self._try_to_release(text)
            except Exception as error:
                if "WatchError" not in names_of(error):
                    raise
        raise self._restless()

    def _try_to_release(self, identity: bytes) -> bool:
        pipe = self._client.pipeline(transaction=True)
        try:
            pipe.watch(self._key)
            found = pipe.execute_command("GET", self._key, NEVER_DECODE=True)
            if found is None or commands.as_bytes(found) != identity:
                pipe.unwatch()
                return found is None
            pipe.multi()
            pipe.delete(self._key)
            pipe.execute()
            return True
        finally:
            pipe.reset()

    def owned(self, identity: str | bytes) -> bool:
        """Ask the server whether this identity holds the lock.

        Raises:
            InvalidArgument: the identity is of a wrong type.
            StoreError: the server can't be reached or refuses.
        """
        text = checked_text(identity, "identity")
        return run(self._looking()) == text

    def locked(self) -> bool:
        """Ask the server whether anybody holds the lock.

        Raises:
            StoreError: the server can't be reached or refuses.
        """
        return run(self._looking()) is not None


class AsyncIdentityLock(_IdentitySteps):
    """An `IdentityLock` for asyncio.

    Args:
        client: an asyncio client of redis-py or valkey-py.
        key: the key.

    Raises:
        InvalidArgument: an argument is of a wrong type.
    """

    _tasks = True

    async def acquire(self, identity: str | bytes, ttl: float | None = 30.0) -> bool:
        """Take the lock if it is free; as `IdentityLock.acquire`. Cancelled, it leaves nothing behind."""
        task = asyncio.ensure_future(arun(self._acquiring(identity, ttl)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await end_of(task, CANCELLED_IO_TIMEOUT)
            if not task.cancelled() and task.exception() is None and task.result():
                text = checked_text(identity, "identity")
                dropping = asyncio.ensure_future(arun(commands.drop(self._server, self._key, text)))
                await end_of(dropping, CANCELLED_IO_TIMEOUT)  # if it fails, the key ends with its ttl
            raise

    async def release(self, identity: str | bytes) -> bool:
        """Delete the key if it holds this identity; as `IdentityLock.release`."""
        text = checked_text(identity, "identity")
        for _ in range(TRIES):
            try:
                with self._watching():
                    return await self._try_to_release(text)
            except Exception as error:
                if "WatchError" not in names_of(error):
                    raise
        raise self._restless()

    async def _try_to_release(self, identity: bytes) -> bool:
        pipe = self._client.pipeline(transaction=True)
        try:
            await pipe.watch(self._key)
            found = await pipe.execute_command("GET", self._key, NEVER_DECODE=True)
            if found is None or commands.as_bytes(found) != identity:
                await pipe.unwatch()
                return found is None
            pipe.multi()
            pipe.delete(self._key)
            await pipe.execute()
            return True
        finally:
            await pipe.reset()

    async def owned(self, identity: str | bytes) -> bool:
        """Ask the server whether this identity holds the lock; as `IdentityLock.owned`."""
        text = checked_text(identity, "identity")
        return await arun(self._looking()) == text

    async def locked(self) -> bool:
        """Ask the server whether anybody holds the lock; as `IdentityLock.locked`."""
        return await arun(self._looking()) is not None
