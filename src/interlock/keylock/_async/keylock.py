"""Locks of one key of Redis or Valkey: plain, re-entrant, and by identity."""

from types import TracebackType
from typing import Any, TypeVar

from interlock.core.claims import UNSET, Unset, checked_seconds, checked_timeout, checked_ttl
from interlock.core.errors import InvalidArgument, LockLost, LockTimeout
from interlock.keylock._async.onekey import PATIENCE, AsyncOneKey
from interlock.keylock.arguments import checked_bytes, pauses, wait_limit
from interlock.keylock.clients import Attempt, Holding, Sent, reentrant_of
from interlock.runtime import _aio as rt
from interlock.runtime.blocks import CallSite, call_site

L = TypeVar("L", bound="AsyncKeyLock")


class AsyncKeyLock(AsyncOneKey):
    """A lock that is one string key: `SET key token NX PX ms`, deleted only by the owner of the token.

    It interoperates with programs that lock the same way, such as redis-py's `Lock`. There is no line: the first
    caller to try after a release gets the lock. The lease is not renewed automatically.

    The lock belongs to the task that calls `acquire`. If that task has ended, any other task may release the lock, so
    any task may await `acquire`. A cancelled `acquire` leaves nothing behind, and a cancelled `release` is completed:
    each waits at most 5 s for the reply to a sent request.

    Args:
        client: a sync or async client of redis-py or valkey-py, also of a Cluster.
        key: the key.
        ttl: lease in seconds unless `renew` is called; None for no end.
        timeout: maximum wait of `acquire` and `with` in seconds, None for no limit, 0 for one try; by default
            `acquire` tries once, `with` waits without a limit.
        poll: maximum pause between two tries of a waiter in seconds; the first pauses are shorter.
        shared: True if any thread or task may release another's acquisition.
        token: the token of an acquisition made elsewhere, which this object adopts.

    Raises:
        InvalidArgument: an argument has a wrong type or is out of range.
    """

    def __init__(
        self,
        client: object,
        key: str | bytes,
        *,
        ttl: float | None = 30.0,
        timeout: float | None | Unset = UNSET,
        poll: float = 0.25,
        shared: bool = False,
        token: str | bytes | None = None,
    ) -> None:
        super().__init__(client, key, shared)
        self._ttl = None if ttl is None else checked_ttl(ttl)
        self._timeout = timeout if isinstance(timeout, Unset) else checked_timeout(True, timeout)
        self._poll = checked_seconds(poll, "poll")
        if token is not None:
            self._holdings.add(Holding(self._encoded_key, checked_bytes(token, "token"), None, None))

    def _inherits(self, owner: Any) -> bool:
        return rt.IS_ASYNC and owner is not None and bool(owner.done())

    @property
    def token(self) -> str | None:
        """The token in the key while the caller holds the lock; None otherwise."""
        mine = self._mine()
        return None if mine is None else mine.token.decode(errors="backslashreplace")

    @property
    def expires_in(self) -> float | None:
        """Seconds until the caller's lease expires, 0.0 without one; None if unlimited or unknown."""
        mine = self._mine()
        return 0.0 if mine is None else mine.expires_in

    def acquire(self, blocking: bool | Unset = UNSET, timeout: float | None | Unset = UNSET) -> rt.Result[bool]:
        """Acquire the lock if it is free; wait only if requested.

        Args:
            blocking: True to wait without a limit, False for one try.
            timeout: maximum wait in seconds; None or -1 for no limit, 0 for one try.

        Returns:
            True if the caller holds the lock now.

        Raises:
            InvalidArgument: the arguments contradict each other or are out of range.
            StoreError: the server is unreachable or refuses.
        """
        return self._obtain(self._attempt(wait_limit(self._timeout, blocking, timeout, otherwise=0.0)))

    def _attempt(self, seconds: float | None, site: CallSite | None = None) -> Attempt:
        spread = pauses(self._poll / 32, self._poll, 0.5)
        return Attempt(self._owner(), seconds, self._ttl, spread, None, self._caller(), site)

    def release(self) -> rt.Result[bool]:
        """Release the lock if the calling thread or task holds it.

        Returns:
            True if this call released the lock; False if the caller holds nothing, or had lost it.

        Raises:
            StoreError: the server is unreachable or refuses; nothing is forgotten, call again.
        """
        return self._release_any(self._mine())

    async def _release_any(self, mine: Holding | None) -> bool:
        if mine is not None:
            return await self._release(mine)
        await rt.finish_within(PATIENCE, self._settle, None)
        return False

    def renew(self) -> rt.Result[bool]:
        """Set the end of the lease to `ttl` seconds from now.

        Returns:
            True if the caller still holds the lock; False if it has lost it.

        Raises:
            InvalidArgument: the lock has no time limit.
            StoreError: the server is unreachable or refuses; call again.
        """
        if self._ttl is None:
            raise InvalidArgument("A lock without a time limit (ttl=None) has no lease to renew.")
        return self._renew_any(self._mine(), self._ttl)

    async def _renew_any(self, mine: Holding | None, ttl: float) -> bool:
        return mine is not None and await self._renew(mine, ttl)

    def owned(self) -> rt.Result[bool]:
        """Ask the server whether the calling thread or task holds the lock.

        Raises:
            StoreError: the server is unreachable or refuses.
        """
        return self._is_held(self._mine())

    def __aenter__(self: L) -> rt.Result[L]:
        return self._enter(self._attempt(wait_limit(self._timeout, UNSET, UNSET, otherwise=None), call_site()))

    async def _enter(self: L, attempt: Attempt) -> L:
        if not await self._obtain(attempt):
            raise LockTimeout(
                f"Could not acquire lock {self._key!r} within {attempt.seconds or 0:g} s. Another caller holds it. "
                f"Wait longer (timeout=), or check its remaining time with PTTL."
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = self._acquired.end(self._caller, self)
        left = self._left(ended)
        try:
            if left is not None:
                await self._release(left)
        except Exception as failure:
            if error is None:
                raise
            self._note(error, failure)
        if not any(each.holding is not None and each.holding.lost for each in ended):
            return
        loss = LockLost(
            f"Lock {self._key!r} ended before its body: the lease was too short, or the key was deleted. Another "
            f"holder may have worked at the same time. Use a longer ttl, call renew(), or use a lock of "
            f"interlock.connect(), which renews automatically and has fences."
        )
        if error is None:
            raise loss
        error.add_note(str(loss))


class AsyncReentrantKeyLock(AsyncKeyLock):
    """A re-entrant `KeyLock`: its holder can acquire it again, also by another object.

    Each `acquire` needs its `release`; the last one deletes the key. A re-entry asks no server and does not renew the
    lease. After the end of the lease the count is void: the next `acquire` starts again, and `release` returns
    False.

    Args:
        client, key, ttl, timeout, poll: like those of `KeyLock`.
    """

    def __init__(
        self,
        client: object,
        key: str | bytes,
        *,
        ttl: float | None = 30.0,
        timeout: float | None | Unset = UNSET,
        poll: float = 0.25,
    ) -> None:
        super().__init__(client, key, ttl=ttl, timeout=timeout, poll=poll)
        self._holdings = reentrant_of(client)

    def _inherits(self, owner: object) -> bool:
        return False

    async def _try(self, attempt: Attempt) -> bool:
        mine = self._held_by(attempt.owner)
        if mine is None or not mine.alive or mine.left is not None:
            return await super()._try(attempt)
        attempt.holding = mine
        mine.handles.append(attempt)
        return True

    async def _leave(self, holding: Holding) -> bool:
        if len(holding.handles) <= 1:
            return await super()._leave(holding)
        if holding.alive:
            holding.handles.pop()
            return True
        # The count ends with the lease: its remaining holdings are lost.
        await super()._leave(holding)
        holding.lost = True
        return False


class AsyncIdentityLock(AsyncOneKey):
    """A lock whose key holds an identity chosen by its owner, who can release by it.

    So other programs can look up an owner, and a restarted program can release its lock. Each owner needs its own
    identity, because the lock cannot distinguish two owners with the same identity.

    Args:
        client: a sync or async client of redis-py or valkey-py.
        key: the key.

    Raises:
        InvalidArgument: an argument has a wrong type.
    """

    def __init__(self, client: object, key: str | bytes) -> None:
        super().__init__(client, key, shared=True)

    async def acquire(self, identity: str | bytes, ttl: float | None = 30.0) -> bool:
        """Try once to acquire the lock; a cancelled call leaves nothing behind.

        Args:
            identity: the value of the key.
            ttl: seconds until the key expires; None for never.

        Returns:
            True if the caller holds the lock now; False if it is held, even by the same identity.

        Raises:
            InvalidArgument: an argument has a wrong type or is out of range.
            StoreError: the server is unreachable or refuses; `owned` shows whether the lock was acquired, also
                after an interrupt.
        """
        lease = None if ttl is None else checked_ttl(ttl)
        return await self._obtain(Attempt(None, 0.0, lease, iter(()), checked_bytes(identity, "identity")))

    async def _settle(self, mine: Holding | None) -> None:
        """Do nothing: an unreleased lock ends with its ttl, because others may use the identity."""

    async def release(self, identity: str | bytes) -> bool:
        """Delete the key if it contains this identity, even if this call is cancelled.

        Args:
            identity: the argument of `acquire`.

        Returns:
            True if the lock is free now; False if another owner holds it.

        Raises:
            InvalidArgument: the identity has a wrong type.
            StoreError: the server is unreachable or refuses; call again.
        """
        return await rt.finish_within(PATIENCE, self._give_back, checked_bytes(identity, "identity"))

    async def _give_back(self, identity: bytes) -> bool:
        return await self._drop(identity, Sent()) or await self._holder() is None

    async def owned(self, identity: str | bytes) -> bool:
        """Ask the server whether this identity holds the lock.

        Raises:
            InvalidArgument: the identity has a wrong type.
            StoreError: the server is unreachable or refuses.
        """
        text = checked_bytes(identity, "identity")
        return await self._holder() == text
