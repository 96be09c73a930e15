"""System checks: they report a setting that would not work, before the first lock is taken."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django import VERSION
from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register
from django.db import router

from interlock.api.connect import check_url
from interlock.core.claims import MAX_NAME, checked_text, checked_ttl
from interlock.core.errors import LockError
from interlock.django.conf import ORM_STORE, database_of_claims, place, places
from interlock.django.conf import databases as databases_of_locks
from interlock.django.databases import (
    DRIVERS,
    OPENERS,
    is_in_memory,
    is_sqlite,
    libpq_of,
    pymysql_of,
    url_beside,
    vendor_of,
)
from interlock.django.models import Claim
from interlock.stores.mysql import TABLE as MYSQL
from interlock.stores.postgresql.ddl import TABLE as POSTGRESQL

TABLES = {"postgresql": POSTGRESQL, "mysql": MYSQL}
"""The table of the locks in each kind of database that has one."""


@register
def settings_make_sense(app_configs: Sequence[AppConfig] | None, **_: object) -> list[CheckMessage]:
    """Check INTERLOCK without connecting to a database or a server."""
    try:
        known = places()
    except LockError as error:
        return [Error(str(error), id="interlock.E001")]
    return [message for alias in known for message in _check_place(alias)]


@register(Tags.security, deploy=True)
def places_are_said(app_configs: Sequence[AppConfig] | None, **_: object) -> list[CheckMessage]:
    """Report the database of the claims if INTERLOCK does not set one; only with `check --deploy`."""
    return [
        Info(
            f"INTERLOCK[{alias!r}] names no store, and the database {database!r} is SQLite: claims are stored in "
            f"{url_beside(database)}.",
            hint="The locks work only between processes of this machine that use the same file.",
            id="interlock.I001",
        )
        for alias, database in databases_of_locks().items()
        if is_sqlite(database)
    ]


@register
def transactions_begin_with_the_write_lock(
    app_configs: Sequence[AppConfig] | None, **_: object
) -> list[CheckMessage]:
    """Check that transactions on SQLite begin with BEGIN IMMEDIATE, if requests are atomic.

    Otherwise a request reads first and then waits for a lock, whose holder can't commit.
    """
    if VERSION < (5, 1):
        return []
    return [
        Warning(
            f"Under ATOMIC_REQUESTS a request that has read from the SQLite database {alias!r} blocks the commits of "
            f"others, including the holder of a lock that it waits for.",
            hint="Set \"transaction_mode\": \"IMMEDIATE\" in its OPTIONS.",
            id="interlock.W005",
        )
        for alias, database in settings.DATABASES.items()
        if is_sqlite(alias) and database.get("ATOMIC_REQUESTS")
        and str(database.get("OPTIONS", {}).get("transaction_mode")).upper() not in ("IMMEDIATE", "EXCLUSIVE")
    ]  # fmt: skip


@register(Tags.database)
def tables_are_there(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: object
) -> list[CheckMessage]:
    """Check that the tables of claims exist; only if databases are checked, and not during `migrate`."""
    from django.db import connections

    if sys.argv[1:2] == ["migrate"]:
        return []
    return [
        Warning(
            f"The database {alias!r} has no table of locks. Its first use creates the table, if the account may.",
            hint=f"Run `manage.py migrate interlock --database {alias}`.",
            id="interlock.W003",
        )
        for alias in sorted(set(databases_of_locks().values()) & set(databases or ()))
        if vendor_of(alias) in TABLES
        and TABLES[vendor_of(alias)] not in connections[alias].introspection.table_names()
    ]


def _check_place(alias: str) -> Iterator[CheckMessage]:
    where = f"INTERLOCK[{alias!r}]"
    try:
        found = place(alias)
        checked_text(found.namespace, "namespace", MAX_NAME)
        if found.ttl is not None:
            checked_ttl(found.ttl)
    except LockError as error:
        yield Error(str(error), id="interlock.E001", obj=where)
        return
    try:
        if found.location is None:
            found.store_class()
        else:
            check_url(found.location)
    except LockError as error:
        yield Error(
            str(error),
            hint="Give a LOCATION such as 'redis://host' of an installed store, or the dotted path of a store class, "
            "or the ALIAS of a database. OPTIONS are arguments of that class, e.g. {'MAX_CONNECTIONS': 2} for a "
            "database.",
            obj=where,
            id="interlock.E002",
        )
        return
    if found.location is not None:
        if found.location.startswith("memory:") and not settings.DEBUG:
            yield Warning(
                f"{where}: memory:// exists in one process only.",
                hint="A site with several processes needs a store that all of them reach.",
                id="interlock.W001",
            )
    elif found.backend == ORM_STORE:
        yield from problems_of(found.options.get("alias") or database_of_claims(), by_orm=True)
    elif found.database is not None:
        yield from problems_of(found.database)


def problems_of(alias: str, by_orm: bool = False) -> Iterator[CheckMessage]:
    """Yield why a database can't be used for locks; nothing if it can.

    Args:
        alias: an alias in DATABASES.
        by_orm: True for `orm:`.
    """
    database = settings.DATABASES.get(alias)
    if database is None:
        yield Error(
            f"INTERLOCK names the database {alias!r}, which DATABASES does not have.",
            hint=f"It has: {', '.join(sorted(settings.DATABASES))}.",
            id="interlock.E004",
        )
        return
    vendor = vendor_of(alias)
    if by_orm and is_in_memory(alias):
        yield Error(
            f"The database {alias!r} is in memory, separate for each connection, so its records exclude nobody.",
            hint="Give the database a file, or omit the LOCATION: the locks are then in memory too.",
            id="interlock.E006",
        )
    elif by_orm and is_sqlite(alias):
        yield Warning(
            f"The records of the locks are in the SQLite file of the database {alias!r}.",
            hint="A transaction there, even one that has only read, blocks the writing of records, and records block "
            "its commit. Omit the LOCATION: the locks are then in a file beside the database.",
            id="interlock.W004",
        )
    elif not by_orm and vendor not in OPENERS:
        yield Info(
            f"Locks in the database {alias!r} ({vendor}) use the ORM (`orm:`), which is slow.",
            hint="interlock supports PostgreSQL, MariaDB, MySQL and SQLite natively. Or give a LOCATION.",
            id="interlock.I002",
        )
    elif not by_orm and vendor in TABLES:
        try:
            (libpq_of if vendor == "postgresql" else pymysql_of)(alias)
        except ImportError as error:  # only a warning, because guarded models need no locks
            yield Warning(
                f"Locks in the database {alias!r} need another driver: {error}.",
                hint=DRIVERS[vendor],
                id="interlock.W006",
            )
        except LockError as error:
            yield Error(str(error), hint="Correct the OPTIONS of the database.", id="interlock.E006")
    if by_orm or vendor != "sqlite":
        yield from _problems_of_database(alias, database)


def _problems_of_database(alias: str, database: Mapping[str, Any]) -> Iterator[CheckMessage]:
    if not apps.is_installed("interlock.django"):
        yield Error(
            "Claims are stored in the database, but 'interlock.django' is not in INSTALLED_APPS.",
            hint="Add it, and run `manage.py migrate`.",
            id="interlock.E005",
        )
    if database.get("TEST", {}).get("MIRROR"):
        yield Error(
            f"The database {alias!r} is a replica (its TEST has a MIRROR), so it cannot store locks.",
            hint="Give the ALIAS of the primary.",
            id="interlock.E007",
        )
    if not router.allow_migrate_model(alias, Claim):
        yield Error(
            f"The database routers keep the table of locks out of the database {alias!r}.",
            hint="Allow the migration of the app 'interlock' there, or give another ALIAS.",
            id="interlock.E008",
        )
    level = (database.get("OPTIONS") or {}).get("isolation_level")
    words = getattr(level, "name", str(level)).replace("_", " ").lower()
    if words in ("repeatable read", "serializable", "2", "3"):
        yield Warning(
            f"Transactions on the database {alias!r} read the state of their beginning.",
            hint="occupy() inside a transaction cannot reread a row. Call occupy() first, or use READ COMMITTED.",
            id="interlock.W002",
        )
