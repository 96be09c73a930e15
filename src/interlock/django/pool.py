"""Connections of the store's own: in autocommit, to the primary, never the one of a request."""

import asyncio
import copy
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.utils import InterfaceError

from interlock.django.failures import connecting_failed, is_definite, translated
from interlock.django.statements import keep_cursor
from interlock.errors import StoreError
from interlock.process import Living

IDLE = 8  # connections that are kept
STALE = 20.0  # seconds; older ones are asked first whether they still live
PREPARES_AFTER = 3  # uses of a statement on a connection
KEEPS_SHUT = ("pool", "server_side_binding", "isolation_level")


class Pool:
    """The private connections to one database.

    A statement takes one and gives it back, so threads that come and go leave nothing open.  A transaction of the
    program can't hide what is written through them, nor take it back.

    Args:
        alias: of the database in DATABASES.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._idle: deque[tuple[Any, float]] = deque()
        self._all: set[Any] = set()  # an interrupt may lose one on its way; here it is found when the pool is closed
        self._busy: set[Any] = set()
        self._closed = False
        self._turn = self._make_turn()
        _pools.add(self)

    def _make_turn(self) -> Any:
        """Threads that write to one SQLite file queue up here, where the next runs at once, and not in SQLite."""
        if "sqlite" not in settings.DATABASES[self.alias]["ENGINE"]:
            return nullcontext()
        return _turns.setdefault(self.alias, threading.RLock())

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """Lend a connection for one statement.

        Raises:
            UnknownOutcome: the connection broke while the statement was on its way.
            StoreError: the statement was refused, and nothing was done; or nobody answers there.
        """
        if self._closed:
            raise StoreError("this connection was closed: connect again")
        with self._turn:
            yield from self._lend()

    def _lend(self) -> Iterator[Any]:
        wrapper = self._take()
        try:
            self._busy.add(wrapper)
            yield wrapper
        except (DatabaseError, InterfaceError) as error:
            self._shut(wrapper)
            if not is_definite(error, wrapper):
                self._drop_idle()  # what broke one has broken the others
            raise translated(error, wrapper) from error
        except BaseException:  # an interrupt: the answer may still be on its way
            self._shut(wrapper)
            raise
        else:
            self._give_back(wrapper)
        finally:
            self._busy.discard(wrapper)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        self._closed = True
        self._drop_idle()
        for wrapper in self._all - self._busy:
            self._shut(wrapper)

    def start_afresh(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        _inherited.extend(self._all)
        self._idle, self._all, self._busy = deque(), set(), set()
        self._turn = self._make_turn()

    def _take(self) -> Any:
        while True:
            try:
                wrapper, since = self._idle.pop()
            except IndexError:
                return self._open()
            if time.monotonic() - since < STALE or wrapper.is_usable():
                return wrapper
            self._shut(wrapper)

    def _open(self) -> Any:
        wrapper = make_wrapper(self.alias)
        self._all.add(wrapper)
        try:
            wrapper.ensure_connection()
            if not wrapper.get_autocommit():
                wrapper.set_autocommit(True)
            if wrapper.vendor == "mysql":
                with wrapper.cursor() as cursor:
                    # SYSDATE() is local time, which goes back by an hour once a year.
                    cursor.execute("SET time_zone = '+00:00'")
            keep_cursor(wrapper)
        except (DatabaseError, InterfaceError) as error:
            self._shut(wrapper)
            raise connecting_failed(error, self.alias) from error
        return wrapper

    def _give_back(self, wrapper: Any) -> None:
        if self._closed or len(self._idle) >= IDLE:
            self._shut(wrapper)
            return
        self._idle.append((wrapper, time.monotonic()))
        if self._closed:
            self._drop_idle()

    def _drop_idle(self) -> None:
        while True:
            try:
                wrapper, _ = self._idle.pop()
            except IndexError:
                return
            self._shut(wrapper)

    def _shut(self, wrapper: Any) -> None:
        _shut(wrapper)
        self._all.discard(wrapper)


def make_wrapper(alias: str) -> Any:
    """Return a connection wrapper for `alias` that Django itself does not know of; not connected yet."""
    wrapper: Any = connections.create_connection(alias)
    settings = copy.deepcopy(wrapper.settings_dict)
    options = settings.setdefault("OPTIONS", {})
    for option in KEEPS_SHUT:
        options.pop(option, None)
    if wrapper.vendor == "mysql":
        options["isolation_level"] = "read committed"
    if wrapper.vendor == "postgresql" and _may_prepare(settings):
        options.update(server_side_binding=True, prepare_threshold=PREPARES_AFTER)
    settings.update(AUTOCOMMIT=True, ATOMIC_REQUESTS=False)
    wrapper.settings_dict = settings
    wrapper.inc_thread_sharing()
    return wrapper


def _may_prepare(settings: Any) -> bool:
    """True if statements may be prepared; not where PgBouncer gives each transaction another session."""
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return bool(is_psycopg3) and not settings.get("DISABLE_SERVER_SIDE_CURSORS")


def _shut(wrapper: Any) -> None:
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


_pools: Living[Pool] = Living()
_turns: dict[str, Any] = {}
_inherited: list[Any] = []
"""Wrappers of the parent; to collect them would say goodbye to the server on the parent's connection."""


def _after_fork() -> None:
    _turns.clear()
    for pool in _pools:
        pool.start_afresh()


os.register_at_fork(after_in_child=_after_fork)
