"""The databases of this process, by their files; and what becomes of them when it forks."""

import threading
from contextlib import suppress
from typing import Any

from interlock.core.errors import InvalidArgument, StoreError
from interlock.runtime.process import around_forks
from interlock.stores.sqlite.database import Database
from interlock.stores.sqlite.options import Options

FORK = 1.0  # seconds that a fork waits for a step
_databases: dict[str, Database] = {}
_mutex = threading.RLock()
_held: list[Any] = []


def database_of(options: Options) -> Database:
    """Return the database of this process at a path; `give_back` it.

    Raises:
        InvalidArgument: it is in use with other options.
    """
    with _mutex:
        database = _databases.setdefault(options.file, Database(options))
        if database.options != options:
            raise InvalidArgument(f"this process has {options.file} open with other options: write them alike")
        database.users += 1
        return database


def give_back(database: Database) -> None:
    """Note that one store less uses a database; the last one closes it."""
    with _mutex:
        database.users -= 1
        if not database.users:
            _databases.pop(database.options.file, None)
            database.close()


def _before_fork() -> None:
    """See that no thread is inside of SQLite: its mutexes and its locks on the file would look taken in the child."""
    _mutex.acquire()
    mutexes = [database.mutex for database in _databases.values()]
    _held.extend(mutex for mutex in mutexes if mutex.acquire(timeout=FORK))
    for database in _databases.values():
        if database.mutex in _held:
            with suppress(StoreError):
                database.interrupt()  # a handler forks: both processes begin its step again


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()
    _mutex.release()


def _after_fork_in_child() -> None:
    global _mutex
    _mutex = threading.RLock()
    _held.clear()
    for database in _databases.values():
        database.inherit()


around_forks(_before_fork, _after_fork_in_parent, _after_fork_in_child)
