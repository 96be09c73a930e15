"""What a rolled back transaction has undone.

A saved instance believes that its values stand in its row. When the transaction is rolled back they don't, and the
next save must write them again, as Django's own would. Django tells nobody of a rollback: `on_commit` functions are
just dropped, and they would be seen by tests that count them. So the connection's own methods tell it here.
"""

from collections.abc import Callable
from typing import Any

_NAME = "_interlock_watch"


class Scope:
    """What was saved between two savepoints, or ends, of one transaction: it stands or falls as one."""

    __slots__ = ("_joined", "_over", "_undone")

    def __init__(self, over: bool = False, undone: bool = False) -> None:
        self._over = over
        self._undone = undone
        self._joined: Scope | None = None

    @property
    def whole(self) -> "Scope":
        """The scope with which it stands or falls: itself, or what it has joined when a savepoint was released."""
        found = self
        while found._joined is not None:
            found = found._joined
        if found is not self:
            self._joined = found
        return found

    @property
    def over(self) -> bool:
        """True once the transaction has ended."""
        return self.whole._over

    @property
    def undone(self) -> bool:
        """True once it was rolled back, as a whole or to a savepoint before this."""
        return self.whole._undone

    def end(self, undone: bool) -> None:
        """Note how it ended."""
        self._over, self._undone = True, undone

    def join(self, other: "Scope") -> None:
        """Stand or fall with another from now on."""
        if other is not self:
            self._joined = other

    def __deepcopy__(self, memo: dict[int, Any]) -> "Scope":
        return self

    def __reduce__(self) -> tuple[Callable[[bool, bool], "Scope"], tuple[bool, bool]]:
        # A process that gets it pickled is in another transaction, and never learns how this one ends afterwards.
        return Scope, (True, self.undone)


class Age:
    """Another object each time when a scope anywhere has ended or joined another."""

    now: object = object()


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

    def kept(self, savepoint: str) -> None:
        """A savepoint was released: what is after it stands or falls with what is before it."""
        first = self._marks.get(savepoint, 0)
        marks = list(self._marks)
        for inner in marks[marks.index(savepoint) if savepoint in self._marks else 0 :]:
            del self._marks[inner]
        after = self._scopes[first:]
        if not after:
            return
        alone = first == 0 or first in self._marks.values()  # another savepoint stands between
        whole = after[0] if alone else self._scopes[first - 1]
        for scope in after:
            scope.join(whole)
        del self._scopes[first + alone :]
        self._sealed = False
        Age.now = object()

    def ended(self, undone: bool) -> None:
        """The transaction was committed or rolled back."""
        self._end(0, undone)
        self._marks.clear()

    def _end(self, first: int, undone: bool) -> None:
        for scope in self._scopes[first:]:
            scope.end(undone)
        del self._scopes[first:]
        self._sealed = True
        Age.now = object()


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
        ("savepoint_commit", watch.kept),
        ("commit", lambda _: watch.ended(undone=False)),
        ("rollback", lambda _: watch.ended(undone=True)),
        ("close", lambda _: watch.ended(undone=True)),
    ):
        setattr(connection, name, _telling(getattr(connection, name), tell))
    return watch


def _telling(method: Callable[..., Any], tell: Callable[[Any], object]) -> Callable[..., Any]:
    def noting(*args: Any, **kwargs: Any) -> Any:
        answer = method(*args, **kwargs)
        tell(next(iter((*args, *kwargs.values())), answer))
        return answer

    noting.__doc__ = method.__doc__
    return noting
