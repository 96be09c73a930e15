"""The setting INTERLOCK: the store of each alias.

INTERLOCK = {
    "default": {"LOCATION": "redis://cache.example", "NAMESPACE": "shop", "TTL": 30},
    "reports": {"ALIAS": "default", "OPTIONS": {"MAX_CONNECTIONS": 2}},
}

An entry without LOCATION or BACKEND has its locks in a database: the one of ALIAS, else the one to which the database
routers write claims.
"""

from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from types import NoneType
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.utils.module_loading import import_string

from interlock.api.connect import open_store
from interlock.core.claims import checked_count
from interlock.core.errors import InvalidArgument, LockError, StoreError
from interlock.core.options import Options
from interlock.core.redaction import described, masked
from interlock.storekit.store import Store

DEFAULT = "default"
ORM = "orm:"  # the beginning of a LOCATION for locks by the ORM alone; the alias of a database may follow
DATABASE_STORE = "interlock.django.databases.DatabaseStore"
ORM_STORE = "interlock.django.store.OrmStore"
MAX_CONNECTIONS = "MAX_CONNECTIONS"
OF_LOCATION = frozenset({"config", "dial", "password"})  # arguments of `connect`
KEYS = frozenset({"LOCATION", "BACKEND", "ALIAS", "NAMESPACE", "TTL", "INSTANCE", "TAKEOVER", "OPTIONS", "NAME"})


class StoreSettings(NamedTuple):
    """One entry of INTERLOCK, checked.

    Attributes:
        location: the URL of a store; None without one.
        backend: the import path of a store class; None for the locks of a database.
        options: keyword arguments for that class, for the database's store, or for `connect` with the location.
        namespace, ttl, instance, takeover: as for `interlock.connect`.
    """

    location: str | None
    backend: str | None
    options: Options
    namespace: str
    ttl: float | None
    instance: str | None = None
    takeover: bool = False

    def __repr__(self) -> str:
        shown = masked(self.location) if self.location is not None else self.backend or self.database
        return f"<StoreSettings {shown}>"  # without passwords

    @property
    def database(self) -> str | None:
        """The alias of the database that has the locks; None if another store has them."""
        if self.location is not None or self.backend is not None:
            return None
        return self.options.get("alias") or database_of_claims()

    def open(self, tasks: bool) -> Store:
        """Connect to the store.

        Raises:
            InvalidArgument, StoreError: as `interlock.connect`, or the backend can't be imported.
        """
        if self.location is not None:
            return open_store(self.location, tasks, **self.options)
        return cast(Store, self.store_class()(**self.options))

    def store_class(self) -> Callable[..., object]:
        """Return the store class, without connecting.

        Raises:
            StoreError: the BACKEND can't be imported.
            InvalidArgument: it is not a store class, or does not accept the options.
        """
        try:
            found = import_string(self.backend or DATABASE_STORE)
        except ImportError as error:
            raise StoreError(f"INTERLOCK: the BACKEND {self.backend!r} cannot be imported: {error}") from error
        if self.backend in (None, ORM_STORE):
            checked_count(self.options.get("max_connections", 1), MAX_CONNECTIONS)
        if not (isinstance(found, type) and callable(getattr(found, "queue", None))):
            raise InvalidArgument(f"INTERLOCK: the BACKEND {self.backend!r} is not a store class.")
        try:
            signature(found).bind(**self.options)
        except TypeError as error:
            raise InvalidArgument(f"INTERLOCK: {found.__qualname__} does not take the OPTIONS: {error}") from error
        return cast(Callable[..., Any], found)


def places() -> Options:
    """Return INTERLOCK, with an empty entry "default" if it has none."""
    given = getattr(settings, "INTERLOCK", None) or {}
    if not isinstance(given, dict) or not all(isinstance(alias, str) for alias in given):
        raise InvalidArgument(f"INTERLOCK must be a dict of dicts by alias, like CACHES, not {described(given)}.")
    return {DEFAULT: {}, **given}


def place(alias: str) -> StoreSettings:
    """Return an entry of INTERLOCK.

    Raises:
        InvalidArgument: INTERLOCK has no such alias, or its entry is not valid.
    """
    known = places()
    if alias not in known:
        raise InvalidArgument(f"INTERLOCK has no {alias!r}. It has: {', '.join(sorted(known))}.")
    given = known[alias]
    if not isinstance(given, dict):
        raise InvalidArgument(f"INTERLOCK[{alias!r}] must be a dict, not {described(given)}.")
    unknown = sorted(map(repr, set(given) - KEYS))
    if unknown:
        raise InvalidArgument(f"INTERLOCK[{alias!r}] has no {unknown[0]}. Keys: {', '.join(sorted(KEYS))}.")
    options = given.get("OPTIONS") or {}
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise InvalidArgument(
            f"INTERLOCK[{alias!r}]: OPTIONS must be a dict with str keys, not {described(options)}."
        )
    options = {**options, "alias": given["ALIAS"]} if "ALIAS" in given else dict(options)
    location, backend = given.get("LOCATION"), given.get("BACKEND")
    for key, value in (("LOCATION", location), ("BACKEND", backend), ("ALIAS", options.get("alias"))):
        if not isinstance(value, (str, NoneType)):
            raise InvalidArgument(f"INTERLOCK[{alias!r}]: {key} must be a str, not {described(value)}.")
    if location is not None and (backend is not None or "ALIAS" in given):
        raise InvalidArgument(f"INTERLOCK[{alias!r}] has a LOCATION. Omit BACKEND and ALIAS.")
    if location is not None and location.startswith(ORM):
        options["alias"] = location.removeprefix(ORM) or None
        location, backend = None, ORM_STORE
    if location is not None and not OF_LOCATION.issuperset(options):
        name = sorted(set(options) - OF_LOCATION)[0]
        raise InvalidArgument(
            f"INTERLOCK[{alias!r}]: OPTIONS of a LOCATION are {', '.join(sorted(OF_LOCATION))}, not {name!r}. Write "
            f"other options into the URL."
        )
    if MAX_CONNECTIONS in options:
        options["max_connections"] = options.pop(MAX_CONNECTIONS)
    process = given.get("INSTANCE"), given.get("TAKEOVER", False)
    return StoreSettings(location, backend, options, given.get("NAMESPACE", ""), given.get("TTL"), *process)


def database_of_claims() -> str:
    """Return the alias of the database to which the routers write claims."""
    from django.apps import apps
    from django.db import DEFAULT_DB_ALIAS, router

    if not apps.is_installed("interlock.django"):
        return DEFAULT_DB_ALIAS
    from interlock.django.models import Claim

    return router.db_for_write(Claim)


def databases() -> dict[str, str]:
    """Return, by the aliases in INTERLOCK, the database of each entry whose locks are in a database."""
    found: dict[str, str] = {}
    with suppress(LockError):  # the system checks report it
        for alias in places():
            if (database := place(alias).database) is not None:
                found[alias] = database
    return found
