"""The file of the locks, as this process has it open: one connection, and who uses it in turn."""

import random
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import lstat
from time import monotonic, monotonic_ns, sleep
from typing import Any

from interlock.core.errors import InvalidArgument, StoreError
from interlock.runtime.process import around_forks
from interlock.stores.sql.problems import Passing, Refused
from interlock.stores.sqlite.line import Rows, Step
from interlock.stores.sqlite.opening import (
    JOURNAL,
    SETTINGS,
    Inode,
    connect,
    find_or_make,
    inode_of,
    remove_older,
    settle,
)
from interlock.stores.sqlite.options import Options
from interlock.stores.sqlite.problems import is_busy, refusal

SHORTEST, LONGEST = 0.0001, 0.005  # seconds until others who write are asked again
FORK = 1.0  # seconds that a fork waits for a step


class Database:
    """One file, shared by all stores of this process on it.

    Its threads use the connection in the order in which they come.  SQLite's own handler of a busy file, which knows
    no order and sleeps longer and longer, is not used: processes ask again after a random pause.

    Args:
        options: which file.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.users = 0
        self._closed = False
        self._inherited: list[Any] = []
        self._inode: Inode = (0, 0)
        self._ahead = 0  # microseconds by which the file's clock is ahead of the monotonic one
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.mutex = threading.Lock()
        self._order = threading.Lock()
        self._last = threading.Lock()
        self._line: set[Any] = set()  # who waits for the mutex
        self._connection: sqlite3.Connection | None = None
        self._execute: Any = None
        self._executor: ThreadPoolExecutor | None = None

    def perform(self, step: Step) -> Rows:
        """Do a step in a transaction of its own; it is done as a whole, or not at all.

        Raises:
            Passing: others were in the way for too long, or the disk is full.
            StoreError: the file is not what it was, or can't be written.
        """
        # `with` locks alone, and no call between: an interrupt finds no place where the turn would be kept.
        if not self._line and not self.mutex.locked():
            with self.mutex:
                return self._do(step)
        io_timeout = self.options.io_timeout
        mine = threading.Lock()
        with mine:
            try:
                with self._order:
                    self._line.add(mine)
                    previous, self._last = self._last, mine
                if not previous.acquire(timeout=io_timeout):
                    raise Passing(f"{self.options.file}: other threads had it for more than {io_timeout:g} s")
                with self.mutex:
                    return self._do(step)
            finally:
                self._line.discard(mine)

    def _do(self, step: Step) -> Rows:
        path = self.options.file
        try:
            if self._connection is None:
                self._open()
            execute = self._execute
            try:
                execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                self._retry("BEGIN IMMEDIATE", error)
            found = lstat(path)
            if (found.st_ino, found.st_dev) != self._inode:
                raise FileNotFoundError(path)
            rows = step.function(execute, self._clock, *step.args)
            try:
                execute("COMMIT")
            except sqlite3.OperationalError as error:
                self._retry("COMMIT", error)
            return rows
        except BaseException as error:
            self._undo()
            if isinstance(error, (sqlite3.Error, OSError)):
                moved = self._connection is not None and not self._in_place()
                if moved or not is_busy(error):
                    self._drop()
                raise (_moved(path) if moved else refusal(error, path)) from error
            raise

    def _in_place(self) -> bool:
        try:
            found = lstat(self.options.file)
        except OSError:
            return False
        return (found.st_ino, found.st_dev) == self._inode

    def _retry(self, words: str, error: sqlite3.OperationalError) -> None:
        """Execute what begins or ends a transaction, as soon as others let us; our own threads stand in line."""
        deadline = monotonic() + self.options.io_timeout
        pause = SHORTEST
        while is_busy(error) and monotonic() < deadline:
            sleep(pause * random.uniform(0.5, 1.5))
            pause = min(LONGEST, pause * 1.5)
            try:
                self._execute(words)
                return
            except sqlite3.OperationalError as again:
                error = again
        raise error

    def _clock(self) -> int:
        return monotonic_ns() // 1000 + self._ahead

    def _open(self) -> None:
        path = self.options.file
        if self._closed:
            raise StoreError("this connection was closed: connect again")
        inode = find_or_make(self.options)
        connection = connect(path)
        try:
            self._execute = connection.cursor().execute
            for words in (*SETTINGS, "BEGIN IMMEDIATE"):
                self._patiently(words)
            self._ahead, made = settle(self._execute, self.options)
            self._patiently("COMMIT")
            self._inode = inode_of(path)
            if self._inode != inode:
                raise _moved(path)
            self._patiently(JOURNAL)
            if made:
                remove_older(self.options)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _patiently(self, words: str) -> None:
        try:
            self._execute(words)
        except sqlite3.OperationalError as error:
            self._retry(words, error)

    def _undo(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.rollback()
            except sqlite3.Error:
                self._drop()

    def _drop(self) -> None:
        connection, self._connection, self._execute = self._connection, None, None
        if connection is not None:
            connection.close()

    async def aperform(self, step: Step) -> Rows:
        """As `perform`, in a thread; it comes to its end even if the task is cancelled, which then hears of that."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="interlock-sqlite")
        from interlock.runtime.offload import offload  # only programs with an event loop load asyncio

        return await offload(self._executor, partial(self.perform, step))

    def close(self) -> None:
        """Give up the connection and the thread."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)
        with self.mutex:
            self._closed = True
            self._drop()

    def inherit(self) -> None:
        """In a forked child: leave the parent's connection alone, and have one of its own.

        To close it would undo the parent's transaction, if there was one; the interpreter does not do so either.
        """
        connection = self._connection
        if connection is not None:
            self._inherited.append(connection)
            if connection.in_transaction:
                import ctypes

                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._inherited.append(self._executor)
        self._start_afresh()


def _moved(path: str) -> StoreError:
    return Refused(
        f"{path} was removed or replaced while it was in use: who held locks in it has lost them; let nobody do "
        f"that, and try again"
    )


_databases: dict[str, Database] = {}
_mutex = threading.RLock()
_held: list[threading.Lock] = []


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
