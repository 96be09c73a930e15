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
from contextvars import ContextVar
from typing import Any
from weakref import ref

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import F

from interlock.core.claims import USING
from interlock.core.errors import LockLost, StoreError
from interlock.django.conf import locks
from interlock.django.records import hashed
from interlock.django.statements import MICROSECONDS, Statement, compiled, select
from interlock.django.waiters import LineWaiters
from interlock.locks.blocks import Block, somebody
from interlock.locks.grants import GONE_THERE, LEASE_ENDED, BaseGrant, BaseGrants
from interlock.runtime import log
from interlock.runtime.sync import run

_MARK = "_interlock_checks_commits"
_LOOK_AGAIN = 0.01  # seconds between two looks whether a late commit is over


class Relied:
    """Locks that code relies on, from when they were taken until they are released.

    It keeps none of them alive: what is forgotten is renewed no more.

    Args:
        alias: in INTERLOCK.
        grant: the grant, or the grants of several locks.
        block: the `with` block that relies on them.
    """

    __slots__ = ("_block", "_refs", "alias", "left")

    def __init__(self, alias: str, grant: Any, block: Block = somebody) -> None:
        self.alias = alias
        self._refs = [ref(each) for each in (grant if isinstance(grant, BaseGrants) else (grant,))]
        self._block = block
        self.left = False

    @property
    def over(self) -> bool:
        """True once the block was left, also if an interrupt kept its `__exit__` from running."""
        return self.left or self._block() is None

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


def rely_on(relied: Relied) -> None:
    """Have each transaction that the calling thread or task commits from now on check these locks before."""
    _relied.set((*(each for each in _relied.get() if not each.over), relied))


def no_longer(relied: Relied) -> None:
    """Undo `rely_on`: the block was left."""
    relied.left = True
    _relied.set(tuple(each for each in _relied.get() if not each.over))


def watch_commits() -> None:
    """Have all connections of the calling thread check locks before they commit."""
    for alias in connections:
        connection = connections[alias]
        if _MARK not in vars(connection):
            hooks = connection.run_and_clear_commit_hooks
            for name in ("close", "rollback", "savepoint_rollback"):
                setattr(connection, name, _released_when_dropped(connection, getattr(connection, name)))
            connection.run_and_clear_commit_hooks = _released_after(connection, hooks)  # type: ignore[method-assign]
            connection.commit = _checked_first(connection, connection.commit)  # type: ignore[method-assign]
            setattr(connection, _MARK, True)  # at the end: an interrupt leaves nothing out, and twice does no harm


def _checked_first(connection: Any, commit: Callable[[], None]) -> Callable[[], None]:
    def checked_commit() -> None:
        # No variable may keep a hook: the traceback of a failing COMMIT would keep it too, and with it the lock.
        kept = [hook.relied for hook in _kept_by(connection)]
        relied = dict.fromkeys([*kept, *(each for each in _relied.get() if not each.over)])
        if relied:
            try:
                check_before_commit(connection, relied)
            except BaseException:
                _roll_back(connection)
                raise
        commit()

    checked_commit.__doc__ = commit.__doc__
    return checked_commit


def _released_after(connection: Any, run_hooks: Callable[[], None]) -> Callable[[], None]:
    def run_and_clear_commit_hooks() -> None:
        kept = _kept_by(connection)
        try:
            run_hooks()
        finally:
            _call_all(kept)  # one of another that raises has kept them from being called

    run_and_clear_commit_hooks.__doc__ = run_hooks.__doc__
    return run_and_clear_commit_hooks


def _released_when_dropped(connection: Any, end: Callable[..., None]) -> Callable[..., None]:
    def end_and_release(*args: Any) -> None:
        # Django's close() drops them first; to release then would wait for the row that this session has locked.
        kept = _kept_by(connection)
        try:
            end(*args)
        finally:
            still = _kept_by(connection)
            _call_all([hook for hook in kept if hook not in still])

    end_and_release.__doc__ = end.__doc__
    return end_and_release


def _call_all(hooks: "list[KeptForCommit]") -> None:
    try:
        while hooks:
            hooks.pop(0)()
    except BaseException:  # an interrupt: the others are called all the same
        _call_all(hooks)
        raise


def _kept_by(connection: Any) -> "list[KeptForCommit]":
    return [hook for _, hook, *_ in connection.run_on_commit if isinstance(hook, KeptForCommit)]


class KeptForCommit:
    """A function to be called after a commit or a rollback, whatever others raise; it tells on what it relies."""

    relied: Relied

    def __call__(self) -> None:
        """The transaction has ended; may be called twice."""
        raise NotImplementedError


def _roll_back(connection: Any) -> None:
    try:
        connection.rollback()
    except (DatabaseError, InterfaceError):
        connection.close()


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
        if _is_in(connection, locks[alias].store):
            _lock_claims(connection, locks[alias].store, grants)
        else:
            _ask_store(locks[alias].store, grants)
        for grant in grants:
            if grant.lost:
                # A late renewal may have moved the claim's end, but the holder's own deadline has passed.
                raise grant._loss()


def _lock_claims(connection: Any, store: Any, grants: Sequence[BaseGrant]) -> None:
    """Lock the claims in the transaction of the data."""
    statement = _statement(connection, _make_shown if connection.vendor == "postgresql" else _make_claim)
    for id, grant in sorted({grant.id: grant for grant in grants}.items()):
        sent = time.monotonic()
        rows = statement.rows(connection, id=id)
        if not rows and connection.vendor == "postgresql":
            _ask_store(store, [grant])  # it is gone, or the transaction keeps a snapshot
        elif not rows and not _is_there(store, grant):
            raise _lost(grant, GONE_THERE)
        # The clock was asked when the statement began.
        if rows and rows[0][0] <= (time.monotonic() - sent) * MICROSECONDS:
            raise _lost(grant, LEASE_ENDED)


def _is_there(store: Any, grant: BaseGrant) -> bool:
    views = run(store.look(grant._claim.spec.key))
    return any(view.id == grant.id and view.state == USING for view in views)


def _ask_store(store: Any, grants: Sequence[BaseGrant]) -> None:
    """Have the store extend the leases, so that all of them lie before the commit."""
    unique = list({grant.id: grant for grant in grants}.values())
    try:
        answers = run(store.renew([grant._claim for grant in unique]))
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
    store = locks[relied.alias].store
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
    """As `_make_claim`; nothing in a transaction that keeps its snapshot: a claim renewed since can't be locked."""
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
