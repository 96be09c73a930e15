"""What a rolled back transaction has undone.

A saved instance believes that its values stand in its row. When the transaction is rolled back they don't, and the
next save must write them again, as Django's own would. Django tells nobody of a rollback: `on_commit` functions are
just dropped, and they would be seen by tests that count them. So the connection's own methods tell it here.
"""

from collections.abc import Callable
from typing import Any

_NAME = "_interlock_watch"


class Scope:
    """What was saved between two savepoints, or ends, of one transaction: it stands or falls as one.

    Attributes:
        over: the transaction has ended.
        undone: it was rolled back, as a whole or to a savepoint before this.
    """

    __slots__ = ("over", "undone")

    def __init__(self, over: bool = False) -> None:
        self.over = over
        self.undone = False

    def end(self, undone: bool) -> None:
        """Note how it ended."""
        self.over, self.undone = True, undone

    def __deepcopy__(self, memo: dict[int, Any]) -> "Scope":
        return self

    def __reduce__(self) -> tuple[Callable[[bool], "Scope"], tuple[bool]]:
        # Who gets it pickled is in another transaction, and can never learn how this one ends.
        return Scope, (True,)


class Watch:
    """The transaction that is under way on one connection."""

    def __init__(self) -> None:
        self._scopes: list[Scope] = []
        self._marks: dict[str, int] = {}
        self._sealed = True

    def scope(self) -> Scope:
        """Return the scope of what is saved now."""
        if self._sealed:
            self._scopes.append(Scope())
            self._sealed = False
        return self._scopes[-1]

    def marked(self, savepoint: str | None) -> None:
        """A savepoint was set; what is saved from now on is after it."""
        if savepoint:
            self._marks[savepoint] = len(self._scopes)
            self._sealed = True

    def undone_to(self, savepoint: str) -> None:
        """All after a savepoint was rolled back."""
        # A savepoint that was set before anything was saved is not known here.
        self._end(self._marks.get(savepoint, 0), undone=True)

    def ended(self, undone: bool) -> None:
        """The transaction was committed or rolled back."""
        self._end(0, undone)
        self._marks.clear()

    def _end(self, first: int, undone: bool) -> None:
        for scope in self._scopes[first:]:
            scope.end(undone)
        del self._scopes[first:]
        self._sealed = True


def scope_of(connection: Any) -> Scope | None:
    """Return the scope of what is saved on a connection now; None if it stands at once, without a transaction."""
    if not connection.in_atomic_block and connection.get_autocommit():
        return None
    watch: Watch | None = vars(connection).get(_NAME)
    if watch is None:
        watch = _watched(connection)
    return watch.scope()


def _watched(connection: Any) -> Watch:
    """Have the methods of one connection that begin or end something tell a watch."""
    watch = Watch()
    setattr(connection, _NAME, watch)
    for name, tell in (
        ("savepoint", lambda answer: watch.marked(answer)),
        ("savepoint_rollback", watch.undone_to),
        ("commit", lambda _: watch.ended(undone=False)),
        ("rollback", lambda _: watch.ended(undone=True)),
        ("close", lambda _: watch.ended(undone=True)),
    ):
        setattr(connection, name, _telling(getattr(connection, name), tell))
    return watch


def _telling(method: Callable[..., Any], tell: Callable[[Any], object]) -> Callable[..., Any]:
    def told(*args: Any, **kwargs: Any) -> Any:
        answer = method(*args, **kwargs)
        tell(next(iter((*args, *kwargs.values())), answer))
        return answer

    told.__doc__ = method.__doc__
    return told
