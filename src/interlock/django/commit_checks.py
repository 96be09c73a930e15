"""The last act before a commit: to see that the locks which the transaction relies on are still held.

A holder may be evicted while it works, or stopped past its lease; what it commits then is lost, or makes the next
holder's update lost. Where the claims are in the very database of the transaction, its last statement locks the
claims (`SELECT … FOR UPDATE`): nobody can evict them before the commit, and whoever takes over a claim whose lease
has ended meanwhile waits for that commit before reading: see `wait_for_late_commits`. Elsewhere the store is asked.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections
from django.db.models import F

from interlock.client.base import GONE_THERE, LEASE_ENDED, BaseGrant
from interlock.core.claims import USING
from interlock.core.errors import LockLost, StoreError
from interlock.django.configured import locks
from interlock.django.records import hashed
from interlock.django.relied import Relied
from interlock.django.statements import MICROSECONDS, Statement, compiled, select
from interlock.django.waiters import LineWaiters
from interlock.runtime import log
from interlock.stores.driven import original

_LOOK_AGAIN = 0.01  # seconds between two looks whether a late commit is over


def check_before_commit(connection: Any, relied: Iterable[Relied]) -> None:
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


def _lock_claims(connection: Any, queue: Any, grants: Sequence[BaseGrant]) -> None:
    """Lock the claims in the transaction of the data."""
    statement = _statement(connection, _make_shown if connection.vendor == "postgresql" else _make_claim)
    for id, grant in sorted({grant.id: grant for grant in grants}.items()):
        sent = time.monotonic()
        rows = statement.rows(connection, id=id)
        if not rows and connection.vendor == "postgresql":
            _ask_store(queue, [grant])  # it is gone, or the transaction keeps a snapshot
        elif not rows and not _is_there(queue, grant):
            raise _lost(grant, GONE_THERE)
        # The clock was asked when the statement began.
        if rows and rows[0][0] <= (time.monotonic() - sent) * MICROSECONDS:
            raise _lost(grant, LEASE_ENDED)


def _is_there(queue: Any, grant: BaseGrant) -> bool:
    views = queue.look(grant._claim.spec.key)
    return any(view.id == grant.id and view.state == USING for view in views)


def _ask_store(queue: Any, grants: Sequence[BaseGrant]) -> None:
    """Have the store extend the leases, so that all of them lie before the commit."""
    unique = list({grant.id: grant for grant in grants}.values())
    try:
        answers = queue.renew([grant._claim for grant in unique])
    except StoreError as error:
        answers = [error] * len(unique)
    for grant, answer in zip(unique, answers, strict=True):
        if isinstance(answer, StoreError):
            # Until its deadline the lease is there, whoever can't be asked; as for renewals.
            log.warn("could not ask whether the lock %r is held before a commit: %s", grant.name, answer)
        elif not answer:
            raise _lost(grant, GONE_THERE)


def _lost(grant: Any, why: str) -> LockLost:
    if not grant.lost:
        getattr(grant, "_grant", grant)._lose(why)  # one of several handles has no state of its own
    loss: LockLost = grant._loss()
    return loss


def _is_in(connection: Any, store: Any) -> bool:
    """True if the claims of a store can be locked in a transaction on a connection."""
    alias = _alias_of(store)
    if alias is None or connection.vendor not in ("postgresql", "mysql", "sqlite"):
        return False
    if alias != connection.alias and _place(connections[alias]) != _place(connection):
        return False
    # A claim that was renewed since the snapshot was taken could not be locked.
    return not (connection.vendor == "postgresql" and _keeps_snapshot(connection))


def _alias_of(store: Any) -> str | None:
    """Return the database of an ORM store; None for other stores."""
    from interlock.django.store import OrmStore

    store = original(store)
    return store.alias if isinstance(store, OrmStore) else None


def _place(connection: Any) -> tuple[Any, ...]:
    settings = connection.settings_dict
    # With another search_path the table of claims is another; on SQLite a file is a file.
    options = None if connection.vendor == "sqlite" else repr(settings.get("OPTIONS"))
    return (connection.vendor, *(settings.get(key) for key in ("HOST", "PORT", "NAME", "USER")), options)


def _keeps_snapshot(connection: Any) -> bool:
    options = connection.settings_dict.get("OPTIONS", {})
    if "isolation" in str(options.get("options")):
        return True
    level = options.get("isolation_level")
    return level is not None and getattr(level, "name", "") not in ("READ_COMMITTED", "READ_UNCOMMITTED")


def wait_for_late_commits(relied: Relied, using: Sequence[str], still: Callable[[], float | None]) -> bool:
    """Wait until earlier holders, whose leases have ended just before their commits, have committed or given up.

    On PostgreSQL only: elsewhere nobody gets a lock while the claims of its line are locked.

    Args:
        relied: the locks that were just taken.
        using: the databases whose rows will be read; none: that of the store.
        still: returns the seconds that are left to wait; None for no limit.

    Returns:
        False if the time was over before.
    """
    store = original(locks[relied.alias].store)
    alias = _alias_of(store)
    if alias is None or connections[alias].vendor != "postgresql":
        return True
    if using and not any(_is_in(connections[each], store) for each in using):
        return True
    waiters = LineWaiters.of(alias)
    unsure = [grant for grant in relied.grants if not waiters.is_clean(grant.id)]
    late = {id for grant in unsure for id in _outside_of_loops(_late, store, grant)}
    while late and _outside_of_loops(_are_locked, store, late):
        left = still()
        if left is not None and left <= 0:
            return False
        time.sleep(_LOOK_AGAIN)
    return True


def _outside_of_loops(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function here; Django does not ask a database in a thread with an event loop, so then in another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function(*args)
    with ThreadPoolExecutor(1, "interlock-late") as one:
        return one.submit(function, *args).result()


def _late(store: Any, grant: BaseGrant) -> list[str]:
    """Return the ids of claims before this one whose leases have ended, but that nobody has ended."""
    with store.register.pool.connection() as connection:
        statement = _statement(connection, _make_late)
        rows = statement.rows(connection, key=hashed(grant._claim.spec.key), id=grant.id)
    return [id for (id,) in rows]


def _statement(connection: Any, make: Callable[[], Any]) -> Statement:
    """Return a statement, made once for each kind of database."""
    found = _made.get((connection.vendor, make))
    if found is None:
        found = _made[connection.vendor, make] = compiled(make(), connection)
    return found


_made: dict[Any, Statement] = {}


def _make_claim() -> Any:
    """Read how long the lease of a holder lasts, and lock its claim."""
    from interlock.django import claimlines

    rows = claimlines.mine(USING).select_for_update()
    return select(rows, (F("until") - claimlines.began(),))


def _make_shown() -> Any:
    """Read the same; nothing in a transaction that keeps its snapshot: a claim renewed since can't be locked."""
    query = _make_claim()
    query.add_extra({}, [], ["current_setting('transaction_isolation') LIKE 'read %%'"], [], [], [])
    return query


def _make_late() -> Any:
    """Read the holders of a line, but for one, whose leases have ended."""
    from interlock.django import claimlines
    from interlock.django.models import Claim

    rows = Claim.objects.filter(key=claimlines.text("key"), state=USING, until__lte=claimlines.began())
    return select(rows.exclude(claim=claimlines.text("id")), ("claim",))


def _are_locked(store: Any, ids: Iterable[str]) -> bool:
    """True if a transaction that is about to commit has locked one of these claims."""
    with store.register.pool.connection() as connection, connection.cursor() as cursor:
        # What can't be locked is skipped; in autocommit the locks end with the statement.
        cursor.execute("SELECT id FROM interlock_claim WHERE id = ANY(%s) FOR SHARE SKIP LOCKED", [list(ids)])
        free = {id for (id,) in cursor.fetchall()}
        cursor.execute("SELECT id FROM interlock_claim WHERE id = ANY(%s) AND state = %s", [list(ids), USING])
        return any(id not in free for (id,) in cursor.fetchall())
