"""Liveness pipes and wake-up pipes (alive/): which processes live, and notification.

Each process has one *liveness pipe*: a named pipe that it keeps open and locked (flock) as long as it lives.  The OS
lock proves that the process lives: the kernel releases it at the death of the process.  A waiter opens the liveness
pipes of processes before it for writing, and the kernel wakes it when the only reader has gone.  Each waiting thread
or task has a *wake-up pipe*: a named pipe to which others write to notify it.

Other processes find both by their names.  If the name of a liveness pipe was removed (a tmp cleaner, `rm alive/*`) or
its descriptor was closed, others take the process for dead.  The process notices this, makes another pipe under a new
token, and has lost the claims that it made under the old one.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from itertools import cycle
from pathlib import Path
from weakref import ref

from interlock.core.claims import USING
from interlock.core.errors import StoreError
from interlock.core.failures import closed
from interlock.core.line import QueuedClaim
from interlock.core.queue import Granted
from interlock.runtime import log
from interlock.runtime._threads import readable
from interlock.runtime.process import pid
from interlock.runtime.waiters import MESSAGE
from interlock.storekit.blocking import Section
from interlock.stores.files.opening import (
    FLAGS,
    MISSING_ERRNOS,
    NotOurs,
    OpenFile,
    descriptor,
    failed,
    failing,
    opened,
    settle,
    sharing_of,
)

MOST_IDLE_PIPES = 64
SWEEP_THRESHOLD = 16  # with more wake-up pipes, and at each doubling, pipes without a waiter are removed
MAX_OPEN_PIPES = 128
MAX_PIPE_NUMBER = 999_999  # six digits, as many as a slot has room for
PIPE_ATTEMPTS = 50


class WakeupPipe(OpenFile):
    """A named pipe that one waiter reads; created by `make_pipe`.

    Args:
        folder: the folder alive/.
        token, number: the file name is TOKEN.NUMBER.

    Attributes:
        user: returns the waiter; None if there is none, even if an interrupt kept it from returning the pipe.
        watched: the open liveness pipes of the processes whose death wakes the waiter, by token.
    """

    __slots__ = ("number", "token", "user", "watched")

    def __init__(self, folder: Path, token: str, number: int) -> None:
        super().__init__(folder / f"{token}.{number}")
        self.token = token
        self.number = number
        self.user: Callable[[], object] = lambda: None
        self.watched: dict[str, OpenFile] = {}  # kept open: the next waiter often watches the same process

    def ring(self) -> None:
        """Make the pipe readable, if the descriptor is still ours."""
        if self.links() >= 0:
            with contextlib.suppress(OSError):
                os.write(self.fd, b"\n")

    def read(self) -> Granted | None:
        """Read all messages of a readable pipe; return the last grant among them."""
        try:
            data = os.read(self.fd, 65536) if self.links() >= 0 else b""
        except BlockingIOError:
            return None
        granted = None
        for line in data.decode(errors="replace").split("\n")[:-1]:
            words = MESSAGE.fullmatch(line)
            if words is not None:
                granted = Granted(words[1], int(words[2]), int(words[3] or 0))
        return granted

    def unwatch(self, tokens: Iterable[str]) -> None:
        """Stop watching some processes."""
        for token in list(tokens):
            self.watched[token].close()
            del self.watched[token]

    def close(self) -> None:
        """Close the pipe, and the watched ones."""
        self.unwatch(self.watched)
        super().close()


class Liveness:
    """The liveness pipe of this process, its wake-up pipes, and other processes' pipes.

    The first `keep` makes the liveness pipe; before that, it can only ask about other processes.

    Args:
        folder: the folder alive/.
        repair: creates the folder again if it was removed.

    Attributes:
        token: the name of the liveness pipe; "" before there is one.
        closed: True if it makes no more pipes.
        wakeups: the wake-up pipes, by number.
        others: the open pipes of other processes, by name.
    """

    def __init__(self, folder: Path, repair: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._repair = repair
        self._section = Section()
        self._idle: list[WakeupPipe] = []
        self._many = SWEEP_THRESHOLD
        self._numbers = cycle(range(1, MAX_PIPE_NUMBER + 1))
        self._own = OpenFile(folder)
        self.token = ""
        self.closed = False
        self.wakeups: dict[int, WakeupPipe] = {}
        self.others: dict[str, OpenFile] = {}

    # -- the own liveness pipe ---------------------------------------------------------------------------------

    def keep(self) -> bool:
        """Check that others find the liveness pipe; otherwise create one with a new token.

        The claims under the old token are then lost: for others its process is dead.

        Returns:
            False if the liveness pipe was lost: the caller must wake all waiters, so that they enter again.

        Raises:
            StoreError: no liveness pipe could be created; the message gives the next step.
        """
        if self._own.is_intact():
            return True
        with self._section.entered():
            if self.closed or self._own.is_intact():
                return True
            old = self.token
            self._make_own()
        if old:
            log.warn(
                "The liveness pipe %s was removed from %s, so this process has lost its locks there. Exclude the "
                "folder from cleaners.",
                old,
                self._folder,
            )
        return not old

    def _make_own(self) -> None:
        """Create a liveness pipe; if that fails, the old one stays in use."""
        for _ in range(PIPE_ATTEMPTS):
            token = f"{pid()}-{os.urandom(6).hex()}"
            made = OpenFile(self._folder / f".{token}")
            try:
                try:
                    make_pipe(made)
                    flock(made.fd, LOCK_EX | LOCK_NB)
                    os.rename(made.path, self._folder / token)  # its final name appears only when it is locked
                    made.path = os.fspath(self._folder / token)
                    before, self._own, self.token = self._own, made, token
                except BaseException:
                    made.remove()
                    raise
            except (FileNotFoundError, BlockingIOError):
                # A process that sweeps locked or removed it before this one locked it; that is rare, so try again.
                self._repair()
                continue
            except OSError as error:
                raise failed(f"Cannot create a liveness pipe in {self._folder}", error) from error
            before.close()
            return
        raise StoreError(
            f"Cannot create a liveness pipe in {self._folder}: the folder is removed or cleaned repeatedly. Exclude "
            f"the folder from cleaners, and connect again."
        )

    # -- the others -------------------------------------------------------------------------------------

    def is_alive(self, token: str) -> bool:
        """Return True if the process of a liveness pipe lives, or its pipe is inaccessible."""
        if token == self.token:
            return True
        with self._section.entered():  # no other thread closes the pipe in between
            try:
                pipe = self._open(token, os.O_WRONLY)
                flock(pipe.fd, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                # A pipe that was removed from alive/ does not count: other processes take its owner for dead.
                return pipe.links() > 0
            except OSError as error:
                return error.errno not in (*MISSING_ERRNOS, errno.ENXIO, errno.ELOOP)
            flock(pipe.fd, LOCK_UN)
            self._forget(token)
            return False

    def _open(self, name: str, mode: int) -> OpenFile:
        """Return another process's pipe, and keep it open; call it within the section."""
        pipe = self.others.get(name)
        if pipe is None or pipe.links() < 1:  # removed: its name or descriptor may be another file's now
            self._forget(name)
            if len(self.others) >= MAX_OPEN_PIPES:
                self._forget(next(iter(self.others)))
            pipe = self.others[name] = OpenFile(self._folder / name)
            try:
                open_pipe(pipe, mode)
            except BaseException:
                self._forget(name)
                raise
        return pipe

    def _forget(self, name: str) -> None:
        pipe = self.others.get(name)
        if pipe is not None:
            pipe.close()
            del self.others[name]

    def notify(self, place: QueuedClaim) -> None:
        """Notify a waiter in another process, with fence and slot if it is now a holder."""
        message = f"{place.id} {place.fence} {place.slot}\n" if place.state == USING else "\n"
        # A failure is ignored: the process has ended, or its full pipe wakes it anyway.
        with self._section.entered(), contextlib.suppress(OSError):
            # Opened for reading and writing, so that a missing reader cannot raise SIGPIPE.
            os.write(self._open(f"{place.liveness_token}.{place.channel}", os.O_RDWR).fd, message.encode())

    def watch(self, pipe: WakeupPipe, tokens: Iterable[str]) -> None:
        """Let the death of exactly these processes wake the waiter of a pipe."""
        wanted = {token for token in tokens if token != self.token and token}
        pipe.unwatch([token for token, each in pipe.watched.items() if token not in wanted or each.fd < 0])
        for token in wanted - pipe.watched.keys():
            other = pipe.watched[token] = OpenFile(self._folder / token)
            try:
                open_pipe(other, os.O_WRONLY)
            except BaseException as error:
                pipe.unwatch((token,))
                if not isinstance(error, OSError):
                    raise
                if not self.is_alive(token):
                    pipe.ring()  # the process died after the read of the line: the waiter must poll immediately

    def sweep(self) -> None:
        """Remove the pipes of dead processes from alive/."""
        seen: dict[str, bool] = {}
        with opened(self._folder) as at:
            for name in os.listdir(at):
                token = name.lstrip(".").partition(".")[0]
                if token not in seen:
                    seen[token] = self.is_alive(token) or (name.startswith(".") and self.is_alive(name))
                with contextlib.suppress(OSError):
                    if not seen[token] and stat.S_ISFIFO(os.lstat(name, dir_fd=at).st_mode):
                        os.unlink(name, dir_fd=at)

    # -- wake-up pipes ------------------------------------------------------------------------------------------

    def pipe(self, user: object) -> WakeupPipe:
        """Return a wake-up pipe for a waiter; the waiter returns it by `put_back`.

        Raises:
            StoreError: the pipe cannot be created, or the connection is closed.
        """
        if self.closed:
            raise closed()
        if not self._idle:
            self.keep()
        with self._section.entered(), failing(f"Cannot create a pipe for waiting in {self._folder}"):
            if len(self.wakeups) >= self._many:
                self._discard_unused()
                self._many = max(SWEEP_THRESHOLD, 2 * len(self.wakeups))
            if self._idle:
                pipe = self._idle.pop()
                if readable(pipe.fd, (), 0.0):  # checked first, because eventlet makes reads wait for data
                    pipe.read()
            else:
                number = next(number for number in self._numbers if number not in self.wakeups)
                pipe = self.wakeups[number] = WakeupPipe(self._folder, self.token, number)
                make_pipe(pipe)
            pipe.user = ref(user)
            return pipe

    def _discard_unused(self) -> None:
        """Remove the pipes of exited waiters that have not returned them."""
        for pipe in list(self.wakeups.values()):
            if pipe.user() is None and pipe not in self._idle:
                self.discard(pipe)

    def is_reachable(self, pipe: WakeupPipe) -> bool:
        """Return True if other processes find this wake-up pipe under its name."""
        return pipe.token == self.token and pipe.is_intact()

    def put_back(self, pipe: WakeupPipe) -> None:
        """Keep a wake-up pipe for the next waiter, or remove it if there are many."""
        with self._section.entered():
            if not self.closed and pipe.token == self.token and len(self._idle) < MOST_IDLE_PIPES:
                pipe.user = lambda: None
                self._idle.append(pipe)
            else:
                self.discard(pipe)

    def discard(self, pipe: WakeupPipe) -> None:
        """Remove an unused wake-up pipe."""
        pipe.remove()
        if self.wakeups.get(pipe.number) is pipe:
            del self.wakeups[pipe.number]

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove the liveness pipe, which ends all claims."""
        with self._section.entered():
            self.closed = True
            self._idle.clear()
            self._discard_unused()
            self._own.remove()
            self.close_others()

    def forget(self) -> None:
        """Close the pipes in a forked child without removing them: the parent uses them."""
        self._section = Section()  # a thread of the parent may have been in the old one during the fork
        self.closed = True
        for pipe in self.wakeups.values():
            pipe.close()
        self._own.close()
        self.close_others()

    def close_others(self) -> None:
        """Close the open pipes of other processes."""
        for name in list(self.others):
            self._forget(name)


# -- named pipes --------------------------------------------------------------------------------------------


def make_pipe(pipe: OpenFile) -> None:
    """Create a named pipe at a path, and open it for reading and writing.

    Raises:
        NotOurs: another program replaced the pipe in between.
        OSError: the pipe cannot be created.
    """
    path = Path(pipe.path)
    try:
        with opened(path.parent) as at:
            sharing = sharing_of(os.fstat(at))
            if os.mkfifo in os.supports_dir_fd:
                os.mkfifo(path.name, sharing.file_mode, dir_fd=at)
            else:
                os.mkfifo(path, sharing.file_mode)
            pipe.fd = descriptor(path.name, os.O_RDWR | FLAGS, at=at)
        pipe.identify()
        found = os.fstat(pipe.fd)
        if not found.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "removed during its creation", pipe.path)
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
            raise NotOurs(f"Another program replaced {path} during its creation. Find that program.")
        settle(pipe.fd, found, sharing.file_mode, sharing)
    except BaseException:
        pipe.close()
        raise


def open_pipe(pipe: OpenFile, access: int) -> None:
    """Open only a named pipe, without blocking; the caller closes it on an error.

    Raises:
        FileNotFoundError: the path is not a named pipe.
        OSError: the pipe cannot be opened.
    """
    pipe.take(access)
    if not stat.S_ISFIFO(os.fstat(pipe.fd).st_mode):
        raise FileNotFoundError(errno.ENOENT, "no named pipe", pipe.path)
