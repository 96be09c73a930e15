"""The check before each commit that the locks of the transaction are still held.

A holder may be evicted while it works, or be stopped until its lease has expired. If it commits then, its update or
the next holder's update is lost. If the claims are in the database of the transaction, its last statement locks their
rows (`SELECT … FOR UPDATE`): the claims can't be evicted before the commit, and a step that finds one expired waits
for the commit before it grants the lock to another claim. For other stores, the check asks the store.
"""

import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from hashlib import sha256
from weakref import ref

from django.db.backends.base.base import BaseDatabaseWrapper

from interlock.client.base_grant import BaseGrant, BaseGrants
from interlock.client.messages import EXPIRED_OR_EVICTED, LEASE_ENDED
from interlock.core._sync.protocols import Queue
from interlock.core.claims import MICROS, USING
from interlock.core.errors import LockLost, StoreError
from interlock.core.line import decode
from interlock.django.configured import locks
from interlock.django.databases import DatabaseStore, place_of
from interlock.runtime import log


class Relied:
    """Locks that must still be held when a transaction commits.

    It has weak references only: a grant that the program has dropped is not renewed any more.

    Args:
        alias: the alias in INTERLOCK.
        grant: the grant, or the grants of several locks.

    Attributes:
        left: True once the `with` block that relies on them was left.
    """

    __slots__ = ("_refs", "alias", "left")

    def __init__(self, alias: str, grant: BaseGrant | BaseGrants[BaseGrant]) -> None:
        self.alias = alias
        self._refs = [ref(each) for each in (grant if isinstance(grant, BaseGrants) else (grant,))]
        self.left = False

    def held(self) -> list[BaseGrant]:
        """Return the grants that the program has not released itself.

        Raises:
            LockLost: this process knows already that one of them was lost.
        """
        found = [grant for each in self._refs if (grant := each()) is not None and not grant.inherited]
        for grant in found:
            if grant.lost:
                raise grant._loss()
        return [grant for grant in found if grant.held]


_relied: ContextVar[tuple[Relied, ...]] = ContextVar("interlock_relied", default=())
"""The locks of the `with` blocks that the calling thread or task is in."""


def relied_on() -> list[Relied]:
    """Return the locks of the `with` blocks that the calling thread or task is in."""
    return [each for each in _relied.get() if not each.left]


def rely_on(relied: Relied) -> None:
    """Check these locks before each commit of the calling thread or task from now on."""
    _relied.set((*relied_on(), relied))


def no_longer(relied: Relied | None) -> None:
    """Undo `rely_on`: the block was left; None if it was interrupted before it relied on its locks."""
    if relied is not None:
        relied.left = True
    _relied.set(tuple(relied_on()))


SHOWN = (
    "SELECT until - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM interlock_line WHERE key = %s "
    "AND id = %s AND held > 0 AND current_setting('transaction_isolation') LIKE 'read %%' FOR UPDATE"
)
"""Errors of a repeatable-read or serializable transaction, which can't lock a row that changed after its snapshot."""
LINE = (
    "SELECT line, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM interlock_line WHERE k = %s "
    "FOR UPDATE"
)


def check_before_commit(connection: BaseDatabaseWrapper, relied: Iterable[Relied]) -> None:
    """Check that locks are still held; if possible, prevent that they are lost before the commit.

    Raises:
        LockLost: one of them was lost.
    """
    by_alias: dict[str, list[BaseGrant]] = {}
    for each in relied:
        if held := each.held():
            by_alias.setdefault(each.alias, []).extend(held)
    for alias, grants in by_alias.items():
        queue = locks[alias]._client.state().queue
        if _is_in(connection, locks[alias].store):
            _lock_claims(connection, queue, grants)
        else:
            _ask_store(queue, grants)
        for grant in grants:
            if grant.lost:
                # The claim may have been renewed late, but the holder's own deadline has passed.
                raise grant._loss()


def _lock_claims(connection: BaseDatabaseWrapper, queue: Queue, grants: Sequence[BaseGrant]) -> None:
    """Lock the rows of the claims in the transaction that is about to commit."""
    for _, grant in sorted({(grant._claim.spec.key, grant.id): grant for grant in grants}.items()):
        sent = time.monotonic()
        left = _left(connection, grant._claim.spec.key, grant.id)
        if left is None and connection.vendor == "postgresql":
            _ask_store(queue, [grant])  # the claim is gone, or the transaction's snapshot hides its present row
        elif left is None:
            raise _lost(grant, EXPIRED_OR_EVICTED)
        elif left <= (time.monotonic() - sent) * MICROS:
            raise _lost(grant, LEASE_ENDED)


def _left(connection: BaseDatabaseWrapper, key: str, id: str) -> int | None:
    """Lock the row of a holder; return the microseconds that are left of its lease, None if it is gone."""
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
    """Renew the leases in the store, which proves that the locks are held, and extends them beyond the commit."""
    unique = list({grant.id: grant for grant in grants}.values())
    try:
        answers = queue.renew([grant._claim for grant in unique])
    except StoreError as error:
        answers = [error] * len(unique)
    for grant, answer in zip(unique, answers, strict=True):
        if isinstance(answer, StoreError):
            # The lease lasts until its deadline, even if the store is unavailable; as for other renewals.
            log.warn("Could not check lock %r before a commit: %s", grant.name, answer)
        elif not answer:
            raise _lost(grant, EXPIRED_OR_EVICTED)


def _lost(grant: BaseGrant, why: str) -> LockLost:
    if not grant.lost:
        getattr(grant, "_grant", grant)._lose(why)  # a handle of a re-entrant lock shares the state of its grant
    return grant._loss()


def _is_in(connection: BaseDatabaseWrapper, store: object) -> bool:
    """Return True if the claims of a store are rows in the database of a connection."""
    return (
        type(store) is DatabaseStore  # not the one of `orm:`
        and connection.vendor in ("postgresql", "mysql")
        and (store.alias == connection.alias or place_of(store.alias) == place_of(connection.alias))
    )
