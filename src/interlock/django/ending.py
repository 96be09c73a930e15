"""Release a lock when the transaction around it has ended, so that the next holder reads what was committed."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from django.db import transaction

from interlock.core.errors import LockError
from interlock.django.committing import KeptForCommit
from interlock.django.relied import Relied
from interlock.runtime import log


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
    grant._block = None  # it is to outlive its `with` block
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
