"""Transactions of Django that check locks before they commit, and release others after it or after a rollback."""

from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from interlock.django.commit_checks import check_before_commit
from interlock.django.relied import Relied, relied_on

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
