"""The last act before a commit: to see that the locks which the transaction relies on are still held.

A holder may be evicted while it works, or stopped past its lease; what it commits then is lost, or makes the next
holder's update lost. Where the claims are in the very database of the transaction, its last statement locks the
claims (`SELECT … FOR UPDATE`): they can't be evicted before the commit, and a caller that takes over a claim whose
lease has ended meanwhile waits for that commit before it gets the lock. Elsewhere the store is asked.
"""

import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from hashlib import sha256
from weakref import ref

from django.db.backends.base.base import BaseDatabaseWrapper

from interlock.client.base import GONE_THERE, LEASE_ENDED, BaseGrant, BaseGrants
from interlock.core.claims import MICROS, USING
from interlock.core.errors import LockLost, StoreError
from interlock.core.line import decode
from interlock.core.queue import Queue
from interlock.django.configured import locks
from interlock.django.databases import DatabaseStore, place_of
from interlock.runtime import log


class Relied:
    """Locks that code relies on, from when they were taken until they are released.

    It keeps none of them alive: what is forgotten is renewed no more.

    Args:
        alias: in INTERLOCK.
        grant: the grant, or the grants of several locks.

    Attributes:
        left: True once the `with` block that relies on them was left.
    """

    __slots__ = ("_refs", "alias", "left")

    def __init__(self, alias: str, grant: BaseGrant | BaseGrants[BaseGrant]) -> None:
        self.alias = alias
        self._refs = [ref(each) for each in (grant if isinstance(grant, BaseGrants) else (grant,))]
        self.left = False

    @property
    def grants(self) -> list[BaseGrant]:
        """The grants that still live."""
        return [grant for each in self._refs if (grant := each()) is not None]

    def held(self) -> list[BaseGrant]:
        """Return the grants that were not given back by hand.

        Raises:
            LockLost: one of them was lost, as far as is known here.
        """
        found = [grant for grant in self.grants if not grant.inherited]
        for grant in found:
            if grant.lost:
                raise grant._loss()
        return [grant for grant in found if grant.held]


_relied: ContextVar[tuple[Relied, ...]] = ContextVar("interlock_relied", default=())
"""The locks of the blocks that the calling thread or task is in."""


def relied_on() -> list[Relied]:
    """Return the locks of the blocks that the calling thread or task is in."""
    return [each for each in _relied.get() if not each.left]


def rely_on(relied: Relied) -> None:
    """Have each transaction that the calling thread or task commits from now on check these locks before."""
    _relied.set((*relied_on(), relied))


def no_longer(relied: Relied) -> None:
    """Undo `rely_on`: the block was left."""
    relied.left = True
    _relied.set(tuple(relied_on()))


SHOWN = (
    "SELECT until - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM interlock_line WHERE key = %s "
    "AND id = %s AND held > 0 AND current_setting('transaction_isolation') LIKE 'read %%' FOR UPDATE"
)
"""In a transaction that keeps its snapshot, a claim that was renewed since can't be locked."""
LINE = (
    "SELECT line, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM interlock_line WHERE k = %s "
    "FOR UPDATE"
)


def check_before_commit(connection: BaseDatabaseWrapper, relied: Iterable[Relied]) -> None:
    """See that locks are still held, and where possible keep them from being lost until the commit.

    Raises:
        LockLost: one of them was lost.
    """
    by_alias: dict[str, list[BaseGrant]] = {}
    for each in relied:
        by_alias.setdefault(each.alias, []).extend(each.held())
    for alias, grants in by_alias.items():
        if not grants:
            continue
        queue = locks[alias]._client.state().queue
        if _is_in(connection, locks[alias].store):
            _lock_claims(connection, queue, grants)
        else:
            _ask_store(queue, grants)
        for grant in grants:
            if grant.lost:
                # A late renewal may have moved the claim's end, but the holder's own deadline has passed.
                raise grant._loss()


def _lock_claims(connection: BaseDatabaseWrapper, queue: Queue, grants: Sequence[BaseGrant]) -> None:
    """Lock the claims in the transaction of the data."""
    for _, grant in sorted({(grant._claim.spec.key, grant.id): grant for grant in grants}.items()):
        sent = time.monotonic()
        left = _left(connection, grant._claim.spec.key, grant.id)
        if left is None and connection.vendor == "postgresql":
            _ask_store(queue, [grant])  # it is gone, or the transaction keeps a snapshot
        elif left is None:
            raise _lost(grant, GONE_THERE)
        elif left <= (time.monotonic() - sent) * MICROS:
            raise _lost(grant, LEASE_ENDED)


def _left(connection: BaseDatabaseWrapper, key: str, id: str) -> int | None:
    """Lock a claim that holds; return the microseconds that are left of its lease, None if it is not there."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(SHOWN, [sha256(key.encode()).digest(), id])
            row = cursor.fetchone()
            return None if row is None else int(row[0])
        cursor.execute(LINE, [sha256(key.encode()).digest()])
        row = cursor.fetchone()
    places = () if row is None else decode(bytes(row[0]).decode()).places
    return next((place.until - int(row[1]) for place in places if place.id == id and place.state == USING), None)


def _ask_store(queue: Queue, grants: Sequence[BaseGrant]) -> None:
    """Have the store extend the leases, so that all of them lie before the commit."""
    unique = list({grant.id: grant for grant in grants}.values())
    try:
        answers = queue.renew([grant._claim for grant in unique])
    except StoreError as error:
        answers = [error] * len(unique)
    for grant, answer in zip(unique, answers, strict=True):
        if isinstance(answer, StoreError):
            # Until its deadline the lease is there, also if the store can't be asked; as for renewals.
            log.warn("could not ask whether the lock %r is held before a commit: %s", grant.name, answer)
        elif not answer:
            raise _lost(grant, GONE_THERE)


def _lost(grant: BaseGrant, why: str) -> LockLost:
    if not grant.lost:
        getattr(grant, "_grant", grant)._lose(why)  # one of several handles has no state of its own
    return grant._loss()


def _is_in(connection: BaseDatabaseWrapper, store: object) -> bool:
    """True if the claims of a store can be locked in a transaction on a connection."""
    return (
        isinstance(store, DatabaseStore)
        and connection.vendor in ("postgresql", "mysql")
        and (store.alias == connection.alias or place_of(store.alias) == place_of(connection.alias))
    )
