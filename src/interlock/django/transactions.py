"""Hooks on Django's transactions: before the commit, after the commit, and after a rollback.

Locks are checked before a commit, and released after a commit or rollback; a saved instance must know which of its
values were rolled back. Django reports only commits (`on_commit`), and no rollbacks; `execute_wrappers` see neither,
because the drivers commit and roll back without a statement. So this module, and no other, replaces seven methods of
a connection; they add no `on_commit` functions themselves, which tests of a site could count.
"""

from collections.abc import Sequence
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
    """The work between two savepoints of one transaction, which is committed or rolled back as a whole.

    Attributes:
        over: True once the transaction has ended.
        undone: True once it was rolled back, as a whole or to a savepoint before this.
    """

    __slots__ = ("_joined", "over", "undone")

    def __init__(self) -> None:
        self.over = self.undone = False
        self._joined: Scope | None = None

    def whole(self) -> "Scope":
        """Return the scope that decides: this one, or the one that it joined when a savepoint was released."""
        found = self
        while found._joined is not None:
            found = found._joined
        return found


class Watch:
    """The present transaction on one connection, and the replaced methods of the connection.

    Args:
        connection: the connection of Django; its methods with the names of this class's methods are replaced.

    Attributes:
        scopes: the scopes of the transaction, the present one last.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self.scopes = [Scope()]
        self._marks: dict[str, int] = {}
        self._django = {name: getattr(connection, name) for name in METHODS}
        vars(connection).update({_MARK: self}, **{name: getattr(self, name) for name in METHODS})

    def savepoint(self) -> object:
        """Set a savepoint, and begin a new scope."""
        sid = self._django["savepoint"]()
        if sid:
            self._marks[sid] = len(self.scopes)
            self.scopes.append(Scope())
        return sid

    def savepoint_commit(self, sid: str) -> None:
        """Release a savepoint: the scopes after it join the one before it."""
        self._django["savepoint_commit"](sid)
        first = self._marks.pop(sid, len(self.scopes))
        for scope in self.scopes[first:]:
            scope._joined = self.scopes[first - 1]
        del self.scopes[first:]

    def savepoint_rollback(self, sid: str) -> None:
        """Roll back to a savepoint."""
        self._undo("savepoint_rollback", sid)

    def rollback(self) -> None:
        """Roll back the transaction."""
        self._undo("rollback")

    def close(self) -> None:
        """Close the connection, which rolls back."""
        self._undo("close")

    def commit(self) -> None:
        """Commit, if the locks that the transaction relies on are still held.

        Raises:
            LockLost: one of them was lost; the transaction was rolled back.
        """
        # No local may refer to a hook: the traceback of a failing COMMIT would keep it, and with it the lock.
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
        """Call the `on_commit` functions; those that release locks also if another one raises."""
        kept = self._kept()
        try:
            self._django["run_and_clear_commit_hooks"]()
        finally:
            _call_all(kept)

    def _end(self, first: int, undone: bool) -> None:
        for scope in self.scopes[first:]:
            scope.over, scope.undone = True, undone
        self.scopes[first:] = [Scope()]
        if first == 0:
            self._marks.clear()

    def _undo(self, name: str, *sid: str) -> None:
        """Call Django's own method, and then the releases among the `on_commit` functions that it has dropped."""
        # After, not before: a release would wait for the claim's row while this session has it locked.
        kept = self._kept()
        try:
            self._django[name](*sid)
        finally:
            still = self._kept()
            _call_all([hook for hook in kept if hook not in still])
        # A savepoint set before the watch began has no mark: all known scopes come after it.
        self._end(self._marks.get(sid[0], 0) if sid else 0, undone=True)

    def _kept(self) -> "list[Release]":
        return [hook for _, hook, *_ in self._connection.run_on_commit if isinstance(hook, Release)]


def watch(connection: BaseDatabaseWrapper) -> Watch:
    """Return the watch of a connection; begin one if there is none."""
    found: Watch | None = vars(connection).get(_MARK)
    return Watch(connection) if found is None else found


def watch_commits() -> None:
    """Let all connections of the calling thread check locks before each commit."""
    for alias in connections:
        watch(connections[alias])


def scope_of(connection: BaseDatabaseWrapper) -> Scope | None:
    """Return the present scope of a connection; None without a transaction, where each save commits immediately."""
    if not connection.in_atomic_block and connection.get_autocommit():
        return None
    return watch(connection).scopes[-1]


class Release:
    """An `on_commit` function: when the last of several transactions has ended, the locks are released.

    Args:
        relied: the locks, which are checked before the commit.
        using: the database of the transaction.
        left: the databases whose transactions have not ended; the same list in all of these functions.
        grant: the grant, or the grants of several locks.
    """

    def __init__(self, relied: Relied, using: str, left: list[str], grant: Grant | Grants) -> None:
        self.relied = relied
        self._using = using
        self._left = left
        self._grant: Any = grant

    def __call__(self) -> None:
        """Record that the transaction, or the savepoint in it, has ended; a second call has no effect."""
        grant, self._grant = self._grant, None
        if grant is None:
            return
        self._left.remove(self._using)
        if self._left:
            return
        try:
            _release(grant)
        except BaseException:  # also after an interrupt no lock may stay held
            _release(grant)
            raise


def _release(grant: Grant | Grants) -> None:
    try:
        grant.release()
    except LockError as error:
        log.warn("Could not release after a transaction; the lease will expire: %s", error)


def _call_all(hooks: list[Release]) -> None:
    with ExitStack() as stack:  # calls each of them, also after an interrupt
        while hooks:
            stack.callback(hooks.pop())


def kept_until_the_end(grant: Grant | Grants, using: Sequence[str], alias: str) -> bool:
    """Let the open transactions on some databases release a lock at their end; return False if there are none.

    Args:
        grant: the grant, or the grants of several locks; each commit checks before that it is held.
        using: the databases.
        alias: the alias of the locks in INTERLOCK.
    """
    left = [each for each in using if in_transaction(each)]
    if left:
        relied = Relied(alias, grant)
        for each in list(left):
            transaction.on_commit(Release(relied, each, left, grant), using=each)
    return bool(left)


class BrokenTransaction(LockError, transaction.TransactionManagementError):
    """The surrounding transaction can't be used: it has failed, or Django does not manage it."""


def in_transaction(using: str) -> bool:
    """Return True if the calling thread is in a transaction; the one that `TestCase` opens does not count."""
    connection = transaction.get_connection(using)
    blocks = getattr(connection, "atomic_blocks", [])
    return bool(connection.in_atomic_block and not all(getattr(each, "_from_testcase", False) for each in blocks))


def check_transaction(using: str) -> None:
    """Check that a lock can be held until the surrounding transaction ends, if there is one.

    Raises:
        BrokenTransaction: the transaction can only be rolled back, or was not begun by `atomic()`.
    """
    connection = transaction.get_connection(using)
    if connection.in_atomic_block:
        if connection.needs_rollback:
            raise BrokenTransaction(
                f"The transaction on {using!r} has failed. Leave its atomic() block first, which rolls it back."
            )
        return
    # Don't ask a closed connection: that would open it.
    asked = connection.connection is not None
    if not (connection.get_autocommit() if asked else connection.settings_dict["AUTOCOMMIT"]):
        raise BrokenTransaction(
            f"The database {using!r} is not in autocommit, and without an atomic() block the end of the "
            f"transaction is unknown. Use atomic()."
        )
