"""INTERLOCK in the settings, and the connections made from it.

INTERLOCK = {
    "default": {"LOCATION": "redis://cache.example", "NAMESPACE": "shop", "TTL": 30},
    "reports": {"BACKEND": "interlock.django.store.OrmStore", "ALIAS": "default"},
}
"""

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from django.conf import settings
from django.utils.module_loading import import_string

from interlock.claims import DEFAULT_TTL
from interlock.errors import InvalidArgument, LockError, StoreError
from interlock.stores.base import Store
from interlock.threads.connection import Locks
from interlock.urls import open_store

if TYPE_CHECKING:
    from interlock.aio.connection import AsyncLocks

L = TypeVar("L", bound=Any)
DEFAULT = "default"
ORM_STORE = "interlock.django.store.OrmStore"
KEYS = frozenset({"LOCATION", "BACKEND", "ALIAS", "NAMESPACE", "TTL", "OPTIONS"})


class Place(NamedTuple):
    """One entry of INTERLOCK, checked.

    Attributes:
        location: the URL of a store; None if there is a backend.
        backend: the path of a store class.
        options: keyword arguments for it.
        namespace, ttl: as for `interlock.connect`.
    """

    location: str | None
    backend: str
    options: dict[str, Any]
    namespace: str
    ttl: float

    def open(self, tasks: bool) -> Store:
        """Connect to the store.

        Raises:
            InvalidArgument, StoreError: as `interlock.connect`, or the backend can't be imported.
        """
        if self.location is not None:
            return open_store(self.location, tasks)
        try:
            make = import_string(self.backend)
        except ImportError as error:
            raise StoreError(f"INTERLOCK: the BACKEND {self.backend!r} can't be imported: {error}") from error
        store: Store = make(**self.options)
        return store


def places() -> dict[str, Any]:
    """Return INTERLOCK; without one, the default is the ORM store."""
    given = getattr(settings, "INTERLOCK", None) or {}
    if not isinstance(given, dict):
        raise InvalidArgument(f"INTERLOCK is a dict of dicts, like CACHES, not {given!r}")
    return {DEFAULT: {}, **given}


def place(alias: str) -> Place:
    """Return an entry of INTERLOCK.

    Raises:
        InvalidArgument: there is none of that alias, or it makes no sense.
    """
    known = places()
    if alias not in known:
        raise InvalidArgument(f"INTERLOCK has no {alias!r}; it has: {', '.join(sorted(known))}")
    given = known[alias]
    if not isinstance(given, dict):
        raise InvalidArgument(f"INTERLOCK[{alias!r}] is a dict, not {given!r}")
    unknown = sorted(set(given) - KEYS)
    if unknown:
        raise InvalidArgument(f"INTERLOCK[{alias!r}] has no {unknown[0]!r}; known are {', '.join(sorted(KEYS))}")
    location, backend = given.get("LOCATION"), given.get("BACKEND")
    if location is not None and backend is not None:
        raise InvalidArgument(f"INTERLOCK[{alias!r}] has a LOCATION and a BACKEND: give one of them")
    if location is not None and "ALIAS" in given:
        raise InvalidArgument(
            f"INTERLOCK[{alias!r}]: ALIAS says which database the ORM store uses; leave out LOCATION"
        )
    options = dict(given.get("OPTIONS") or {})
    if "ALIAS" in given:
        options["alias"] = given["ALIAS"]
    namespace, ttl = given.get("NAMESPACE", ""), given.get("TTL", DEFAULT_TTL)
    return Place(location, backend or ORM_STORE, options, namespace, ttl)


def orm_aliases() -> list[str | None]:
    """Return the databases of the entries with an ORM store, in their order; None for the routers' choice."""
    found: list[str | None] = []
    for alias in places():
        try:
            entry = place(alias)
        except LockError:
            continue
        if entry.location is None and entry.backend == ORM_STORE:
            found.append(entry.options.get("alias"))
    return found


def make_locks(alias: str = DEFAULT, namespace: str | None = None) -> Locks:
    """Return new locks for threads, which the caller closes.

    Args:
        alias: in INTERLOCK.
        namespace: in place of the configured one.
    """
    found = place(alias)
    return Locks(found.open(False), namespace=found.namespace if namespace is None else namespace, ttl=found.ttl)


def make_alocks(alias: str = DEFAULT) -> "AsyncLocks":
    """Return new locks for asyncio tasks, which the caller closes."""
    from interlock.aio.connection import AsyncLocks

    found = place(alias)
    return AsyncLocks(found.open(True), namespace=found.namespace, ttl=found.ttl)


class Configured(Generic[L]):
    """The locks of INTERLOCK: by itself those of "default", `[alias]` those of another; opened when first used."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._mutex = threading.RLock()
        self._made: dict[str, L] = {}

    def __getitem__(self, alias: str) -> L:
        """Return the locks of an alias.

        Raises:
            InvalidArgument, StoreError: the setting makes no sense, or the store can't be used.
        """
        made = self._made.get(alias)
        if made is None:
            with self._mutex:
                made = self._made.get(alias)
                if made is None:
                    made = self._made[alias] = self._make(alias)
        found: L = made
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self[DEFAULT], name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the aliases."""
        return iter(places())

    def put(self, alias: str, locks: L | None) -> L | None:
        """Use these locks for an alias from now on; return those that were used before."""
        with self._mutex:
            before = self._made.pop(alias, None)
            if locks is not None:
                self._made[alias] = locks
            return before

    def take_all(self) -> list[L]:
        """Forget all of them; return them."""
        with self._mutex:
            made, self._made = list(self._made.values()), {}
            return made

    def __repr__(self) -> str:
        return f"<the locks of INTERLOCK: {', '.join(self)}>"


locks: Configured[Locks] = Configured(make_locks)
"""The configured locks, for threads."""
alocks: "Configured[AsyncLocks]" = Configured(make_alocks)
"""The configured locks, for asyncio tasks."""


def _after_fork() -> None:
    for each in (locks, alocks):
        each._mutex = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def forget_connections(*, setting: str, **_: object) -> None:
    """When a test overrides the setting: close what was made from the old one."""
    if setting not in ("INTERLOCK", "DATABASES"):
        return
    for made in locks.take_all():
        try:
            made.close()
        except LockError:
            pass  # the leases will end
    for tasks in alocks.take_all():
        tasks.store.close()
