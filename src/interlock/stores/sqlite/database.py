"""The file of the locks, as this process has it open: one connection, and who uses it in turn."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from os import lstat
from time import monotonic
from typing import Any

from interlock.core.errors import StoreError
from interlock.stores.sql.problems import Passing, Refused
from interlock.stores.sqlite.line import Rows, SqliteStep
from interlock.stores.sqlite.opened import Opened, left, patiently
from interlock.stores.sqlite.opening import (
    JOURNAL,
    SETTINGS,
    connect,
    find_or_make,
    inode_of,
    remove_older,
    settle,
)
from interlock.stores.sqlite.options import Options
from interlock.stores.sqlite.problems import is_busy, refusal

_AGAIN: Rows = []  # of a step that was interrupted by another one of its thread, and undone


class Database:
    """One file, shared by all stores of this process on it.

    Its threads use the connection in the order in which they come.  SQLite's own handler of a busy file, which knows
    no order and sleeps longer and longer, is not used: processes ask again after a random pause.

    A signal handler, or a finalizer, may ask for a step in the middle of one of its own thread.  That one can't go on
    before the handler has returned, and may have the file locked: so it is undone, and begins again afterwards.  It
    finds that out by its cursor, which has been closed; no line of it can run on the handler's transaction.

    Args:
        options: which file.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.users = 0
        self._closed = False
        self._inherited: list[Any] = []
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.mutex = threading.RLock()
        self._order = threading.Lock()
        self._last = threading.Lock()
        self._line: dict[int, Any] = {}  # the threads that have the mutex, or wait for it
        self._step_begun: object = None  # the step that began last
        self._opened: Opened | None = None
        self._executor: ThreadPoolExecutor | None = None

    def perform(self, step: SqliteStep, wait_limit: float | None = None) -> Rows:
        """Do a step in a transaction of its own; it is done as a whole, or not at all.

        Args:
            step: what to do.
            wait_limit: seconds to wait for others; those of the options unless said.

        Raises:
            Passing: others were in the way for too long, or the disk is full.
            StoreError: the file is not what it was, or can't be written.
        """
        deadline = monotonic() + (self.options.io_timeout if wait_limit is None else wait_limit)
        me = threading.get_ident()
        if me in self._line:  # a handler, or a finalizer: it would wait for itself
            return self._perform(step, deadline)
        mine = threading.Lock()
        # `with` locks alone, and no call between: an interrupt finds no place where the turn would be kept.
        try:
            self._line[me] = mine
            with mine:
                with self._order:
                    previous, self._last = self._last, mine
                if not (previous.acquire(False) or previous.acquire(timeout=left(deadline))):
                    raise self._late()
                return self._perform(step, deadline)
        finally:
            self._line.pop(me, None)

    def _perform(self, step: SqliteStep, deadline: float) -> Rows:
        while (rows := self._try(step, deadline)) is _AGAIN:
            deadline = monotonic() + self.options.io_timeout  # the handler may have taken its time
        return rows

    def _try(self, step: SqliteStep, deadline: float) -> Rows:
        """Do a step while no other thread is at one; return _AGAIN if it was undone for one of the same thread."""
        mutex = self.mutex
        taken: list[bool] = []
        try:
            # One call: an interrupt comes before the mutex is taken, or after that has been noted.
            taken.extend(map(mutex.acquire, (True,), (left(deadline),)))
            if not taken[0]:
                raise self._late()
            return self._do(step, deadline)
        finally:
            if taken and taken[0]:
                mutex.release()

    def _late(self) -> Passing:
        return Passing(
            f"{self.options.file}: other threads had it for more than {self.options.io_timeout:g} s; does the disk "
            f"answer?"
        )

    def _do(self, step: SqliteStep, deadline: float) -> Rows:
        path = self.options.file
        step_begun = self.interrupt()
        if self._closed:
            self._drop()
            raise StoreError("this connection was closed: connect again")
        try:
            opened = self._opened or self._open(deadline)
            opened.cursor = opened.connection.cursor()
            execute = opened.cursor.execute
            patiently(execute, "BEGIN IMMEDIATE", deadline)
            found = lstat(path)
            if (found.st_ino, found.st_dev) != opened.inode:
                raise FileNotFoundError(path)
            rows = step.function(execute, opened.clock, *step.args)
            patiently(execute, "COMMIT", deadline)
            return rows
        except BaseException as error:
            if self._step_begun is not step_begun and isinstance(error, sqlite3.ProgrammingError):
                return _AGAIN
            self._undo()
            if isinstance(error, (sqlite3.Error, OSError)):
                moved = self._opened is not None and not self._in_place(self._opened)
                if moved or not is_busy(error):
                    self._drop()
                raise (_moved(path) if moved else refusal(error, path)) from error
            raise

    def interrupt(self) -> object:
        """Undo the step that the calling thread is at, if it is; it will find its cursor closed.

        Returns:
            What stands for the step that begins now.

        Raises:
            Refused: it is inside of SQLite now: the garbage collector has called a finalizer there.
        """
        step_begun = self._step_begun = object()
        opened = self._opened
        if opened is None:
            return step_begun
        try:
            opened.cursor.close()
        except sqlite3.ProgrammingError as error:
            raise Refused(
                f"{self.options.file}: a finalizer asks in the middle of a step of its own thread, which can't "
                f"be left just now; nothing was done: ask again later"
            ) from error
        self._undo()
        if opened.inode is None:
            self._drop()  # it was being opened
        return step_begun

    def _in_place(self, opened: Opened) -> bool:
        try:
            found = lstat(self.options.file)
        except OSError:
            return False
        return opened.inode is None or (found.st_ino, found.st_dev) == opened.inode

    def _open(self, deadline: float) -> Opened:
        path = self.options.file
        inode = find_or_make(self.options)
        opened = Opened(connect(path))
        if self._opened is not None:
            opened.close()
            raise sqlite3.ProgrammingError("a handler was quicker: begin again")
        self._opened = opened
        try:
            execute = opened.cursor.execute
            for words in (*SETTINGS, "BEGIN IMMEDIATE"):
                patiently(execute, words, deadline)
            opened.ahead, made = settle(execute, self.options)
            patiently(execute, "COMMIT", deadline)
            if inode_of(path) != inode:
                raise _moved(path)
            patiently(execute, JOURNAL, deadline)
            if made:
                remove_older(self.options)
            opened.inode = inode
        except BaseException:
            if self._opened is opened:
                self._opened = None
            opened.close()
            raise
        return opened

    def _undo(self) -> None:
        if self._opened is not None:
            try:
                self._opened.undo()
            except sqlite3.Error:
                self._drop()

    def _drop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    async def aperform(self, step: SqliteStep) -> Rows:
        """As `perform`, in a thread; it comes to its end even if the task is cancelled, which then hears of that."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="interlock-sqlite")
        from interlock.runtime.offload import offload  # only programs with an event loop load asyncio

        deadline = monotonic() + self.options.io_timeout  # also of the time in line for the thread
        return await offload(self._executor, lambda: self.perform(step, left(deadline)))

    def close(self) -> None:
        """Give up the connection and the thread."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)
        self._closed = True
        mutex = self.mutex
        if mutex.acquire(timeout=left(monotonic() + self.options.io_timeout)):  # else a step is stuck
            try:
                self._step_begun = None  # a step that a handler interrupts to close begins again, and finds that
                self._drop()
            finally:
                mutex.release()

    def inherit(self) -> None:
        """In a forked child: leave the parent's connection alone, and have one of its own.

        To close it would undo the parent's transaction, if there was one; the interpreter does not do so either.
        """
        opened = self._opened
        if opened is not None:
            self._inherited.append(opened)
            if opened.connection.in_transaction:
                import ctypes

                ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened.connection))
        self._inherited.append(self._executor)
        self._start_afresh()


def _moved(path: str) -> StoreError:
    return Refused(
        f"{path} was removed or replaced while it was in use: who held locks in it has lost them; let nobody do "
        f"that, and try again"
    )
