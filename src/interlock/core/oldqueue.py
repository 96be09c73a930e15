"""The queue of the stores that are generators still; the results are those of `core.queue`."""

from collections.abc import Sequence
from typing import Any, Protocol

from interlock.core.claims import Claim, ClaimView
from interlock.core.effects import Op
from interlock.core.queue import (
    BUSY,
    GIVEN_UP,
    GONE,
    INDETERMINATE,
    OCCUPIED,
    REFUSED,
    EnterResult,
    Granted,
    Outage,
    Renewed,
)

__all__ = [
    "BUSY",
    "GIVEN_UP",
    "GONE",
    "INDETERMINATE",
    "OCCUPIED",
    "REFUSED",
    "EnterResult",
    "Granted",
    "Outage",
    "Queue",
    "Renewed",
]


class Queue(Protocol):
    """A lock store: the state machine pending -> using -> gone, for every name."""

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """Ask for the lock, or where the claim stands; idempotent by the claim's id; extends its lease.

        Args:
            claim: the claim.
            wakeup: what to tell when the claim's turn comes; None when the caller has not subscribed.
            wait: False: one try, which leaves nothing behind if it is refused.
            again: True when the claim is known to stand in line already: if it does not, it is gone.
        """

    def leave(self, claim: Claim) -> Op[bool]:
        """Take the claim out of the line, hand over to the next; True if this call removed it."""

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        """Extend leases, many at once.

        Returns:
            For each claim: True; False if it is gone; a StoreError, as a value, if this one could not be asked while
            others could.  A store that raises instead says so of all of them.
        """

    def look(self, key: str) -> Op[list[ClaimView]]:
        """List the live claims of `key` in line order; a key without a name stands for its whole namespace."""

    def evict(self, key: str, id: str | None) -> Op[int]:
        """Remove one claim, or all of a key, whoever's they are; return how many."""
