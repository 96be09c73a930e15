"""The language of a server store, for `ServerQueue`: how requests are written and answers read; no I/O."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from interlock.core.claims import Claim
from interlock.core.queue import EnterResult, Renewed

Q = TypeVar("Q")  # a request, as a store writes it
A = TypeVar("A")  # its answer, as the server gives it
Q_co = TypeVar("Q_co", covariant=True)
Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
Mode: TypeAlias = Literal["t", "w", "a"]
TRY: Mode = "t"  # one try
WAIT: Mode = "w"  # enter the line if the lock is occupied
AGAIN: Mode = "a"  # where does it stand: it is in line, or gone


WAITS = 3
"""A reply to `renew`: the claim is a waiter, not a holder; its lease is extended."""


class QueuedBehind(NamedTuple):
    """An answer to `enter`: the claim waits, and holds the lock with `fence` as soon as the one before it has left.

    Only where `before` is of the same channel, and takes the whole lock; a store may leave these answers out.

    Attributes:
        before: the claim right before it.
        fence: its fence.
        poll_after: seconds.
    """

    before: str
    fence: int
    poll_after: float


class LeaveResult(NamedTuple):
    """The answer to `leave`.

    Attributes:
        removed: whether the claim was there.
        promoted: id, fence and slot of the waiters of the same channel that hold the lock now (with fence 0: that
            must look); only this answer notifies them.
        more: True if one step could not promote or drop all claims: the client requests another step.
    """

    removed: bool
    promoted: Sequence[tuple[str, int, int]] = ()
    more: bool = False


REMOVED, NOT_THERE = LeaveResult(True), LeaveResult(False)


class Wire(Protocol[Q_co, A_contra]):
    """The language of one kind of server.

    Attributes:
        where: the server, for messages.
        io_timeout: seconds to wait for an answer.
    """

    where: str
    io_timeout: float

    def enter(self, claim: Claim, mode: Mode, channel: str) -> Q_co:
        """Ask for the lock; idempotent by the claim's id.

        Args:
            claim: the claim.
            mode: as above.
            channel: where this process listens.
        """

    def entered(self, reply: A_contra) -> EnterResult | QueuedBehind | None:
        """Read the reply: using, pending, done before; None: not in the line (refused, occupied, or gone).

        `BUSY`: the step has only dropped dead claims, as many as one step can; the client repeats the step.
        """

    def leave(
        self,
        claim: Claim,
        channel: str = "",
        let_in: str = "",
        keep_for: float = 0.0,
        stored_result: str = "",
        before: Sequence[str] = (),
    ) -> Q_co:
        """Take a claim out.

        With the claim alone it undoes what had no answer: nobody waits for it, and no waiter is notified.

        Args:
            claim: which one.
            channel: where this process listens: the answer notifies its waiters; "" to notify none.
            let_in: the claim that knows already that it comes next; "" if none does.
            keep_for: seconds for which a record is kept that its run was completed; 0 for none.
            stored_result: what is kept with the record.
            before: with a record, the claims whose releases may not have arrived; the step removes them first;
                always empty if no reply is `Promised`.
        """

    def left(self, reply: A_contra) -> LeaveResult:
        """Read the answer."""

    def renew(self, claims: Sequence[Claim], before: Sequence[Sequence[str]]) -> Q_co:
        """Extend leases; the claims are on one node (see `node_of`); `before` for each claim, as for `leave`."""

    def renewed(self, claims: Sequence[Claim], reply: A_contra) -> list[Renewed]:
        """Read the reply for each claim; WAITS only on stores where `enter` may reply `Promised`."""

    def run_result(self, key: str, delete: bool) -> Q_co:
        """Ask for the value of the record of a completed run, and forget the record if wanted."""

    def value(self, reply: A_contra) -> str | None:
        """Read the answer; None if no record is kept."""

    def adopt(self, key: str, id: str, claim: Claim, channel: str, before: Sequence[str] = ()) -> Q_co:
        """Rename a claim that holds the lock; `before` as for `leave`."""

    def adopted(self, reply: A_contra) -> tuple[int, int] | EnterResult | None:
        """Read the answer: fence and slot; None if it is gone; `BUSY` as for `entered`."""

    def evict(self, key: str, id: str | None, rest: Sequence[str] = ...) -> Q_co:
        """Remove a claim, or all claims of a key; `rest` comes from the reply to the previous step."""

    def evicted(self, reply: A_contra) -> tuple[int, bool, Sequence[str]]:
        """Read the answer.

        Returns:
            The number of evicted claims; whether work is left for another step, which a `leave` of an unknown claim
            performs; and the position of the next step of the eviction, empty if all claims are evicted.
        """
