"""Transactions of Django that check locks before they commit, and release others after it or after a rollback."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, transaction

from interlock.core.errors import LockError
from interlock.django.commit_checks import check_before_commit
from interlock.django.relied import Relied, relied_on
from interlock.runtime import log

_MARK = "_interlock_checks_commits"


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
        relied = dict.fromkeys([*kept, *relied_on()])
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
    elif not _is_in_autocommit(connection):
        raise BrokenTransaction(
            f"the database {using!r} is not in autocommit, and no atomic() block says when the transaction ends: "
            f"nobody could know when to release; use atomic()"
        )


def _is_in_autocommit(connection: Any) -> bool:
    if connection.connection is None:  # to ask it would connect
        return bool(connection.settings_dict["AUTOCOMMIT"])
    return bool(connection.get_autocommit())


def release_at_the_end(grant: Any, using: Sequence[str], alias: str) -> None:
    """Release when the transactions around have all ended; at once if there is none.

    Args:
        grant: the grant, or the grants of several locks; the transactions check before they commit that it is held.
        using: the databases.
        alias: of the locks, in INTERLOCK.

    Raises:
        StoreError: there is none, and the store could not be asked.
    """
    waits_for = [each for each in using if in_transaction(each)]
    if not waits_for:
        grant.release()
        return
    grant._in_body = False  # it is to outlive its `with` block
    relied, ending = Relied(alias, grant), _Ending(grant.release, len(waits_for))
    for each in waits_for:
        transaction.on_commit(_Vote(ending, relied), using=each)


class _Ending:
    """Releases when all transactions have ended.

    Args:
        release: what releases.
        transactions: how many there are.
    """

    def __init__(self, release: Callable[[], object], transactions: int) -> None:
        self._over = False
        self._pid = os.getpid()
        self._left = transactions
        self._release = release

    def one_less(self) -> None:
        """Note that one of the transactions has ended."""
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        try:
            self._try_to_release()
        except BaseException:  # an interrupt: nothing may stay behind
            self._try_to_release()
            raise
        finally:
            self._over = True

    def _try_to_release(self) -> None:
        try:
            self._release()
        except LockError as error:
            log.warn("could not release after a transaction, the lease will end: %s", error)

    def __del__(self) -> None:
        # Code that drops hooks and calls none of them, or empties the list, ends the transaction for them.
        if not self._over and self._pid == os.getpid():
            self._finish()


class _Vote(KeptForCommit):
    """What a transaction keeps for its commit; called after that, or when it or its savepoint was rolled back."""

    def __init__(self, ending: _Ending, relied: Relied) -> None:
        self._ending: _Ending | None = ending
        self.relied = relied

    def __call__(self) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.one_less()
