"""The lock with an identity that the caller chooses, released by an optimistic transaction."""

from functools import partial

from interlock.core.claims import checked_ttl
from interlock.core.errors import StoreError
from interlock.keylock._async.onekey import PATIENCE, AsyncOneKey, or_undo
from interlock.keylock.arguments import checked_bytes, milliseconds
from interlock.keylock.clients import Sent, as_bytes, translated
from interlock.remote.redispy import names_of
from interlock.runtime import _aio as rt

TRIES = 64
"""So often a release looks again when the key changes while it looks, which takes others a round trip each."""


class AsyncIdentityLock(AsyncOneKey):
    """A lock whose key holds the identity that its owner chose: whoever knows it can release.

    So an owner can be asked for by name, and a program that starts again can give back what it held. The identity
    must be its owner's own: the lock can't tell two that use the same.

    Args:
        client: of redis-py or valkey-py, for threads or of their asyncio modules.
        key: the key.

    Raises:
        InvalidArgument: an argument is of a wrong type.
    """

    async def acquire(self, identity: str | bytes, ttl: float | None = 30.0) -> bool:
        """Take the lock if it is free; one try.  A task that is cancelled meanwhile leaves nothing behind.

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
        text = checked_bytes(identity, "identity")
        ms = None if ttl is None else milliseconds(checked_ttl(ttl))
        return await or_undo(self._undo, partial(rt.finish_within, PATIENCE, self._acquire), text, ms, [False])

    async def _acquire(self, identity: bytes, ms: int | None, taken: list[bool]) -> bool:
        taken[0] = await self._take(identity, ms)
        return taken[0]

    async def _undo(self, identity: bytes, ms: int | None, taken: list[bool]) -> None:
        if taken[0]:
            await self._drop(identity, Sent())  # if that fails, the key ends with its ttl

    async def release(self, identity: str | bytes) -> bool:
        """Delete the key if it holds this identity; a task that is cancelled meanwhile has done it.

        The key is watched, read, and deleted by a transaction that the server refuses if the key has changed since.

        Args:
            identity: what `acquire` was given.

        Returns:
            True if the lock is free now, by this call or already; False if it is somebody else's.

        Raises:
            InvalidArgument: the identity is of a wrong type.
            StoreError: the server can't be reached or refuses; call again.
        """
        return await rt.finish_within(PATIENCE, self._release, checked_bytes(identity, "identity"))

    async def _release(self, identity: bytes) -> bool:
        for _ in range(TRIES):
            try:
                return await self._try_to_release(identity)
            except Exception as error:
                if "WatchError" in names_of(error):
                    continue  # the key has changed
                failure = translated(error, "WATCH … EXEC", self._key)
                if failure is None:
                    raise
                raise failure from error
        raise StoreError(f"the key {self._key!r} changed {TRIES} times while it was looked at; call release() again")

    async def _try_to_release(self, identity: bytes) -> bool:
        pipe = self._client.pipeline(transaction=True)
        try:
            await pipe.watch(self._key)
            found = await pipe.execute_command("GET", self._key, NEVER_DECODE=True)
            if found is None or as_bytes(found) != identity:
                await pipe.unwatch()
                return found is None
            pipe.multi()
            pipe.delete(self._key)
            await pipe.execute()
            return True
        finally:
            await pipe.reset()

    async def owned(self, identity: str | bytes) -> bool:
        """Ask the server whether this identity holds the lock.

        Raises:
            InvalidArgument: the identity is of a wrong type.
            StoreError: the server can't be reached or refuses.
        """
        text = checked_bytes(identity, "identity")
        return await self._holder() == text
