"""INTERLOCK in the settings: where the claims of each alias are.

INTERLOCK = {
    "default": {"LOCATION": "redis://cache.example", "NAMESPACE": "shop", "TTL": 30},
    "reports": {"BACKEND": "interlock.django.store.OrmStore", "ALIAS": "default", "OPTIONS": {"MAX_CONNECTIONS": 2}},
}

An entry that says nothing of a store has the ORM store; where its database is SQLite's, the files beside that.
"""

from collections.abc import Callable
from inspect import signature
from types import NoneType
from typing import Any, NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string

from interlock.client.connect import open_store
from interlock.core.claims import DEFAULT_TTL
from interlock.core.errors import InvalidArgument, LockError, StoreError
from interlock.core.redaction import described, masked
from interlock.core.store import Store
from interlock.stores.driven import DrivenStore

DEFAULT = "default"
ORM_STORE = "interlock.django.store.OrmStore"
MAX_CONNECTIONS = "MAX_CONNECTIONS"
KEYS = frozenset({"LOCATION", "BACKEND", "ALIAS", "NAMESPACE", "TTL", "OPTIONS", "NAME"})


class StoreSettings(NamedTuple):
    """One entry of INTERLOCK, checked.

    Attributes:
        location: the URL of a store; None if there is a backend.
        backend: the path of a store class.
        options: keyword arguments for it.
        namespace, ttl: as for `interlock.connect`.
        beside: the SQLite database that the location was chosen for, since nobody gave one.
    """

    location: str | None
    backend: str
    options: dict[str, Any]
    namespace: str
    ttl: float
    beside: str | None = None

    def __repr__(self) -> str:
        return f"<StoreSettings {self.backend if self.location is None else masked(self.location)}>"  # no passwords

    def open(self, tasks: bool) -> Store:
        """Connect to the store.

        Raises:
            InvalidArgument, StoreError: as `interlock.connect`, or the backend can't be imported.
        """
        if self.beside is not None:
            from interlock.django.beside import prepare

            prepare(self.beside)
        if self.location is not None:
            return open_store(self.location, tasks)
        return DrivenStore(self.store_class()(**self.options))

    def store_class(self) -> Callable[..., Any]:
        """Return the class that BACKEND names, without connecting.

        Raises:
            StoreError: it can't be imported.
            InvalidArgument: it is no store class, or does not take the options.
        """
        try:
            found = import_string(self.backend)
        except ImportError as error:
            raise StoreError(f"INTERLOCK: the BACKEND {self.backend!r} can't be imported: {error}") from error
        if not (isinstance(found, type) and callable(getattr(found, "enter", None))):
            raise InvalidArgument(f"INTERLOCK: the BACKEND {self.backend!r} is no store class")
        try:
            signature(found).bind(**self.options)
        except TypeError as error:
            raise InvalidArgument(
                f"INTERLOCK: the BACKEND {self.backend!r} does not take its OPTIONS: {error}"
            ) from error
        if self.backend == ORM_STORE and "max_connections" in self.options:
            checked_most(self.options["max_connections"])
        return found


def places() -> dict[str, Any]:
    """Return INTERLOCK, with a default that says nothing unless it has one."""
    given = getattr(settings, "INTERLOCK", None) or {}
    if not isinstance(given, dict):
        raise InvalidArgument(f"INTERLOCK is a dict of dicts, like CACHES, not {described(given)}")
    for alias in given:
        if not isinstance(alias, str):
            raise InvalidArgument(f"the keys of INTERLOCK are aliases, like 'default', not {described(alias)}")
    return {DEFAULT: {}, **given}


def checked_most(most: Any) -> int:
    """Return how many connections a process may have to a database.

    Raises:
        InvalidArgument: it is no number from 1 on.
    """
    if type(most) is not int or most < 1:
        said = repr(most) if isinstance(most, str) else described(most)
        raise InvalidArgument(f"MAX_CONNECTIONS is a whole number from 1 on, not {said}")
    return most


def place(alias: str) -> StoreSettings:
    """Return an entry of INTERLOCK.

    Raises:
        InvalidArgument: there is none of that alias, or it makes no sense.
    """
    known = places()
    if alias not in known:
        raise InvalidArgument(f"INTERLOCK has no {alias!r}; it has: {', '.join(sorted(known))}")
    given = known[alias]
    if not isinstance(given, dict):
        raise InvalidArgument(f"INTERLOCK[{alias!r}] is a dict, not {described(given)}")
    unknown = sorted(map(repr, set(given) - KEYS))
    if unknown:
        raise InvalidArgument(f"INTERLOCK[{alias!r}] has no {unknown[0]}; known are {', '.join(sorted(KEYS))}")
    location, backend = given.get("LOCATION"), given.get("BACKEND")
    if not isinstance(backend, (str, NoneType)):
        raise InvalidArgument(f"INTERLOCK[{alias!r}]: BACKEND is the path of a class, not {described(backend)}")
    options = given.get("OPTIONS") or {}
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise InvalidArgument(f"INTERLOCK[{alias!r}]: OPTIONS is a dict with texts as keys, not {described(options)}")
    if location is not None and backend is not None:
        raise InvalidArgument(f"INTERLOCK[{alias!r}] has a LOCATION and a BACKEND: give one of them")
    if location is not None and "ALIAS" in given:
        raise InvalidArgument(
            f"INTERLOCK[{alias!r}]: ALIAS says which database the ORM store uses; leave out LOCATION"
        )
    options = dict(options)
    if "ALIAS" in given:
        options["alias"] = given["ALIAS"]
    if backend in (None, ORM_STORE) and not isinstance(options.get("alias"), (str, NoneType)):
        raise InvalidArgument(f"INTERLOCK[{alias!r}]: ALIAS is a text, not {described(options['alias'])}")
    if MAX_CONNECTIONS in options:
        options["max_connections"] = options.pop(MAX_CONNECTIONS)
    namespace, ttl = given.get("NAMESPACE", ""), given.get("TTL", DEFAULT_TTL)
    found = StoreSettings(location, backend or ORM_STORE, options, namespace, ttl)
    return found if location is not None or found.backend != ORM_STORE else _on_sqlite(found, backend is None)


def _on_sqlite(found: StoreSettings, unsaid: bool) -> StoreSettings:
    """Return where claims are kept that would be in a database, if that is SQLite's.

    Args:
        found: with the ORM store.
        unsaid: True if the setting does not name it.
    """
    from interlock.django.beside import is_in_memory, is_sqlite, url_beside

    database = found.options.get("alias") or _database_of_claims()
    if is_in_memory(database) or (unsaid and "alias" not in found.options and is_sqlite(database)):
        return found._replace(location=url_beside(database), beside=database)
    return found


def _database_of_claims() -> str:
    from django.apps import apps
    from django.db import DEFAULT_DB_ALIAS, router

    if not apps.is_installed("interlock.django"):
        return DEFAULT_DB_ALIAS
    from interlock.django.models import Claim

    return router.db_for_write(Claim)


def orm_aliases() -> list[str | None]:
    """Return the databases of the entries with an ORM store, in their order; None for the routers' choice."""
    found: list[str | None] = []
    try:
        known = places()
    except LockError:
        return found  # the checks say so
    for alias in known:
        try:
            entry = place(alias)
        except LockError:
            continue
        if entry.location is None and entry.backend == ORM_STORE:
            found.append(entry.options.get("alias"))
    return found
