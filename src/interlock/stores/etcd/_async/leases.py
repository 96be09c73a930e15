"""The leases of one process or loop; a free lease is reused for the next claim."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from interlock.core.claims import Claim
from interlock.runtime import clock
from interlock.stores.etcd._async.gateway import AsyncGateway
from interlock.stores.etcd.wire import LeaseEnded

REUSABLE_TTL = 5.0  # seconds; longer leases get an extra second, so that they can be reused during that second
STREAM = 16  # leases extended by one request: as many as fit into the first 512 bytes, which the gateway reads


class EtcdLease:
    """A lease of etcd: its number, and its earliest end by this process's clock."""

    def __init__(self, id: str, until: float = 0.0) -> None:
        self.id = id
        self.until = until


class AsyncLeases:
    """The leases, by claim.

    Args:
        gateway: the cluster.

    Attributes:
        of: the lease of each claim, by its id.
    """

    def __init__(self, gateway: AsyncGateway) -> None:
        self._gateway = gateway
        self._spare: defaultdict[int, list[EtcdLease]] = defaultdict(list)  # by their seconds
        self.of: dict[str, EtcdLease] = {}

    async def take(self, claim: Claim, deadline: float) -> str:
        """Return the number of a reused or new lease that is long enough for a claim."""
        ttl = claim.spec.ttl
        lease = self.of.get(claim.id)  # from an earlier request of this claim that had no reply
        with suppress(IndexError):
            lease = lease or self._spare[_seconds(ttl)].pop()
        if lease is None or (
            lease.until - clock.awake_or_not() < ttl and not (await self.extend([lease], deadline))[0]
        ):
            lease = await self.grant(_seconds(ttl), deadline)
        self.of[claim.id] = lease
        return lease.id

    async def grant(self, seconds: int, deadline: float) -> EtcdLease:
        """Create a lease; etcd lengthens a lease shorter than an election."""
        sent = clock.awake_or_not()
        (reply,) = await self._gateway.ask("lease/grant", json.dumps({"TTL": str(seconds)}), deadline)
        return EtcdLease(reply["ID"], sent + int(reply["TTL"]))

    async def extend(self, leases: Sequence[EtcdLease], deadline: float) -> list[int]:
        """Renew leases, many by one request; return the seconds left of each, 0 if expired.

        The gateway stops reading a stream when it begins to answer: the leases without a reply are requested again.
        """
        left: dict[str, int] = {}
        while missing := [lease for lease in leases if lease.id not in left][:STREAM]:
            sent = clock.awake_or_not()
            body = "".join(json.dumps({"ID": lease.id}) for lease in missing)
            replies = await self._gateway.ask("lease/keepalive", body, deadline)
            left |= {reply["ID"]: int(reply.get("TTL", 0)) for reply in replies}
            for lease in missing:
                lease.until = sent + left.get(lease.id, 0)
        return [left[lease.id] for lease in leases]

    def free(self, claim: Claim) -> None:
        """Keep a claim's lease for the next claim; the caller has deleted all its keys."""
        lease = self.of.pop(claim.id, None)
        if lease is not None:
            self._spare[_seconds(claim.spec.ttl)].append(lease)

    async def end(self, claim: Claim, deadline: float) -> None:
        """Revoke a claim's lease: this deletes its keys, and makes a late request fail."""
        lease = self.of.get(claim.id)
        if lease is not None:
            with suppress(LeaseEnded):
                await self._gateway.ask("lease/revoke", json.dumps({"ID": lease.id}), deadline)
            self.of.pop(claim.id, None)  # only after success: a failure is retried

    async def left(self, id: str, deadline: float) -> float:
        """Return how many seconds a lease has left; `id` is its number."""
        (reply,) = await self._gateway.ask("lease/timetolive", json.dumps({"ID": id}), deadline)
        return float(reply.get("TTL", -1)) + 1  # whole seconds, rounded down


def _seconds(ttl: float) -> int:
    return math.ceil(ttl) + (ttl >= REUSABLE_TTL)
