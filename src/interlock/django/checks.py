"""System checks, which explain a setting that would not work before anybody locks."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from django import VERSION
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register
from django.db import DEFAULT_DB_ALIAS, router

from interlock.client.connect import check_url
from interlock.core.errors import LockError
from interlock.core.redaction import described, masked
from interlock.django.beside import is_sqlite
from interlock.django.conf import ORM_STORE, StoreSettings, orm_aliases, place, places
from interlock.django.models import Claim
from interlock.django.statements import NOW

WITHOUT_SERVER = ("memory",)


@register
def settings_make_sense(app_configs: Any, **_: object) -> list[CheckMessage]:
    """Check INTERLOCK without asking a database or a server."""
    try:
        known = places()
    except LockError as error:
        return [Error(str(error), id="interlock.E001")]
    return [message for alias in known for message in _check_place(alias)]


@register(Tags.security, deploy=True)
def places_are_said(app_configs: Any, **_: object) -> list[CheckMessage]:
    """Say where claims are that the setting gives no place; only with `check --deploy`."""
    return [
        Info(
            f"INTERLOCK[{alias!r}] names no store, and the database {found.beside!r} is SQLite's: claims are kept in "
            f"{found.location}.",
            hint="They exclude the processes of this machine that use the same file.",
            id="interlock.I001",
        )
        for alias, found in _known_places()
        if found.beside is not None
    ]


def _known_places() -> Iterator[tuple[str, StoreSettings]]:
    try:
        for alias in places():
            yield alias, place(alias)
    except LockError:
        return  # `settings_make_sense` says so


@register
def transactions_begin_with_the_write_lock(app_configs: Any, **_: object) -> list[CheckMessage]:
    """Check that a request on SQLite does not read before it waits for a lock, which nobody could then release."""
    if VERSION < (5, 1):
        return []
    return [
        Warning(
            f"Under ATOMIC_REQUESTS a request that has read from the SQLite database {alias!r} keeps others from "
            f"committing, also one whose lock it waits for.",
            hint="Set \"transaction_mode\": \"IMMEDIATE\" in its OPTIONS.",
            id="interlock.W005",
        )
        for alias, database in settings.DATABASES.items()
        if is_sqlite(alias) and database.get("ATOMIC_REQUESTS")
        and str(database.get("OPTIONS", {}).get("transaction_mode")).upper() not in ("IMMEDIATE", "EXCLUSIVE")
    ]  # fmt: skip


@register(Tags.database)
def tables_are_there(app_configs: Any, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """Check that the tables of claims exist; only when databases are checked, and not by what makes the tables."""
    from django.db import connections

    if sys.argv[1:2] == ["migrate"]:
        return []

    table = Claim._meta.db_table
    asked = _orm_aliases() & set(databases or ())
    return [
        Warning(
            f"The database {alias!r} has no table of claims: locks in it will fail.",
            hint=f"Run `manage.py migrate interlock --database {alias}`.",
            id="interlock.W003",
        )
        for alias in sorted(asked)
        if table not in connections[alias].introspection.table_names()
    ]


def _orm_aliases() -> set[str]:
    return {alias or router.db_for_write(Claim) for alias in orm_aliases()}


def _check_place(alias: str) -> list[CheckMessage]:
    try:
        found = place(alias)
        _check_values(found.namespace, found.ttl)
    except LockError as error:
        return [Error(str(error), id="interlock.E001", obj=f"INTERLOCK[{alias!r}]")]
    if found.beside is not None:
        return []
    if found.location is not None:
        return _check_location(alias, found.location)
    try:
        found.store_class()
    except LockError as error:
        hint = (
            f"Give the dotted path of a store class, e.g. {ORM_STORE!r}, or a LOCATION; OPTIONS are the arguments of "
            f"that class, e.g. {{'MAX_CONNECTIONS': 2}}."
        )
        return [Error(str(error), hint=hint, id="interlock.E002", obj=f"INTERLOCK[{alias!r}]")]
    if found.backend == ORM_STORE:
        database = found.options.get("alias") or router.db_for_write(Claim)
        return problems_of(database) + _check_sqlite(alias, database)
    return []


def _check_sqlite(alias: str, database: str) -> list[CheckMessage]:
    if database != DEFAULT_DB_ALIAS or not is_sqlite(database):
        return []
    return [
        Warning(
            f"INTERLOCK[{alias!r}] keeps claims in the SQLite file of the site's data.",
            hint="A transaction there, also one that has only read, keeps claims from being written, and claims keep "
            "it from writing. Leave out BACKEND and ALIAS: claims are then kept in files beside the database.",
            id="interlock.W004",
        )
    ]


def _check_values(namespace: Any, ttl: Any) -> None:
    from interlock.client.connect import check_arguments

    check_arguments(namespace, ttl)


def _shown(location: Any) -> str:
    return repr(masked(location)) if isinstance(location, str) else described(location)


def _check_location(alias: str, location: Any) -> list[CheckMessage]:
    if not isinstance(location, str) or "://" not in location:
        return [
            Error(
                f"INTERLOCK[{alias!r}]: the LOCATION {_shown(location)} is no URL of a store.",
                hint="Give one like 'redis://host', 'file:///var/lib/site/locks', or leave it out for the database.",
                id="interlock.E003",
            )
        ]
    try:
        check_url(location)
    except LockError as error:
        hint = "Correct the LOCATION, or install the store that it names."
        return [Error(str(error), hint=hint, id="interlock.E002", obj=f"INTERLOCK[{alias!r}]")]
    if location.partition(":")[0] in WITHOUT_SERVER and not settings.DEBUG:
        return [
            Warning(
                f"INTERLOCK[{alias!r}]: memory:// is seen by one process only.",
                hint="A site that is served by several processes needs a store that all of them see.",
                id="interlock.W001",
            )
        ]
    return []


def problems_of(alias: str) -> list[CheckMessage]:
    """Return what speaks against keeping claims in a database.

    Args:
        alias: in DATABASES.
    """
    database = settings.DATABASES.get(alias)
    if database is None:
        return [
            Error(
                f"INTERLOCK names the database {alias!r}, which DATABASES does not have.",
                hint=f"It has: {', '.join(sorted(settings.DATABASES))}.",
                id="interlock.E004",
            )
        ]
    found: list[CheckMessage] = []
    if not apps.is_installed("interlock.django"):
        found.append(
            Error(
                "Claims are kept in the database, but 'interlock.django' is not in INSTALLED_APPS.",
                hint="Add it, and run `manage.py migrate`.",
                id="interlock.E005",
            )
        )
    found += _problems_of_database(alias, database)
    return found


def _problems_of_database(alias: str, database: Any) -> list[CheckMessage]:
    engine, name = str(database.get("ENGINE", "")), str(database.get("NAME", ""))
    found: list[CheckMessage] = []
    if "sqlite" in engine and (name == ":memory:" or ("mode=memory" in name and "cache=shared" not in name)):
        found.append(
            Error(
                f"The database {alias!r} is in memory, one for each connection: claims would exclude nobody.",
                hint="Give it a file, or use another store, e.g. LOCATION 'memory://' in tests.",
                id="interlock.E006",
            )
        )
    if database.get("TEST", {}).get("MIRROR"):
        found.append(
            Error(
                f"The database {alias!r} is a replica (its TEST has a MIRROR): what it shows is late.",
                hint="Give the ALIAS of the primary.",
                id="interlock.E007",
            )
        )
    if not router.allow_migrate_model(alias, Claim):
        found.append(
            Error(
                f"The database routers keep the table of claims out of the database {alias!r}.",
                hint="Let them allow to migrate the app 'interlock' there, or give another ALIAS.",
                id="interlock.E008",
            )
        )
    if "oracle" in engine or not _is_known(alias):
        found.append(
            Error(
                f"The ORM store does not know the clock of the database {alias!r} ({engine}).",
                hint="It works on PostgreSQL, MariaDB, MySQL and SQLite; give a LOCATION for another store.",
                id="interlock.E009",
            )
        )
    if "isolation" in str(database.get("OPTIONS", {})) and _keeps_snapshot(database["OPTIONS"]):
        found.append(
            Warning(
                f"Transactions on the database {alias!r} keep reading what was there when they began.",
                hint="occupy() inside of one can't read a row afresh; occupy first, or use READ COMMITTED.",
                id="interlock.W002",
            )
        )
    return found


def _is_known(alias: str) -> bool:
    from interlock.django.wrappers import make_wrapper

    return make_wrapper(alias).vendor in NOW


def _keeps_snapshot(options: Any) -> bool:
    level = options.get("isolation_level")
    word = getattr(level, "name", str(level)).replace("_", " ").lower()
    return word in ("repeatable read", "serializable", "2", "3")
