"""Transactions of Django: what must happen before their commit, and what after it or after a rollback.

Locks are checked before a commit and released after it, or after a rollback; a saved instance must know which of its
values a rollback has taken back. Django tells of commits only (`on_commit`), after them, and of no rollback; wrappers
of statements (`execute_wrappers`) see neither, as the drivers commit and roll back without one. So seven methods of a
connection are replaced, here and nowhere else; by themselves they add no `on_commit` functions for others to count.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from interlock.client._sync.grants import Grant, Grants
from interlock.core.errors import LockError
from interlock.django.commit_checks import Relied, check_before_commit, relied_on
from interlock.runtime import log

METHODS = (
    "savepoint", "savepoint_rollback", "savepoint_commit", "commit", "rollback", "close",
    "run_and_clear_commit_hooks",
)  # fmt: skip
_MARK = "_interlock_watch"


class Scope:
    """What was done between two savepoints, or ends, of one transaction: it stands or falls as one.

    Attributes:
        over: True once the transaction has ended.
        undone: True once it was rolled back, as a whole or to a savepoint before this.
    """

    __slots__ = ("_joined", "over", "undone")

    def __init__(self) -> None:
        self.over = self.undone = False
        self._joined: Scope | None = None

    def whole(self) -> "Scope":
        """Return the scope with which it stands or falls: itself, or what it joined as a savepoint was released."""
        found = self
        while found._joined is not None:
            found = found._joined
        return found


class Watch:
    """The transaction that is under way on one connection, and the connection's methods that begin or end something.

    Args:
        connection: of Django; its methods of these names are replaced.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._scopes = [Scope()]
        self._marks: dict[str, int] = {}
        self._django: dict[str, Callable[..., Any]] = {name: getattr(connection, name) for name in METHODS}
        vars(connection).update({_MARK: self}, **{name: getattr(self, name) for name in METHODS})

    def scope(self) -> Scope:
        """Return the scope of what is done now."""
        return self._scopes[-1]

    def savepoint(self) -> Any:
        """Set a savepoint; what is done from now on is after it."""
        sid = self._django["savepoint"]()
        if sid:
            self._marks[sid] = len(self._scopes)
            self._scopes.append(Scope())
        return sid

    def savepoint_commit(self, sid: str) -> None:
        """Release a savepoint: what is after it stands or falls with what is before it."""
        self._django["savepoint_commit"](sid)
        first = self._marks.pop(sid, len(self._scopes))
        for scope in self._scopes[first:]:
            scope._joined = self._scopes[first - 1]
        del self._scopes[first:]

    def savepoint_rollback(self, sid: str) -> None:
        """Undo all after a savepoint."""
        self._drop("savepoint_rollback", sid)
        # One that was set before the connection was watched has all that is known after it.
        self._end(self._marks.get(sid, 0), undone=True)

    def rollback(self) -> None:
        """Undo the transaction."""
        self._drop("rollback")
        self._end(0, undone=True)

    def close(self) -> None:
        """End the session."""
        self._drop("close")
        self._end(0, undone=True)

    def commit(self) -> None:
        """Commit, if the locks that this relies on are still held.

        Raises:
            LockLost: one of them was lost; the transaction was rolled back.
        """
        # No variable may keep a hook: the traceback of a failing COMMIT would keep it too, and with it the lock.
        relied = dict.fromkeys([*(hook.relied for hook in self._kept()), *relied_on()])
        if relied:
            try:
                check_before_commit(self._connection, relied)
            except BaseException:
                try:
                    self.rollback()
                except (DatabaseError, InterfaceError):
                    self.close()
                raise
        self._django["commit"]()
        self._end(0, undone=False)

    def run_and_clear_commit_hooks(self) -> None:
        """Call the functions for after the commit: those that release locks, also if others raise."""
        kept = self._kept()
        try:
            self._django["run_and_clear_commit_hooks"]()
        finally:
            _call_all(kept)

    def _end(self, first: int, undone: bool) -> None:
        for scope in self._scopes[first:]:
            scope.over, scope.undone = True, undone
        self._scopes[first:] = [Scope()]
        if first == 0:
            self._marks.clear()

    def _drop(self, name: str, *args: object) -> None:
        """End something as Django does, and then call what that has dropped of what was to follow the commit."""
        # Django's close() drops them first; to release then would wait for the row that this session has locked.
        kept = self._kept()
        try:
            self._django[name](*args)
        finally:
            still = self._kept()
            _call_all([hook for hook in kept if hook not in still])

    def _kept(self) -> "list[Release]":
        return [hook for _, hook, *_ in self._connection.run_on_commit if isinstance(hook, Release)]


def watch(connection: BaseDatabaseWrapper) -> Watch:
    """Return the watch of a connection, which is watched from now on."""
    found: Watch | None = vars(connection).get(_MARK)
    return Watch(connection) if found is None else found


def watch_commits() -> None:
    """Have all connections of the calling thread check locks before they commit."""
    for alias in connections:
        watch(connections[alias])


def scope_of(connection: BaseDatabaseWrapper) -> Scope | None:
    """Return the scope of what is saved on a connection now; None if it stands at once, without a transaction."""
    if not connection.in_atomic_block and connection.get_autocommit():
        return None
    return watch(connection).scope()


class Release:
    """What a transaction keeps for its commit: when the last of several has ended, locks are released.

    Args:
        relied: the locks, which are checked before the commit.
        using: the database of the transaction.
        left: those whose transactions have not ended; one list for all of them.
        grant: the grant, or the grants of several locks.
    """

    def __init__(self, relied: Relied, using: str, left: list[str], grant: Grant | Grants) -> None:
        self.relied = relied
        self._using = using
        self._left = left
        self._grant: Any = grant

    def __call__(self) -> None:
        """Note that the transaction, or the savepoint in it, has ended; it may be called twice."""
        grant, self._grant = self._grant, None
        if grant is None:
            return
        self._left.remove(self._using)
        if self._left:
            return
        try:
            _release(grant)
        except BaseException:  # an interrupt: nothing may stay behind
            _release(grant)
            raise


def _release(grant: Grant | Grants) -> None:
    try:
        grant.release()
    except LockError as error:
        log.warn("could not release after a transaction, the lease will end: %s", error)


def _call_all(hooks: list[Release]) -> None:
    with ExitStack() as stack:  # of which each is called, also after an interrupt
        while hooks:
            stack.callback(hooks.pop())


def release_at_the_end(grant: Grant | Grants, using: Sequence[str], alias: str) -> None:
    """Release when the transactions around have all ended; at once if there is none.

    Args:
        grant: the grant, or the grants of several locks; the transactions check before they commit that it is held.
        using: the databases.
        alias: of the locks, in INTERLOCK.

    Raises:
        StoreError: there is none, and the store could not be asked.
    """
    left = [each for each in using if in_transaction(each)]
    if not left:
        grant.release()
        return
    grant._in_body = False  # it is to outlive its `with` block
    relied = Relied(alias, grant)
    for each in list(left):
        transaction.on_commit(Release(relied, each, left, grant), using=each)


class BrokenTransaction(LockError, transaction.TransactionManagementError):
    """The surrounding transaction is of no use: it failed, or Django does not manage it."""


def in_transaction(using: str) -> bool:
    """Tell whether the calling thread is in a transaction; the one that a `TestCase` wraps around tests is none."""
    connection = transaction.get_connection(using)
    blocks = getattr(connection, "atomic_blocks", [])
    return bool(connection.in_atomic_block and not all(getattr(each, "_from_testcase", False) for each in blocks))


def check_transaction(using: str) -> None:
    """See that a lock can be held until the transaction around it ends, if there is one.

    Raises:
        BrokenTransaction: it can only be rolled back, or it is not by `atomic()`.
    """
    connection = transaction.get_connection(using)
    if connection.in_atomic_block:
        if connection.needs_rollback:
            raise BrokenTransaction(
                f"the transaction on {using!r} has failed and can only be rolled back: leave its atomic() block first"
            )
        return
    # To ask a connection that is not open would open it.
    asked = connection.connection is not None
    if not (connection.get_autocommit() if asked else connection.settings_dict["AUTOCOMMIT"]):
        raise BrokenTransaction(
            f"the database {using!r} is not in autocommit, and no atomic() block says when the transaction ends: "
            f"nobody could know when to release; use atomic()"
        )
