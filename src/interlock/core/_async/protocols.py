"""What `acquire`, the client and the stores know of each other: a runtime, a waiter and a queue.

A class that implements one of these protocols is a subclass, so that the type checker names a missing method.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.queue import EnterResult, Granted, Held, Renewed, Wakeable


class AsyncRuntime(Protocol):
    """What `acquire` needs of a runtime: the module `runtime._aio`, or an object of the model checker."""

    def fresh_id(self) -> str:
        """Return an id that was never used before."""

    async def sleep(self, seconds: float, /) -> None:
        """Let some time pass."""

    async def before(self, now: Callable[[], float], moment: float, /) -> bool:
        """Return True if a clock has not reached a moment."""

    async def time_by(self, now: Callable[[], float], /) -> float:
        """Return the time of a clock."""


class AsyncWaiting(Wakeable, Protocol):
    """A waiter: the caller of `acquire` waits on it for the hand-over of the lock."""

    async def wait(self, seconds: float) -> Granted | None:
        """Wait until notified or until `seconds` have passed; return the message or None."""

    def close(self) -> None:
        """Return what the waiter uses, such as a pipe."""


class AsyncQueue(Protocol):
    """A store as one process or event loop uses it: the state machine pending -> using -> gone, for every name."""

    async def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        """Ask for the lock, or where the claim stands; idempotent by the claim's id; extends its lease.

        Args:
            claim: the claim.
            waiter: is notified when the claim's turn comes, of `subscribe`; None when the caller has not subscribed.
            may_queue: False: one try, which leaves nothing behind if it is refused.
            already_queued: True if the claim is known to be in the line: if it is not there, it is gone.
        """

    async def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        """Take the claim out of the line, hand over to the next; True if this call removed it.

        Args:
            claim: the claim.
            keep_for: seconds for which a record is kept that its run was completed; 0 for no record.  With one, True
                says that this request made it; False may also mean that one before it did, which had no answer.
            stored_result: what is kept with the record, in the same step: ASCII text without NUL.
        """

    async def run_result(self, key: str) -> str | None:
        """Return the value of the record of a completed run; None if none is kept."""

    async def delete_run_result(self, key: str) -> bool:
        """Delete the record of a completed run; True if there was one; UnknownOutcome if a reply was lost."""

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """Extend leases, many at once.

        Returns:
            For each claim: GONE, KEPT or WANTED; a StoreError, as a value, if this one could not be asked while
            others could.  A store that raises instead says so of all of them.
        """

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        """Let a claim that holds the lock go on as `claim`; None if it is gone.  The caller knows the deadline.

        Args:
            key: of the line.
            id: of the claim until now.
            claim: its id and its lease from now on; with the same id, only the lease is another.
            detached: True if it outlives this process, on stores that notice the death of one.
        """

    async def look(self, key: str) -> list[ClaimView]:
        """List the live claims of `key` in line order; a key without a name means its whole namespace."""

    async def evict(self, key: str, id: str | None) -> int:
        """Remove one claim or all claims of a key; return their number; UnknownOutcome if a reply was lost."""

    async def namespaces(self) -> list[str]:
        """List the namespaces that have a holder or a waiter."""

    async def doctor(self) -> list[Check]:
        """Find out whether the store keeps the promises that the protocol needs."""

    def subscribe(self) -> AsyncWaiting:
        """Return a unchecked waiter for a claim of the caller."""

    def watch_doubts(self, verify: Callable[[str], bool]) -> None:
        """Let the queue report each claim that the store may not have any more.

        Args:
            verify: asks the store about the claim with this id, "" for all; called from any thread.
        """

    def node_of(self, claim: Claim) -> object:
        """Return the node of a claim: one that is unavailable must not delay the renewals at others."""
        return None

    def let_go(self, id: str) -> object:
        """Record that a claim was lost, or that its grant was garbage-collected."""
        return None

    def close_idle(self) -> object:
        """Close idle connections: no lock was held for a while."""
        return None

    async def aclose(self) -> None:
        """Close all connections."""

    def abort(self) -> None:
        """Close all connections without waiting, because the event loop has ended or the client drops them."""
