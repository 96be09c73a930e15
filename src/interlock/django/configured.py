"""The locks of INTERLOCK: clients that are made from the settings at first use."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.db.backends.base.base import NO_DB_ALIAS, BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from interlock.api._sync.locks import Locks
from interlock.core.errors import LockError
from interlock.django.conf import DEFAULT, place, places
from interlock.django.databases import DatabaseStore

if TYPE_CHECKING:
    from interlock.api._async.locks import AsyncLocks

L = TypeVar("L", bound=Any)


def make_locks(alias: str = DEFAULT, namespace: str | None = None) -> Locks:
    """Return new locks for threads, which the caller closes.

    Args:
        alias: the alias in INTERLOCK.
        namespace: replaces the configured namespace.
    """
    found = place(alias)
    space = found.namespace if namespace is None else namespace
    return Locks(found.open(False), namespace=space, ttl=found.ttl, instance=found.instance, takeover=found.takeover)


def make_alocks(alias: str = DEFAULT) -> "AsyncLocks":
    """Return new locks for asyncio tasks, which the caller closes."""
    from interlock.api._async.locks import AsyncLocks

    found = place(alias)
    return AsyncLocks(
        found.open(True), namespace=found.namespace, ttl=found.ttl, instance=found.instance, takeover=found.takeover
    )


class Configured(Generic[L]):
    """The locks of INTERLOCK, opened at first use: attributes are those of "default", `[alias]` selects another."""

    def __init__(self, make: Callable[[str], L]) -> None:
        self._make = make
        self._made: dict[str, L] = {}

    def __getitem__(self, alias: str) -> L:
        """Return the locks of an alias.

        Raises:
            InvalidArgument, StoreError: the setting is not valid, or the store can't be used.
        """
        made = self._made.get(alias)
        if made is None:  # several threads may make one: all get the first, and the others have opened nothing
            made = self._made.setdefault(alias, self._make(alias))
        if isinstance(made.store, DatabaseStore) and made.store.has_moved:
            made._client.drop()
        found: L = made
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self[DEFAULT], name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the aliases in INTERLOCK."""
        return iter(places())

    def put(self, alias: str, locks: L | None) -> L | None:
        """Set the locks of an alias; return the previous ones."""
        before = self._made.pop(alias, None)
        if locks is not None:
            self._made[alias] = locks
        return before

    def take_all(self) -> list[L]:
        """Remove and return all opened locks."""
        made, self._made = self._made, {}
        return list(made.values())

    def leave(self, all_of_them: bool) -> None:
        """Close the locks in databases of the site: all, or those whose database has another place now."""
        for made in list(self._made.values()):
            if isinstance(made.store, DatabaseStore) and (all_of_them or made.store.has_moved):
                made._client.drop()


locks: Configured[Locks] = Configured(make_locks)
"""The configured locks, for threads."""
alocks: "Configured[AsyncLocks]" = Configured(make_alocks)
"""The configured locks, for asyncio tasks."""


def forget_connections(*, setting: str, **_: object) -> None:
    """Close the locks that were made from the old setting when a test overrides it."""
    if setting not in ("INTERLOCK", "DATABASES"):
        return
    for made in locks.take_all():
        with suppress(LockError):  # the leases will expire
            made.close()
    for tasks in alocks.take_all():
        tasks._client.drop()


def _follow(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Close locks whose database Django is about to create, copy or drop, or whose place has changed.

    To create or drop a test database, Django opens a connection without a database; the test database must then have
    no other connections.
    """
    for each in (locks, alocks):
        each.leave(connection.alias == NO_DB_ALIAS)


connection_created.connect(_follow, dispatch_uid="interlock")
