"""The protocols between `acquire`, the client and the stores.

A class that implements one of these protocols is a subclass, so that the type checker names a missing method.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.errors import Unsupported
from interlock.core.queue import EnterResult, Granted, Held, Renewed, Wakeable


class AsyncRuntime(Protocol):
    """The runtime of `acquire`: the module `runtime._aio`, or an object of the model checker."""

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
        """Close the resources of the waiter, such as a pipe."""


class AsyncQueue(Protocol):
    """A store's queue in one process or event loop: pending -> using -> gone per name."""

    @abstractmethod
    async def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        """Enter the line, or return the claim's state; idempotent by id; renews the lease.

        Args:
            claim: the claim.
            waiter: a waiter of `subscribe`, notified when the claim's turn comes; None before the caller subscribes.
            may_queue: False for one try, which leaves nothing behind if it is refused.
            already_queued: True if the claim is known to be in the line; if it is not found, it is gone.
        """

    @abstractmethod
    async def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        """Remove the claim and hand over; return True if this call removed it.

        Args:
            claim: the claim.
            keep_for: seconds for which the record of a completed run is kept; 0 for no record.  With a record, True
                means that this request made it; False can mean that an earlier request without a reply made it.
            stored_result: the value kept with the record, in the same step: ASCII text without NUL.
        """

    async def run_result(self, key: str) -> str | None:
        """Return the value of the record of a completed run; None without a record."""
        raise Unsupported("This store does not keep records of completed runs.")

    async def delete_run_result(self, key: str) -> bool:
        """Delete the record of a completed run; return True if there was one."""
        raise Unsupported("This store does not keep records of completed runs.")

    @abstractmethod
    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """Renew many leases in one request.

        Returns:
            For each claim: gone, renewed, or renewed and wanted; a StoreError as a value if the request failed only
            for this claim.  A raised error applies to all claims.
        """

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        """Continue a held claim as `claim`; return None if it is gone.

        Args:
            key: the key of the line.
            id: the claim's previous id.
            claim: its new id, lease and units; a writer with fewer units becomes a reader, and waiters that fit are
                promoted in the same step.  The caller knows the deadline.
            detached: True if the claim outlives this process, on stores that notice the death of a process.
        """
        raise Unsupported("This store does not support detached locks.")

    @abstractmethod
    async def look(self, key: str) -> list[ClaimView]:
        """List the live claims of a key in order; without a name, of its whole namespace."""

    @abstractmethod
    async def evict(self, key: str, id: str | None) -> int:
        """Remove one claim or all claims of a key; return their number."""

    @abstractmethod
    async def namespaces(self) -> list[str]:
        """List the namespaces that have a holder or a waiter."""

    @abstractmethod
    async def doctor(self) -> list[Check]:
        """Check whether the store keeps its guarantees."""

    @abstractmethod
    def subscribe(self) -> AsyncWaiting:
        """Return a new waiter for a claim of the caller."""

    def watch_doubts(self, verify: Callable[[str], bool]) -> object:
        """Set the function to which the queue reports claims that may be gone.

        Args:
            verify: verifies the claim with this id, or "" for all; called from any thread.
        """
        return None

    def node_of(self, claim: Claim) -> object:
        """Return the node of a claim, so that an unavailable node delays no other."""
        return None

    def let_go(self, id: str) -> object:
        """Record that a claim was lost, or that its grant was garbage-collected."""
        return None

    def close_idle(self) -> object:
        """Close idle connections, because no lock was held for a while."""
        return None

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections."""

    @abstractmethod
    def abort(self) -> None:
        """Close all connections without waiting: the loop has ended, or the client drops them."""
