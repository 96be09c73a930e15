"""The requests and replies of a server store, for `ServerQueue`; no I/O."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from interlock.core.claims import Claim
from interlock.core.queue import EnterResult, Renewed

Q = TypeVar("Q")  # a request
A = TypeVar("A")  # a reply
Q_co = TypeVar("Q_co", covariant=True)
Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
Mode: TypeAlias = Literal["t", "w", "a"]
TRY: Mode = "t"  # one try
WAIT: Mode = "w"  # enter the line if the lock is occupied
AGAIN: Mode = "a"  # return the claim's state: in line, or gone


WAITS = 3
"""A reply to `renew`: the claim is a waiter, not a holder; its lease is renewed."""


class QueuedBehind(NamedTuple):
    """A reply to `enter`: the claim waits, and holds the lock once `before` has left.

    Only if `before` has the same channel and takes the whole lock; a store may omit these replies.

    Attributes:
        before: the claim directly ahead.
        fence: its fence.
        poll_after: seconds.
    """

    before: str
    fence: int
    poll_after: float


class LeaveResult(NamedTuple):
    """The reply to `leave`.

    Attributes:
        removed: True if the claim was in the line.
        promoted: id, fence and slot of the promoted waiters of the same channel (fence 0: poll); only this reply
            notifies them.
        more: True if one step could not promote or drop all claims: the client requests another step.
    """

    removed: bool
    promoted: Sequence[tuple[str, int, int]] = ()
    more: bool = False


REMOVED, NOT_THERE = LeaveResult(True), LeaveResult(False)


class Wire(Protocol[Q_co, A_contra]):
    """The protocol of one kind of server.

    Attributes:
        where: the server, for messages.
        io_timeout: seconds to wait for a reply.
        client_notifies: True if the client that reads a reply notifies the promoted waiters, not the server.
    """

    where: str
    io_timeout: float
    client_notifies: bool

    def enter(self, claim: Claim, mode: Mode, channel: str) -> Q_co:
        """Request the lock; idempotent by the claim's id.

        Args:
            claim: the claim.
            mode: as above.
            channel: the channel of this process.
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
        """Remove a claim.

        With the claim alone it undoes a request without a reply, and notifies no waiter.

        Args:
            claim: the claim.
            channel: the channel of this process, whose waiters the reply notifies; "" to notify none.
            let_in: the claim that was already granted the lock as successor; "" if none.
            keep_for: seconds for which the record of a completed run is kept; 0 for none.
            stored_result: the value kept with the record.
            before: with a record, the claims whose releases may not have arrived; the step removes them first;
                always empty if no reply is `QueuedBehind`.
        """

    def left(self, reply: A_contra) -> LeaveResult:
        """Read the reply."""

    def renew(self, claims: Sequence[Claim], before: Sequence[Sequence[str]]) -> Q_co:
        """Renew the leases of claims on one node (see `node_of`); `before` as for `leave`."""

    def renewed(self, claims: Sequence[Claim], reply: A_contra) -> list[Renewed]:
        """Read the reply for each claim; WAITS only on stores where `enter` may reply `QueuedBehind`."""

    def run_result(self, key: str, delete: bool) -> Q_co:
        """Request the value of the record of a completed run, and delete the record if wanted."""

    def value(self, reply: A_contra) -> str | None:
        """Read the reply; None without a record."""

    def adopt(self, key: str, id: str, claim: Claim, channel: str, before: Sequence[str] = ()) -> Q_co:
        """Rename a held claim, or change its lease and units; `before` as for `leave`."""

    def adopted(self, reply: A_contra) -> tuple[int, int] | EnterResult | None:
        """Read the reply: fence and slot; None if the claim is gone; `BUSY` as for `entered`."""

    def evict(self, key: str, id: str | None, rest: Sequence[str] = ...) -> Q_co:
        """Remove a claim, or all claims of a key; `rest` comes from the reply to the previous step."""

    def evicted(self, reply: A_contra) -> tuple[int, bool, Sequence[str]]:
        """Read the reply.

        Returns:
            The number of evicted claims; whether work is left for another step, which a `leave` of an unknown claim
            performs; and the position of the next step of the eviction, empty if all claims are evicted.
        """
