"""What this process keeps open of one folder: the same for all its connections to it.

A process has one liveness pipe, one set of wake-up pipes and one pair of descriptors for each name, however often it
connects. They are closed with the last connection, but not under somebody who still waits on them.
"""

import contextlib
import os
import threading
import time
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from interlock.core.errors import StoreError
from interlock.runtime.compiled import compiled
from interlock.runtime.process import WeakRegistry, in_forked_child
from interlock.stores.files.compiled import CompiledPath
from interlock.stores.files.fastpath import FastPath
from interlock.stores.files.folder import Folder
from interlock.stores.files.keys import file_name, key_of
from interlock.stores.files.linefile import LineFile
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.opening import in_place
from interlock.stores.files.wakeups import Wakeup

MOST_OPEN = 256
CLOSED = "this connection was closed: connect again"
native = compiled("interlock.stores.files._quick")
W = TypeVar("W", bound=Wakeup)


class Connection(Protocol):
    """What an open folder needs of a store: whether it was closed."""

    closed: bool


class OpenWait:
    """Somebody who waits, or is about to: until its wake-up is given back, what is open stays open."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.wakeup: Wakeup | None = None


class OpenFolder:
    """One folder, as this process has it open.

    Args:
        folder: the folder, ready to keep locks.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.closed = False
        self._connections: WeakRegistry[Any] = WeakRegistry()
        self.start_afresh()

    def start_afresh(self) -> None:
        """Have nothing open: at the beginning, and in a forked child."""
        # Re-entrant: a signal handler may lock, too, while its thread opens something.
        self.mutex = threading.RLock()
        self.lines: dict[str, LineFile] = {}
        self._liveness: Liveness | None = None
        self._waits: set[OpenWait] = set()
        self.fastpath = FastPath(self.folder, self.liveness)
        self.compiled = None if native is None else CompiledPath(native, self.fastpath, self.liveness)

    def liveness(self) -> Liveness:
        """Return this process's liveness in the folder, made with the first claim.

        Raises:
            StoreError: it can't be made; or the folder was closed.
        """
        liveness = self._liveness
        if liveness is None:
            with self.mutex:
                if self.closed:
                    raise StoreError(CLOSED)
                if self._liveness is None:
                    made = Liveness(self.folder.alive, self.folder.mend)
                    if self._liveness is None:
                        self._liveness = made
                    else:
                        made.close()
                liveness = self._liveness
        return liveness

    # -- lines ------------------------------------------------------------------------------------------

    def line(self, key: str) -> LineFile:
        """Return the line of that key, kept open for the next time."""
        retired = None
        with self.mutex:
            if self.closed:
                raise StoreError(CLOSED)
            line = self.lines.get(key)
            if line is None:
                if len(self.lines) >= MOST_OPEN:
                    retired = self.lines.pop(next(iter(self.lines)))
                line = self.lines[key] = LineFile(self.folder, key)
        if retired is not None:
            self._retire(retired)
        return line

    def _retire(self, line: LineFile) -> None:
        line.retired = True
        with line.step(), contextlib.suppress(OSError, StoreError):
            try:
                self._tidy(line)
            finally:
                line.close()

    def _tidy(self, line: LineFile) -> bool:
        """Remove the files of a name that nobody uses or waits for; in a step of the line."""
        try:
            # A folder that was removed is not made again for this.
            there = line.fd >= 0 and all(map(in_place, line.places))
            data = line.guard() if there else None
            if data is None:
                return False
            image = line.image(data)
            liveness = self._liveness
            if any(liveness is None or liveness.is_alive(slot.alive) for slot in [*image.using, *image.pending]):
                return False
            return line.remove(image.top)
        finally:
            line.unguard()

    def sweep(self, most: int) -> int:
        """Remove what the dead left: liveness pipes, and the files of names that nobody has used for a minute.

        Args:
            most: how many names to look at.

        Returns:
            How many names were removed.
        """
        self.liveness().sweep()
        removed = 0
        old = time.time() - 60
        with os.scandir(self.folder.using) as entries:
            for entry in islice(entries, most):
                with contextlib.suppress(OSError, StoreError):  # the doctor names what stands in the way
                    if entry.stat(follow_symlinks=False).st_mtime < old:
                        removed += self._sweep_line(entry.name)
        return removed

    def _sweep_line(self, name: str) -> bool:
        key = key_of(self.folder, name)
        if key is None or key in self.lines or file_name(key) != name:
            return False
        line = LineFile(self.folder, key)
        with line.step():
            try:
                line.open()
                return self._tidy(line)
            finally:
                line.close()

    # -- who uses it ------------------------------------------------------------------------------------

    def add(self, connection: Connection) -> None:
        """Count one more connection."""
        self._connections.add(connection)

    def wait_with(self, kind: type[W], connection: Connection) -> W:
        """Return a wake-up for somebody who waits through that connection.

        Raises:
            StoreError: the connection was closed, or no pipe could be made.
        """
        wait = OpenWait(connection)
        with self.mutex:  # from here on the folder stays open until the wake-up is given back
            if connection.closed:
                raise StoreError(CLOSED)
            self._waits.add(wait)
        try:
            wakeup = kind(self.liveness(), partial(self._given_back, wait))
        except BaseException:
            self._given_back(wait)
            raise
        wait.wakeup = wakeup  # in this order: `end` looks for it when the connection is closed already
        if connection.closed:
            wakeup.end()
        return wakeup

    def _given_back(self, wait: "OpenWait") -> None:
        with self.mutex:
            self._waits.discard(wait)
        if wait.connection.closed:
            close_if_unused(self)

    def end(self, connection: Connection) -> None:
        """End the waits of a connection that was closed; what is open is closed with the last one."""
        with self.mutex:
            wakeups = [wait.wakeup for wait in self._waits if wait.connection is connection]
        for wakeup in wakeups:
            if wakeup is not None:
                wakeup.end()
        close_if_unused(self)

    def is_used(self) -> bool:
        """Tell whether a connection is open, or somebody still waits."""
        return bool(self._waits) or any(not connection.closed for connection in self._connections)

    def close(self) -> None:
        """Remove the files of names that nobody uses any more, and close everything; nobody uses it any more."""
        with self.mutex:
            lines = list(self.lines.values())
            self.lines.clear()
        for line in lines:
            self._retire(line)
        liveness, self._liveness = self._liveness, None
        if liveness is not None:
            liveness.close()
        self.folder.leave()

    def forget(self) -> None:
        """In a forked child: the open files, the liveness pipe and the wake-up pipes are the parent's."""
        for line in list(self.lines.values()):
            line.close()
        if self._liveness is not None:
            self._liveness.forget()
        self.folder.start_afresh()
        self.start_afresh()


_mutex = threading.RLock()
_opened: list[OpenFolder] = []


def open_folder(folder: Folder, connection: Connection) -> OpenFolder:
    """Return what this process has open of a folder, with one more connection.

    Connections share what is open if they gave the same path, and it leads where it led when that was opened: who
    gave another path may be somewhere else as soon as a folder is moved, or a link in one of the paths is changed.
    What connections that were dropped had open is closed.

    Args:
        folder: the folder, found fit just now; it is closed where it is open already.
        connection: who uses it until it is closed, or has gone.
    """
    with _mutex:
        for opened in _opened:
            if opened.folder.path == folder.path and opened.folder.inodes == folder.inodes:
                break
        else:
            opened = OpenFolder(folder)
            _opened.append(opened)
        opened.add(connection)
    if opened.folder is not folder:
        folder.leave()
    for each in [*_opened]:
        close_if_unused(each)
    return opened


def close_if_unused(opened: OpenFolder) -> None:
    """Close what a process has open of a folder if nobody uses it any more."""
    with _mutex, opened.mutex:
        if opened.closed or opened.is_used():
            return
        opened.closed = True
        _opened[:] = [each for each in _opened if each is not opened]
    opened.close()


def _after_fork() -> None:
    global _mutex
    _mutex = threading.RLock()
    for opened in _opened:
        opened.forget()


in_forked_child(_after_fork)
