"""The databases of a site as stores for locks, configured by the site's settings.

The locks have their own connections beside Django's: no transaction or rollback of the site affects a claim.  They
connect to the database that Django would use now, so tests have their claims in the test database.

On SQLite only one transaction at a time writes to a file, and an open read transaction prevents others from
committing.  So the claims are not in the data's file but beside it, in a folder of the file store.  A database in
memory belongs to one process, and so do its claims.
"""

import os
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from interlock.core.errors import InvalidArgument, StoreError, install
from interlock.core.options import Options, path_url
from interlock.core.queue import Feature
from interlock.django.conf import database_of_claims
from interlock.storekit.store import Store
from interlock.stores.files.open_file import Sharing
from interlock.stores.files.system import system

if TYPE_CHECKING:
    from interlock.core._async.protocols import AsyncQueue
    from interlock.core._sync.protocols import Queue


MAX_CONNECTIONS = 4  # connections of a process to a database, besides those of Django
FOR_PROGRAMS = frozenset({"autocommit", "connection_factory", "context", "cursor_factory", "prepare_threshold"})
"""Options of psycopg that do not belong to the connection, and are left out."""
FOR_QUERIES = frozenset({"charset", "client_flag", "conv", "sql_mode", "use_unicode", "local_infile"})
"""The same for MySQL drivers."""
TLS_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
"""Values of mysqlclient's `ssl_mode`."""


def vendor_of(alias: str) -> str:
    """Return Django's name for the kind of a database, like "postgresql"."""
    return str(connections.create_connection(alias).vendor)


def place_of(alias: str) -> tuple[object, ...]:
    """Return what identifies a database now: tests change it, and another search_path finds another table."""
    known = connections.settings[alias]
    return (str(known.get("NAME")), *(known.get(each) for each in ("ENGINE", "HOST", "PORT", "USER", "OPTIONS")))


def given_by(alias: str) -> Options:
    """Return the arguments with which Django would connect to a database now.

    Raises:
        InvalidArgument: Django can't use the settings.
    """
    try:
        found: Options = connections.create_connection(alias).get_connection_params()
    except ImproperlyConfigured as error:
        raise InvalidArgument(f"DATABASES[{alias!r}] cannot be used: {error}") from error
    return found


def libpq_of(alias: str) -> Options:
    """Return the arguments with which libpq connects to a database.

    Raises:
        InvalidArgument: libpq does not know an option.
    """
    from psycopg.pq import Conninfo

    from interlock.stores.postgresql.options import CONNECTION_DEFAULTS

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    given = {name: value for name, value in given_by(alias).items() if name not in FOR_PROGRAMS}
    _refuse(alias, set(given) - known, "libpq", "postgresql")
    role = connections.settings[alias]["OPTIONS"].get("assume_role")
    if role:  # Django runs SET ROLE after connecting; libpq has an option for it
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        given["options"] = f"{given.get('options', '')} -c role={escaped}".strip()
    return {**CONNECTION_DEFAULTS, **given, "client_encoding": "utf8"}


def pymysql_of(alias: str) -> Options:
    """Return the arguments with which PyMySQL connects to a database.

    Raises:
        InvalidArgument: PyMySQL does not know an option.
    """
    import pymysql  # type: ignore[import-untyped]

    given = {name: value for name, value in given_by(alias).items() if name not in FOR_QUERIES}
    files = given.get("ssl") or {}
    if isinstance(files, dict):  # mysqlclient's form, with the names of `mysql_ssl_set`
        given.pop("ssl", None)
        given |= {f"ssl_{name}": value for name, value in files.items() if value is not None}
    if given.pop("ssl_check_hostname", False):
        given["ssl_verify_identity"] = True
    mode = str(given.pop("ssl_mode", "PREFERRED")).upper()
    _refuse(alias, set(given) - set(signature(pymysql.connect).parameters), "PyMySQL", "mysql")
    if mode not in TLS_MODES:
        raise InvalidArgument(f"DATABASES[{alias!r}]: unknown ssl_mode {mode}. Modes: {', '.join(TLS_MODES)}.")
    if mode == "DISABLED":
        given["ssl_disabled"] = True
    elif mode.startswith("VERIFY"):
        given |= {"ssl_verify_cert": True, "ssl_verify_identity": mode == "VERIFY_IDENTITY"}
    elif mode == "REQUIRED" and not any(name.startswith("ssl") for name in given):
        context = given["ssl"] = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the mode requires encryption only
    return given


def _refuse(alias: str, unknown: set[str], library: str, scheme: str) -> None:
    if unknown:
        raise InvalidArgument(
            f"DATABASES[{alias!r}] has an option {sorted(unknown)[0]!r} unknown to {library}, the driver of the "
            f"locks. Omit the option, or select a store in INTERLOCK, e.g. {{'LOCATION': '{scheme}://…'}}."
        )


def _postgresql(alias: str, most: int) -> Store:
    from interlock.stores.postgresql import PostgresStore
    from interlock.stores.postgresql.options import PostgresOptions

    # `blocks`: a custom database backend may request a password from a cloud service.
    return PostgresStore(
        PostgresOptions(f"DATABASES[{alias!r}]", max_connections=most, arguments=lambda: libpq_of(alias), blocks=True)
    )


def _mysql(alias: str, most: int) -> Store:
    from interlock.stores.mysql import MysqlStore
    from interlock.stores.mysql.options import IO_TIMEOUT, MysqlOptions, dialled, usual

    where = f"DATABASES[{alias!r}]"
    return MysqlStore(
        MysqlOptions(
            where, lambda: dialled(usual(IO_TIMEOUT) | pymysql_of(alias), where, False), max_connections=most
        )
    )


def _beside(alias: str, most: int) -> Store:
    """Return the store beside a database; its folder is made for the users who may write to the database."""
    from interlock.api.connect import open_store

    if not is_in_memory(alias):
        folder = folder_beside(alias)
        with suppress(OSError):  # the store reports the error
            if not folder.is_dir():
                system.make_folder(folder, *_sharing(_file(alias)))
    return open_store(url_beside(alias))


def _records(alias: str, most: int) -> Store:
    from interlock.django.record_store import RecordStore

    return RecordStore(alias, most)


OPENERS: dict[str, Callable[[str, int], Store]] = {"postgresql": _postgresql, "mysql": _mysql, "sqlite": _beside}

_ORM = "to keep the current driver, set INTERLOCK = {'default': {'LOCATION': 'orm:'}} (slower)"
DRIVERS = {
    "postgresql": f"pip install 'psycopg[binary]', or, {_ORM}",
    "mysql": f"{install('mariadb')}, or, {_ORM}",
}
"""The packages that the locks need: psycopg 3, which Django then uses too; PyMySQL, beside the site's driver."""


class DatabaseStore(Store):
    """A store in a database of DATABASES; it reads the settings when a queue is made.

    Args:
        alias: the alias in DATABASES; None for the database to which the routers write claims.
        max_connections: the maximum number of connections of a process to it, besides those of the site.

    Attributes:
        place: what identified the database when the last queue was made; see `place_of`.

    Raises:
        InvalidArgument: there is no such database.
        StoreError: a driver is missing.
    """

    def __init__(self, alias: str | None = None, max_connections: int = MAX_CONNECTIONS) -> None:
        self.alias = alias or database_of_claims()
        if self.alias not in connections.settings:
            raise InvalidArgument(
                f"DATABASES has no {self.alias!r}. It has: {', '.join(sorted(connections.settings))}."
            )
        self._most = max_connections
        first = self._opened()
        self.features: frozenset[Feature] = first.features
        self.frees_at_death: bool = first.frees_at_death
        self.now: Callable[[], float] = first.now

    def _opened(self) -> Store:
        vendor = vendor_of(self.alias)
        self.place = place_of(self.alias)
        try:
            return OPENERS.get(vendor, _records)(self.alias, self._most)
        except ImportError as error:
            raise StoreError(f"Locks in {vendor} need a driver ({error}). Run: {DRIVERS.get(vendor)}") from error

    @property
    def has_moved(self) -> bool:
        """True if the alias means another database now: a test run has begun or ended."""
        return self.place != place_of(self.alias)

    def queue(self) -> "Queue":
        """See `Store.queue`."""
        return self._opened().queue()

    def aqueue(self) -> "AsyncQueue":
        """See `Store.aqueue`."""
        return self._opened().aqueue()


SUFFIX = "-locks"  # like SQLite's own -journal, -wal and -shm
WRITES = 0o022  # write permission of the group and of others


def is_sqlite(alias: str) -> bool:
    """Return True if a database is SQLite."""
    return "sqlite" in str(settings.DATABASES.get(alias, {}).get("ENGINE", ""))


def is_in_memory(alias: str) -> bool:
    """Return True if a database is SQLite in memory."""
    name = _name(alias)
    return is_sqlite(alias) and (not name or ":memory:" in name or "mode=memory" in name)


def url_beside(alias: str) -> str:
    """Return the URL of the store for the claims of a SQLite database."""
    if is_in_memory(alias):
        return f"memory://interlock-django/{quote(alias, safe='')}"
    return path_url(str(folder_beside(alias)))


def folder_beside(alias: str) -> Path:
    """Return the folder of the claims beside the file of a SQLite database; symbolic links are resolved."""
    file = _file(alias)
    return file.with_name(file.name + SUFFIX)


def _sharing(file: Path) -> tuple[int, Sharing]:
    around = os.stat(file.parent)
    try:
        found = os.stat(file)
    except FileNotFoundError:
        found = around
    writes = found.st_mode & around.st_mode & WRITES
    if around.st_mode & stat.S_ISVTX and found is around:
        writes = 0  # a sticky folder like /tmp does not mean that its users share files
    mode = 0o700 | (0o2070 if writes & 0o020 else 0) | (0o007 if writes & 0o002 else 0)
    return mode, Sharing(mode, found.st_uid, found.st_gid)


def _name(alias: str) -> str:
    return str(settings.DATABASES[alias].get("NAME", ""))


def _file(alias: str) -> Path:
    name = _name(alias)
    path = unquote(urlsplit(name).path) if name.startswith("file:") else name
    return Path(os.path.realpath(path))
