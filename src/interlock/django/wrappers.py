"""Django's wrapper of a database connection, made for the store alone: how it is set up, opened and closed."""

import asyncio
import copy
import threading
from typing import Any

from django.db import DatabaseError, connections
from django.db.utils import InterfaceError

from interlock.django.failures import connecting_failed
from interlock.django.statements import keep_cursor

PREPARES_AFTER = 3  # uses of a statement on a connection
KEEPS_SHUT = ("pool", "server_side_binding", "isolation_level", "prepare_threshold")


def database_name(alias: str) -> str:
    """Return the NAME of a database as it is now: a run of tests changes it."""
    return str(connections.settings[alias]["NAME"])


def make_wrapper(alias: str, more: dict[str, Any] | None = None) -> Any:
    """Return a connection wrapper for `alias` that Django itself does not know of; not connected yet.

    Args:
        alias: in DATABASES.
        more: options of the driver, unless the settings have them.
    """
    wrapper: Any = connections.create_connection(alias)
    settings = copy.deepcopy(wrapper.settings_dict)
    options = settings.setdefault("OPTIONS", {})
    for option in KEEPS_SHUT:
        options.pop(option, None)
    if wrapper.vendor == "mysql":
        options["isolation_level"] = "read committed"
    if wrapper.vendor == "postgresql" and _is_psycopg3():
        options.update(server_side_binding=True, prepare_threshold=None)
    for option, value in (more or {}).items():
        options.setdefault(option, value)
    settings.update(AUTOCOMMIT=True, ATOMIC_REQUESTS=False)
    wrapper.settings_dict = settings
    wrapper.inc_thread_sharing()
    return wrapper


def open_wrapper(alias: str, more: dict[str, Any] | None = None) -> Any:
    """Return a connected wrapper, in autocommit; arguments as for `make_wrapper`.

    Raises:
        NotReached: the database can't be reached now; `NoConnection` if it has too many connections.
    """
    wrapper = make_wrapper(alias, more)
    try:
        _connect(wrapper)
        if not wrapper.get_autocommit():
            wrapper.set_autocommit(True)
        if wrapper.vendor == "mysql":
            with wrapper.cursor() as cursor:
                # SYSDATE() is local time, which goes back by an hour once a year.
                cursor.execute("SET time_zone = '+00:00'")
        elif wrapper.vendor == "postgresql" and _may_prepare(wrapper):
            wrapper.connection.prepare_threshold = PREPARES_AFTER
        keep_cursor(wrapper)
    except (DatabaseError, InterfaceError) as error:
        shut(wrapper)
        raise connecting_failed(error, alias) from error
    except BaseException:
        shut(wrapper)
        raise
    return wrapper


def _connect(wrapper: Any) -> None:
    """Connect, and leave this thread's own connection as it was.

    `django.contrib.postgres` looks up its types on that, when another is made; then nobody would close it.
    """
    own: Any = connections[wrapper.alias]
    was_open = own.connection is not None
    try:
        with wrapper.wrap_database_errors:
            wrapper.connect()  # not `ensure_connection`, which a TestCase forbids for databases that it does not name
    finally:
        if not was_open and own.connection is not None:
            own.close()


def _is_psycopg3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return bool(is_psycopg3)


def _may_prepare(wrapper: Any) -> bool:
    """Tell whether statements may be prepared by name, which saves two fifths of their time."""
    return _is_psycopg3() and is_direct(wrapper)


def is_direct(wrapper: Any) -> bool:
    """Tell whether a connection to PostgreSQL has a session of its own.

    A pooler like PgBouncer gives each transaction another session, in which a prepared name means nothing, or another
    statement.  It tells its clients a process id of its own making, which is not that of the session.
    """
    if wrapper.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        return False
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (session,) = cursor.fetchone()
    return bool(session == wrapper.connection.info.backend_pid)


def shut(wrapper: Any) -> None:
    """Close a wrapper, in whichever thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _close(wrapper)
    else:  # Django closes nothing in a thread with an event loop
        closing = threading.Thread(target=_close, args=(wrapper,), name="interlock-close")
        closing.start()
        closing.join()


def _close(wrapper: Any) -> None:
    try:
        wrapper.close()
    except (DatabaseError, InterfaceError):
        pass  # it was broken
