"""What both colours of `KeyLock` share: its arguments, its properties, what it says."""

from typing import Any

from interlock.core.claims import UNSET, Unset, checked_timeout
from interlock.core.effects import Op
from interlock.core.errors import InvalidArgument, LockLost, LockTimeout
from interlock.keylock.arguments import (
    checked_client,
    checked_flag,
    checked_key,
    checked_limit,
    checked_seconds,
    checked_text,
    pauses,
    wait_limit,
)
from interlock.keylock.base import KeyAttempt, Steps
from interlock.keylock.holdings import Holding


class KeyLockSteps(Steps):
    """The arguments and the answers of `KeyLock`, for both colours."""

    _tasks = False

    def __init__(
        self,
        client: Any,
        key: str | bytes,
        *,
        ttl: float | None = 30.0,
        timeout: float | None | Unset = UNSET,
        poll: float = 0.25,
        shared: bool = False,
        token: str | bytes | None = None,
    ) -> None:
        super().__init__(checked_client(client, self._tasks), checked_key(key), checked_flag(shared, "shared"))
        self._ttl = checked_limit(ttl)
        self._timeout = timeout if isinstance(timeout, Unset) else checked_timeout(True, timeout)
        self._poll = checked_seconds(poll, "poll")
        if token is not None:
            self._holdings.add(Holding(self._encoded_key, checked_text(token, "token"), None, None))

    @property
    def key(self) -> str | bytes:
        """The key of the lock."""
        return self._key

    @property
    def token(self) -> str | None:
        """What stands in the key while the calling thread or task holds the lock; None if it does not."""
        mine = self._mine()
        return None if mine is None else mine.token.decode(errors="backslashreplace")

    @property
    def expires_in(self) -> float | None:
        """Seconds until the caller's lease ends, 0.0 if it holds nothing; None if there is no limit or none known."""
        mine = self._mine()
        return 0.0 if mine is None else mine.expires_in

    def _attempt_of(
        self, blocking: bool | Unset, timeout: float | None | Unset, otherwise: float | None
    ) -> KeyAttempt:
        seconds = wait_limit(self._timeout, blocking, timeout, otherwise)
        return self._attempt(seconds, self._ttl, pauses(self._poll))

    def _releasing(self, mine: Holding | None) -> Op[bool]:
        """Release; return True if that ended a holding that was not lost."""
        if mine is None:
            yield from self._settling(None)
            return False
        return (yield from self._leaving(mine))

    def _limit(self) -> float:
        if self._ttl is None:
            raise InvalidArgument("a lock without a time limit (ttl=None) has no lease to renew")
        return self._ttl

    def _too_late(self, attempt: KeyAttempt) -> LockTimeout:
        return LockTimeout(
            f"the lock {self._key!r} was not obtained within {attempt.seconds or 0:g} s: somebody holds it; wait "
            f"longer (timeout=), or see how long it lasts with PTTL"
        )

    def _loss(self) -> LockLost:
        return LockLost(
            f"the lock {self._key!r} ended before its body did: the lease was too short, or the key was deleted; "
            f"somebody else may have worked at the same time. Choose a longer ttl, call renew(), or take a lock of "
            f"interlock.connect(), which renews by itself and has fences"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r}>"
