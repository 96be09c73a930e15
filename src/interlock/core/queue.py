"""What every store looks like from above: a line of claims that is entered and left."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from interlock.core.claims import Claim, ClaimView
from interlock.core.effects import Op
from interlock.core.errors import StoreError


class Outage(NamedTuple):
    """A store can't be asked now, but perhaps soon: a server is away, or another one takes over from it.

    Attributes:
        error: what it said.
        wait_limit: seconds to wait for it where the caller has set no limit.
    """

    error: StoreError
    wait_limit: float


class EnterResult(NamedTuple):
    """Where a claim stands.

    Attributes:
        state: "using": it holds the lock with `fence`.
            "pending": it stands in line; look again after `look_again` seconds unless told before.
            "occupied": it does not stand in line yet; subscribe, and enter again with the wake-up.
            "refused": the try did not succeed and nothing of it is left.
            "gone": it expired or was evicted, or (with a `look_again`) was given up because a request of it had no
            answer; start again with a fresh id, after `look_again` seconds.
            "busy": the store could not be asked now; ask again after `look_again` seconds.
            "indeterminate": it was asked and did not answer, so that the claim may be in the line; ask again.
        fence: the fencing token, when using.
        look_again: seconds.
        asked: False if the store did not take part in this answer, so that the claim's lease is where it was.
        outage: why the store could not be asked, where that is worth waiting for; None otherwise.
    """

    state: Literal["using", "pending", "occupied", "refused", "gone", "busy", "indeterminate"]
    fence: int = 0
    look_again: float = 1.0
    asked: bool = True
    outage: Outage | None = None


OCCUPIED = EnterResult("occupied")
REFUSED = EnterResult("refused")
GONE = EnterResult("gone", look_again=0.0)
GIVEN_UP = EnterResult("gone", look_again=0.01)
BUSY = EnterResult("busy", look_again=0.0005, asked=False)
INDETERMINATE = EnterResult("indeterminate", look_again=0.0005, asked=False)


class Granted(NamedTuple):
    """The message of a hand-over: claim `id` holds the lock with `fence`, as of now."""

    id: str
    fence: int


Renewed: TypeAlias = bool | StoreError
"""What became of one claim in a renewal of many."""


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
