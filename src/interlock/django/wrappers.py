"""Django's wrapper of a database connection, made for the store alone: how it is set up, opened and closed."""

import asyncio
import os
import socket
import threading
from typing import Any

from django.db import DatabaseError, connections
from django.db.utils import InterfaceError

from interlock.django.failures import connecting_failed
from interlock.django.statements import keep_cursor

PREPARES_AFTER = 3  # uses of a statement on a connection
KEEPS_SHUT = ("pool", "server_side_binding", "isolation_level", "prepare_threshold")
CONNECTING = 5  # seconds; a server that does not answer by then is not there
ANSWER = 10  # seconds; a statement without an answer by then has failed
BUSY = 2.0  # seconds that SQLite waits for somebody who writes; `timeout` may say less
PATIENT = {
    "postgresql": {
        "connect_timeout": CONNECTING, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    },
    "mysql": {"connect_timeout": CONNECTING, "read_timeout": ANSWER, "write_timeout": ANSWER},
}  # fmt: skip
"""What the drivers do about a server that is silent, unless the settings say otherwise."""
DRIVERS = ("MySQLdb", "pymysql")  # that know these words; others for MySQL have words of their own


def database_name(alias: str) -> str:
    """Return the NAME of a database as it is now: a run of tests changes it."""
    return str(connections.settings[alias]["NAME"])


def make_wrapper(alias: str) -> Any:
    """Return a connection wrapper for `alias` that Django itself does not know of; not connected yet.

    Args:
        alias: in DATABASES.
    """
    wrapper: Any = connections.create_connection(alias)
    # An option may be what nobody can copy, as an SSLContext: the dictionaries are new, what is in them is not.
    wrapper.settings_dict = {
        **wrapper.settings_dict, "OPTIONS": _options(wrapper), "AUTOCOMMIT": True, "ATOMIC_REQUESTS": False,
    }  # fmt: skip
    wrapper.inc_thread_sharing()
    return wrapper


def _options(wrapper: Any) -> dict[str, Any]:
    """Return the settings' options of the driver, and what the store adds to them."""
    options = dict(wrapper.settings_dict.get("OPTIONS") or {})
    for option in KEEPS_SHUT:
        options.pop(option, None)
    if wrapper.vendor == "sqlite":
        options["timeout"] = min(options.get("timeout", BUSY), BUSY)
    elif wrapper.vendor == "mysql":
        options["isolation_level"] = "read committed"
        options.setdefault("charset", "utf8mb4")  # Django 4.2 takes one that knows half of Unicode
    elif wrapper.vendor == "postgresql" and _is_psycopg3():
        options.update(server_side_binding=True, prepare_threshold=None)
    if wrapper.vendor != "mysql" or wrapper.Database.__name__ in DRIVERS:
        options = {**PATIENT.get(wrapper.vendor, {}), **options}
    return options


def open_wrapper(alias: str) -> Any:
    """Return a connected wrapper, in autocommit.

    Args:
        alias: in DATABASES.

    Raises:
        NotReached: the database can't be reached now; `NoConnection` if it has too many connections.
    """
    return connect(make_wrapper(alias))


def connect(wrapper: Any) -> Any:
    """Connect a wrapper that `make_wrapper` made, and return it; errors as those of `open_wrapper`."""
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
        raise connecting_failed(error, wrapper.alias) from error
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


def hang_up(wrapper: Any) -> None:
    """End what waits for an answer on a connection to PostgreSQL, in whichever thread, with an error."""
    try:
        connection = wrapper.connection
        number = connection.fileno()
        with socket.socket(fileno=os.dup(number)) as spare:
            if connection.fileno() == number:  # else its thread has just closed it, and this is somebody else's
                spare.shutdown(socket.SHUT_RDWR)
    except Exception:
        pass  # it was broken, or is not there yet


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
