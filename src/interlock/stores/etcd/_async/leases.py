"""The leases of the claims of one process or event loop; one that nothing is bound to any more is used again."""

import json
import math
from collections.abc import Sequence

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.remote.failures import Refused
from interlock.runtime import clock
from interlock.stores.etcd._async.gateway import AsyncGateway
from interlock.stores.etcd.wire import LEASE

LONG = 5.0  # seconds; longer leases last a second more at the server, for as long as which one can be used again
SPARES = 64  # leases of one length that are kept
STREAM = 16  # leases that are extended by one request: so many are in the first 512 bytes, which the gateway reads
STALE = 0.3  # of its length; a lease that is older than that is extended by who waits


class Lease:
    """A lease of etcd.

    Attributes:
        id: its number.
        seconds: its length.
        sent: when its last extension was asked for, by the clock of its holder.
        until: until when it lasts at least.
        sure: False while a request is under way that may bind a claim to it.
        granted: True if its claim was told that it holds the lock.
        slot: that is bound to it, of a semaphore.
    """

    __slots__ = ("granted", "id", "seconds", "sent", "slot", "sure", "until")

    def __init__(self, id: str, seconds: int, sent: float, until: float) -> None:
        self.id = id
        self.seconds = seconds
        self.sent = sent
        self.until = until
        self.sure = True
        self.granted = False
        self.slot: int | None = None


class AsyncLeases:
    """Leases by the claims that are bound to them.

    Args:
        gateway: the cluster.

    Attributes:
        of: the lease of each claim, by its id.
    """

    def __init__(self, gateway: AsyncGateway) -> None:
        self._gateway = gateway
        self._spare: dict[int, list[Lease]] = {}
        self.of: dict[str, Lease] = {}

    async def take(self, claim: Claim) -> Lease:
        """Return a lease for a claim, which lasts as long as that asks for at least."""
        lease, ttl = self.of.get(claim.id) or self._spare_for(claim), claim.spec.ttl
        good = lease is not None and lease.seconds == _seconds(ttl)
        if lease is None or not good or not (lease.until - clock.awake_or_not() >= ttl or await self.extend(lease)):
            lease = await self.grant(_seconds(ttl))
        lease.sure = False
        self.of[claim.id] = lease
        return lease

    def _spare_for(self, claim: Claim) -> Lease | None:
        try:
            return self._spare.get(_seconds(claim.spec.ttl), []).pop()
        except IndexError:
            return None

    async def grant(self, seconds: int) -> Lease:
        """Make a lease; etcd makes one that is shorter than an election longer."""
        sent = clock.awake_or_not()
        (reply,) = await self._gateway.ask("lease/grant", json.dumps({"TTL": str(seconds)}))
        return Lease(reply["ID"], seconds, sent, sent + int(reply["TTL"]))

    async def extend(self, lease: Lease) -> bool:
        """Extend a lease; False if it has ended."""
        return bool((await self.extend_all([lease]))[0])

    async def extend_all(self, leases: Sequence[Lease], limit: float = 0.0) -> list[int]:
        """Extend leases, many by one request; return how many seconds each has: 0 if it has ended.

        The gateway reads no more of a stream once it has begun to answer: what had no answer is asked for again.
        """
        left: dict[str, int] = {}
        while missing := [lease for lease in leases if lease.id not in left]:
            some, sent = missing[:STREAM], clock.awake_or_not()
            body = "".join(json.dumps({"ID": lease.id}) for lease in some)
            replies = await self._gateway.ask("lease/keepalive", body, True, limit)
            left |= {reply["ID"]: int(reply.get("TTL", 0)) for reply in replies}
            for lease in some:
                if lease.id in left:
                    lease.sent, lease.until = sent, sent + left[lease.id]
        return [left[lease.id] for lease in leases]

    async def refresh(self, claim: Claim) -> bool:
        """Extend the lease of a claim that waits, if that is due; True if it was extended."""
        lease = self.of.get(claim.id)
        if lease is None or clock.awake_or_not() - lease.sent < STALE * claim.spec.ttl:
            return False
        return await self.extend(lease)

    def free(self, lease: Lease) -> None:
        """Keep a lease for the next claim: nothing is bound to it any more."""
        lease.granted, lease.slot = False, None
        spare = self._spare.setdefault(lease.seconds, [])
        if len(spare) < SPARES:
            spare.append(lease)

    async def revoke(self, lease: Lease) -> bool:
        """End a lease, with all that is bound to it, or that a late request would bind; False if it had ended."""
        try:
            await self._gateway.ask("lease/revoke", json.dumps({"ID": lease.id}))
        except Refused as error:
            if error.code != LEASE:
                raise
            return False
        return True

    async def undo(self, id: str) -> StoreError | None:
        """See to it that a claim whose request had no answer is not there, and never will be; return why not."""
        lease = self.of.pop(id, None)
        try:
            if lease is not None:
                await self.revoke(lease)
        except StoreError as error:
            return error  # nobody extends it
        return None

    async def left(self, id: str) -> float:
        """Return how many seconds a lease has left, by its number."""
        (reply,) = await self._gateway.ask("lease/timetolive", json.dumps({"ID": id}))
        return float(reply.get("TTL", -1)) + 1  # whole seconds, rounded down


def _seconds(ttl: float) -> int:
    return math.ceil(ttl) + (ttl >= LONG)
