"""Who is alive, and how to wake them: beacons and bells, the files in alive/.

Each process has one *beacon*: a named pipe that it keeps open and locked (flock) as long as it lives.  The OS lock
is the proof of life: the kernel takes it away when the process dies, however it dies.  Who waits for the process
opens the pipe too and is woken by the kernel when its only reader has gone.
Each waiting thread or task has a *bell*: a named pipe that others write to when its turn has come.

Others find both by their names.  A beacon whose name is gone (a tmp cleaner, `rm alive/*`) proves nothing any more:
the process notices it, lights another one under a new token, and has lost what it claimed under the old one.
"""

import errno
import os
import threading
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

from interlock.core.errors import StoreError
from interlock.core.queue import Told
from interlock.runtime import log
from interlock.runtime.process import pid
from interlock.stores.files.failures import failed
from interlock.stores.files.opening import make_pipe, open_folder, open_pipe, remove_pipe

MOST_IDLE_BELLS = 64
MOST_OTHERS = 128
MOST_NUMBER = 999_999  # a slot has room for six digits
MOST_FENCE_DIGITS = 18
TRIES = 10
TRUST = 0.02  # seconds for which a beacon is taken to be still in its folder
GONE = (errno.ENOENT, errno.ENOTDIR)
NO_BEACON = (*GONE, errno.ENXIO, errno.ELOOP)


class Presence:
    """This process in one folder: its beacon, its bells, and its view of the others.

    Args:
        folder: the folder alive/.
        mend: makes it again if it was removed.

    Raises:
        StoreError: no beacon could be made; the message says what to do.
    """

    def __init__(self, folder: Path, mend: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._mend = mend
        self._mutex = threading.Lock()
        self._idle: list[Bell] = []
        self.bells: dict[int, Bell] = {}
        self._made = 0
        self.others: dict[str, int] = {}
        self._beacon = -1
        self._light()

    # -- the own beacon ---------------------------------------------------------------------------------

    def _light(self) -> None:
        """Make a beacon under a new token; one that was lit before stays lit if that fails."""
        for _ in range(TRIES):
            token = f"{pid()}-{os.urandom(6).hex()}"
            try:
                fd = self._make_beacon(token)
            except (FileNotFoundError, BlockingIOError):
                # Somebody who sweeps looked at it, or took it away, before it was locked: not ten times.
                if not self._folder.is_dir():
                    self._mend()
                continue
            except OSError as error:
                raise failed(f"no beacon could be made in {self._folder}", error) from error
            before, self._beacon = self._beacon, fd
            self._path, self._known = self._folder / token, _identity(os.fstat(fd))
            self.token = token
            if before >= 0:
                os.close(before)
            return
        raise StoreError(
            f"no beacon could be made in {self._folder}: the folder was removed, or is swept all the time; "
            f"exclude it from whatever cleans up there, and connect again"
        )

    def _make_beacon(self, token: str) -> int:
        hidden = self._folder / f".{token}"
        fd = make_pipe(hidden)
        try:
            flock(fd, LOCK_EX | LOCK_NB)
            os.rename(hidden, self._folder / token)  # others see it locked, or not at all
        except BaseException:
            os.close(fd)
            _unlink(hidden)
            raise
        return fd

    def is_lit(self) -> bool:
        """Tell whether others find this process's beacon under its name."""
        return _is_there(self._path, self._known)

    def keep(self) -> bool:
        """See that others find this process's beacon; if they do not, light another one.

        What was claimed under the old token is lost then: others take it for a dead process's.  Who waits is woken,
        to stand in line anew.

        Returns:
            False if the beacon was gone.

        Raises:
            StoreError: it was gone, and no other one could be made.
        """
        with self._mutex:
            if self._beacon < 0 or self.is_lit():
                return True
            old = self.token
            self._light()
            for bell in self.bells.values():
                bell.ring(b"\n")
        log.warn(
            "the beacon %s was removed from %s: the locks held by this process there are lost; exclude the folder "
            "from whatever cleans up there",
            old,
            self._folder,
        )
        return False

    # -- the others -------------------------------------------------------------------------------------

    def is_alive(self, token: str) -> bool:
        """Tell whether the process of that beacon lives; another user's that can't be looked at is taken as alive."""
        if token == self.token:
            return True
        with self._mutex:
            try:
                fd = self._open(token, os.O_WRONLY)
                flock(fd, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                # What was removed from alive/ proves nothing any more: others, who look there, take it for dead.
                return os.fstat(fd).st_nlink > 0
            except OSError as error:
                return error.errno not in NO_BEACON
            os.close(self.others.pop(token))
            return False

    def _open(self, name: str, mode: int) -> int:
        """Return another's pipe, kept open for the next time; under the mutex."""
        fd = self.others.get(name)
        if fd is None:
            fd = open_pipe(self._folder / name, mode)
            if len(self.others) >= MOST_OTHERS:
                os.close(self.others.pop(next(iter(self.others))))
            self.others[name] = fd
        return fd

    def ring(self, token: str, number: int, told: Told | None) -> None:
        """Wake the waiter at a bell, with the news that it holds the lock, if that is so."""
        message = b"\n" if told is None else b"%b %d\n" % (told.id.encode(), told.fence)
        with self._mutex:  # nothing is closed meanwhile
            if token == self.token:
                bell = self.bells.get(number)
                if bell is not None:
                    bell.ring(message)
                return
            name = f"{token}.{number}"
            try:
                # Opened for both, so that no reader's absence can raise SIGPIPE.
                fd = self._open(name, os.O_RDWR)
                if not os.fstat(fd).st_nlink:  # its name may be another bell's by now
                    os.close(self.others.pop(name))
                    fd = self._open(name, os.O_RDWR)
                os.write(fd, message)
            except OSError:
                pass  # it is gone, or its pipe is full of news: it looks again by itself

    def open_beacon(self, token: str) -> int | None:
        """Open another's beacon to be woken by its death; None if it can't be watched."""
        try:
            return open_pipe(self._folder / token, os.O_WRONLY)
        except OSError:
            return None

    def sweep(self) -> int:
        """Remove what dead processes left in alive/; return how many files."""
        removed = 0
        seen: dict[str, bool] = {}
        at = open_folder(self._folder)
        try:
            for name in os.listdir(at):
                token = name.lstrip(".").partition(".")[0]
                if token not in seen:
                    seen[token] = self.is_alive(token) or (name.startswith(".") and self.is_alive(name))
                if not seen[token]:
                    removed += remove_pipe(at, name)
        finally:
            os.close(at)
        return removed

    # -- bells ------------------------------------------------------------------------------------------

    def bell(self) -> "Bell":
        """Return a bell for one waiter; give it back with `put_back`.

        Raises:
            StoreError: none could be made; the message says what to do.
        """
        with self._mutex:
            bell = None
            while bell is None and self._idle:
                bell = self._idle.pop()
                if not bell.is_heard(self.token):
                    self._discard(bell)
                    bell = None
            if bell is None:
                bell = self._make_bell()
        bell.drain()
        return bell

    def _make_bell(self) -> "Bell":
        if not self._folder.is_dir():
            self._mend()
        for _ in range(MOST_NUMBER):
            self._made = self._made % MOST_NUMBER + 1
            if self._made not in self.bells:
                try:
                    bell = Bell(self._folder, self.token, self._made)
                except FileExistsError:
                    continue
                except OSError as error:
                    raise failed(f"no pipe to wait at could be made in {self._folder}", error) from error
                self.bells[self._made] = bell
                return bell
        raise StoreError(f"more than {MOST_NUMBER} wait in {self._folder}: wait in fewer threads or tasks")

    def put_back(self, bell: "Bell") -> None:
        """Keep a bell for the next waiter, or remove it when there are many; the caller no longer waits at it."""
        with self._mutex:
            if self._beacon >= 0 and bell.token == self.token and len(self._idle) < MOST_IDLE_BELLS:
                self._idle.append(bell)
            else:
                self._discard(bell)

    def exchange(self, bell: "Bell") -> "Bell":
        """Return a bell that others can ring: the same one, or another if its name is gone."""
        if bell.is_heard(self.token):
            return bell
        other = self.bell()
        other.ring(b"\n")  # what was written to the old one is not to be missed
        with self._mutex:
            self._discard(bell)
        return other

    def wake(self, bell: "Bell") -> None:
        """Make the waiter at a bell of this process look again, from any thread."""
        with self._mutex:
            bell.ring(b"\n")

    def _discard(self, bell: "Bell") -> None:
        if self.bells.get(bell.number) is bell:
            del self.bells[bell.number]
        bell.remove()

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave: the claims of this process end with it.  Nobody waits at a bell any more."""
        with self._mutex:
            for bell in list(self.bells.values()):
                self._discard(bell)
            self._idle.clear()
            if self._beacon >= 0 and self.is_lit():
                _unlink(self._path)
            self.forget()

    def forget(self) -> None:
        """Close the beacon and the bells without removing them: they are the parent's."""
        for bell in self.bells.values():
            bell.forget()
        while self.others:
            os.close(self.others.popitem()[1])
        if self._beacon >= 0:
            os.close(self._beacon)
            self._beacon = -1


class Bell:
    """A named pipe that one waiter listens to.

    Args:
        folder: the folder alive/.
        token, number: others find it as TOKEN.NUMBER.
    """

    def __init__(self, folder: Path, token: str, number: int) -> None:
        self.token = token
        self.number = number
        self.watched: dict[str, int] = {}  # kept from one waiter to the next, who often waits for the same process
        self._path = folder / f"{token}.{number}"
        self.fd = make_pipe(self._path)
        self._known = _identity(os.fstat(self.fd))

    def is_heard(self, token: str) -> bool:
        """Tell whether others who look for a bell of the process `token` find this one under its name."""
        return self.token == token and _is_there(self._path, self._known)

    def ring(self, message: bytes) -> None:
        """Write to it, unless it is closed or full; under the mutex that guards its closing."""
        if self.fd >= 0:
            try:
                os.write(self.fd, message)
            except BlockingIOError:
                pass  # full of news: whoever waits at it looks anyhow

    def drain(self) -> Told | None:
        """Read what came; return the last news of a lock obtained."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return None
        told = None
        for line in data.split(b"\n")[:-1]:
            id, _, fence = line.partition(b" ")
            if len(fence) <= MOST_FENCE_DIGITS and fence.isdigit():
                told = Told(id.decode(errors="replace"), int(fence))
        return told

    def remove(self) -> None:
        """Close and unlink it."""
        if _is_there(self._path, self._known):
            _unlink(self._path)
        self.forget()

    def forget(self) -> None:
        """Close it."""
        while self.watched:
            os.close(self.watched.popitem()[1])
        fd, self.fd = self.fd, -1  # in this order: others may write to it at any time
        if fd >= 0:
            os.close(fd)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_there(path: Path, known: tuple[int, int]) -> bool:
    """Tell whether `path` still leads to the file that was known there; what can't be looked at counts as there."""
    try:
        return _identity(os.lstat(path)) == known
    except OSError as error:
        return error.errno not in GONE


def _unlink(path: Path) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
