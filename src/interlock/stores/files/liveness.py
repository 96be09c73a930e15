"""Which processes live, and how to wake them: liveness pipes and wake-up pipes, the files in alive/.

Each process has one *liveness pipe*: a named pipe that it keeps open and locked (flock) as long as it lives.  The OS
lock is the proof of life: the kernel takes it away when the process dies, however it dies.  Who waits for the process
opens the pipe too and is woken by the kernel when its only reader has gone. Each waiting thread or task has a
*wake-up pipe*: a named pipe that others write to when its turn has come.

Others find both by their names.  A liveness pipe whose name is gone (a tmp cleaner, `rm alive/*`) proves nothing any
more: the process notices it, makes another one under a new token, and has lost what it claimed under the old one.
"""

import errno
import os
import threading
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import Any

from interlock.core.errors import StoreError
from interlock.core.queue import Granted
from interlock.runtime import log
from interlock.runtime.process import pid
from interlock.stores.files.failures import failed
from interlock.stores.files.opening import open_folder
from interlock.stores.files.pipes import (
    GONE,
    WakeupPipe,
    identity,
    is_there,
    make_pipe,
    open_pipe,
    remove_pipe,
    unlink,
    write_once,
)

MOST_IDLE_PIPES = 64
MOST_OTHERS = 128
MOST_NUMBER = 999_999  # a slot has room for six digits
TRIES = 50
TRUST = 0.02  # seconds for which a liveness pipe is taken to be still in its folder
NO_PIPE = (*GONE, errno.ENXIO, errno.ELOOP)


class Liveness:
    """This process in one folder: its liveness pipe, its wake-up pipes, and its view of the others.

    Args:
        folder: the folder alive/.
        mend: makes it again if it was removed.

    Raises:
        StoreError: no liveness pipe could be made; the message says what to do.
    """

    def __init__(self, folder: Path, mend: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._mend = mend
        self._mutex: Any = threading.RLock()  # re-entrant: a signal handler may lock and release in the middle of it
        self._idle: list[WakeupPipe] = []
        self.wakeups: dict[int, WakeupPipe] = {}
        self._made = 0
        self.others: dict[str, int] = {}
        self._liveness_pipe = -1
        self._make_own()

    # -- the own liveness pipe ---------------------------------------------------------------------------------

    def _make_own(self) -> None:
        """Make a liveness pipe under a new token; one that was made before stays made if that fails."""
        for _ in range(TRIES):
            token = f"{pid()}-{os.urandom(6).hex()}"
            try:
                fd = self._make_liveness_pipe(token)
            except (FileNotFoundError, BlockingIOError):
                # Somebody who sweeps looked at it, or took it away, before it was locked: not every time.
                if not self._folder.is_dir():
                    self._mend()
                continue
            except OSError as error:
                raise failed(f"no liveness pipe could be made in {self._folder}", error) from error
            before, self._liveness_pipe = self._liveness_pipe, fd
            self._path, self._known = self._folder / token, identity(os.fstat(fd))
            self.token = token
            if before >= 0:
                os.close(before)
            return
        raise StoreError(
            f"no liveness pipe could be made in {self._folder}: the folder was removed, or is swept all the time; "
            f"exclude it from whatever cleans up there, and connect again"
        )

    def _make_liveness_pipe(self, token: str) -> int:
        hidden = self._folder / f".{token}"
        fd = make_pipe(hidden)
        try:
            flock(fd, LOCK_EX | LOCK_NB)
            os.rename(hidden, self._folder / token)  # others see it locked, or not at all
        except BaseException:
            os.close(fd)
            unlink(hidden)
            raise
        return fd

    def is_intact(self) -> bool:
        """Tell whether others find this process's liveness pipe under its name."""
        return is_there(self._path, self._known)

    def keep(self) -> bool:
        """See that others find this process's liveness pipe; if they do not, light another one.

        What was claimed under the old token is lost then: others take it for a dead process's.  Who waits is woken,
        to stand in line anew.

        Returns:
            False if the liveness pipe was gone.

        Raises:
            StoreError: it was gone, and no other one could be made.
        """
        if self._mutex._is_owned():
            return True  # a signal handler, in the middle of this
        with self._mutex:
            if self._liveness_pipe < 0 or self.is_intact():
                return True
            old = self.token
            self._make_own()
            for pipe in self.wakeups.values():
                pipe.ring(b"\n")
        log.warn(
            "the liveness pipe %s was removed from %s: the locks held by this process there are lost; exclude the "
            "folder from whatever cleans up there",
            old,
            self._folder,
        )
        return False

    # -- the others -------------------------------------------------------------------------------------

    def is_alive(self, token: str) -> bool:
        """Tell whether the process of that liveness pipe lives; another user's that can't be looked at is taken as
        alive."""
        if token == self.token:
            return True
        within = self._mutex._is_owned()  # a signal handler, in the middle of this: what is open is not for it
        with self._mutex:
            fd = -1
            try:
                fd = open_pipe(self._folder / token, os.O_WRONLY) if within else self._open(token, os.O_WRONLY)
                flock(fd, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                # What was removed from alive/ proves nothing any more: others, who look there, take it for dead.
                return os.fstat(fd).st_nlink > 0
            except OSError as error:
                return error.errno not in NO_PIPE
            finally:
                if within and fd >= 0:
                    os.close(fd)
            if not within:
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

    def ring(self, token: str, number: int, granted: Granted | None) -> None:
        """Wake the waiter at a pipe, with the news that it holds the lock, if that is so."""
        message = b"\n" if granted is None else b"%b %d\n" % (granted.id.encode(), granted.fence)
        within = self._mutex._is_owned()  # as in `is_alive`
        with self._mutex:  # nothing is closed meanwhile
            if token == self.token:
                pipe = self.wakeups.get(number)
                if pipe is not None:
                    pipe.ring(message)
                return
            name = f"{token}.{number}"
            try:
                # Opened for both, so that no reader's absence can raise SIGPIPE.
                if within:
                    write_once(self._folder / name, message)
                    return
                fd = self._open(name, os.O_RDWR)
                if not os.fstat(fd).st_nlink:  # its name may be another wake-up pipe's by now
                    os.close(self.others.pop(name))
                    fd = self._open(name, os.O_RDWR)
                os.write(fd, message)
            except OSError:
                pass  # it is gone, or its pipe is full of news: it looks again by itself

    def open_liveness_pipe(self, token: str) -> int | None:
        """Open another's liveness pipe to be woken by its death; None if it can't be watched."""
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

    # -- wake-up pipes ------------------------------------------------------------------------------------------

    def pipe(self) -> WakeupPipe:
        """Return a wake-up pipe for one waiter; give it back with `put_back`.

        Raises:
            StoreError: none could be made; the message says what to do.
        """
        with self._mutex:
            pipe = None
            while pipe is None and (pipe := self._idle_one()) is not None:
                if not pipe.is_reachable(self.token):
                    self._discard(pipe)
                    pipe = None
            if pipe is None:
                pipe = self._make_pipe()
        pipe.drain()
        return pipe

    def _idle_one(self) -> WakeupPipe | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _make_pipe(self) -> WakeupPipe:
        if not self._folder.is_dir():
            self._mend()
        for _ in range(MOST_NUMBER):
            self._made = number = self._made % MOST_NUMBER + 1
            if number not in self.wakeups:
                try:
                    pipe = WakeupPipe(self._folder, self.token, number)
                except FileExistsError:
                    continue
                except OSError as error:
                    raise failed(f"no pipe to wait at could be made in {self._folder}", error) from error
                self.wakeups[number] = pipe
                return pipe
        raise StoreError(f"more than {MOST_NUMBER} wait in {self._folder}: wait in fewer threads or tasks")

    def put_back(self, pipe: WakeupPipe) -> None:
        """Keep a wake-up pipe for the next waiter, or remove it when there are many; the caller no longer waits at
        it."""
        with self._mutex:
            if self._liveness_pipe >= 0 and pipe.token == self.token and len(self._idle) < MOST_IDLE_PIPES:
                self._idle.append(pipe)
            else:
                self._discard(pipe)

    def exchange(self, pipe: WakeupPipe) -> WakeupPipe:
        """Return a wake-up pipe that others can ring: the same one, or another if its name is gone."""
        if pipe.is_reachable(self.token):
            return pipe
        other = self.pipe()
        other.ring(b"\n")  # what was written to the old one is not to be missed
        with self._mutex:
            self._discard(pipe)
        return other

    def wake(self, pipe: WakeupPipe) -> None:
        """Make the waiter at a pipe of this process look again, from any thread."""
        with self._mutex:
            pipe.ring(b"\n")

    def _discard(self, pipe: WakeupPipe) -> None:
        if self.wakeups.get(pipe.number) is pipe:
            del self.wakeups[pipe.number]
        pipe.remove()

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave: the claims of this process end with it.  Nobody waits at a wake-up pipe any more."""
        with self._mutex:
            for pipe in list(self.wakeups.values()):
                self._discard(pipe)
            self._idle.clear()
            if self._liveness_pipe >= 0 and self.is_intact():
                unlink(self._path)
            self.forget()

    def forget(self) -> None:
        """Close the liveness pipe and the wake-up pipes without removing them: they are the parent's."""
        for pipe in self.wakeups.values():
            pipe.forget()
        while self.others:
            os.close(self.others.popitem()[1])
        if self._liveness_pipe >= 0:
            os.close(self._liveness_pipe)
            self._liveness_pipe = -1
