"""Which processes live, and how to wake them: liveness pipes and wake-up pipes, the files in alive/.

Each process has one *liveness pipe*: a named pipe that it keeps open and locked (flock) as long as it lives.  The OS
lock is the proof of life: the kernel takes it away when the process dies, however it dies.  Who waits for the process
opens the pipe too and is woken by the kernel when its only reader has gone. Each waiting thread or task has a
*wake-up pipe*: a named pipe that others write to when its turn has come.

Others find both by their names.  A liveness pipe whose name is gone (a tmp cleaner, `rm alive/*`), or whose
descriptor somebody closed, proves nothing any more: the process notices it, makes another one under a new token, and
has lost what it claimed under the old one.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from itertools import cycle
from pathlib import Path

from interlock.core.claims import USING
from interlock.core.errors import StoreError
from interlock.core.line import Place
from interlock.core.queue import Granted
from interlock.remote.waiters import DIGITS
from interlock.runtime import log
from interlock.runtime._threads import READABLE, poller
from interlock.runtime.process import pid
from interlock.stores.files.opening import (
    FLAGS,
    GONE,
    NotOurs,
    OpenFile,
    Section,
    failed,
    open_folder,
    settle_new,
    sharing_of,
)

MOST_IDLE_PIPES = 64
MOST_OTHERS = 128
MOST_NUMBER = 999_999  # a slot has room for six digits
TRIES = 50
NO_PIPE = (*GONE, errno.ENXIO, errno.ELOOP)
_DIR_FD = os.mkfifo in os.supports_dir_fd


class WakeupPipe(OpenFile):
    """A named pipe that one waiter listens to.

    Args:
        folder: the folder alive/.
        token, number: others find it as TOKEN.NUMBER.
    """

    __slots__ = ("number", "token", "watched")

    def __init__(self, folder: Path, token: str, number: int) -> None:
        path = folder / f"{token}.{number}"
        super().__init__(path, make_pipe(path))
        self.token = token
        self.number = number
        self.watched: dict[str, OpenFile] = {}  # kept: the next waiter often waits for the same process

    def ring(self) -> None:
        """Make it readable, if it is still ours; once it is full, it is so anyway."""
        if self.links() >= 0:
            with contextlib.suppress(OSError):
                os.write(self.fd, b"\n")

    def drain(self) -> Granted | None:
        """Read what came; return the last news of a lock obtained; its file is there."""
        poll = poller()
        poll.register(self.fd, READABLE)
        # Where reading is made to wait (eventlet), nothing is read before it is there.
        return self.read() if poll.poll(0) else None

    def read(self) -> Granted | None:
        """As `drain`, when something is there."""
        try:
            data = os.read(self.fd, 65536) if self.links() >= 0 else b""
        except BlockingIOError:
            return None
        granted = None
        for line in data.split(b"\n")[:-1]:
            id, *numbers = line.split(b" ")
            if len(numbers) == 2 and all(each.isdigit() and len(each) <= DIGITS for each in numbers):
                granted = Granted(id.decode(errors="replace"), int(numbers[0]), int(numbers[1]))
        return granted

    def watch(self, token: str, folder: Path) -> bool:
        """Hear of the death of a process; False if its liveness pipe is not there."""
        if token in self.watched:
            return True
        try:
            self.watched[token] = open_pipe(folder / token, os.O_WRONLY)
        except OSError:
            return False
        return True

    def unwatch(self, tokens: Iterable[str]) -> None:
        """Watch some processes no more."""
        for token in list(tokens):
            self.watched.pop(token).close()

    def close(self) -> None:
        """Close it, and what is watched with it."""
        self.unwatch(self.watched)
        super().close()


class Liveness:
    """The liveness pipe of this process, its wake-up pipes, and a look at those of others.

    It has a liveness pipe of its own from the first `keep` on; without one it can only look.

    Args:
        folder: the folder alive/.
        mend: makes it again if it was removed.

    Attributes:
        token: the name of its liveness pipe; "" as long as it has none.
        closed: True if it makes no more pipes.
        was_lost: True if others took this process for dead.
        wakeups: the wake-up pipes, by their numbers.
        others: what is open of other processes, by their names.
    """

    def __init__(self, folder: Path, mend: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._mend = mend
        self._section = Section()
        self._idle: list[WakeupPipe] = []
        self._numbers = cycle(range(1, MOST_NUMBER + 1))
        self._own = OpenFile(folder)
        self.token = ""
        self.closed = self.was_lost = False
        self.wakeups: dict[int, WakeupPipe] = {}
        self.others: dict[str, OpenFile] = {}

    # -- the own liveness pipe ---------------------------------------------------------------------------------

    def keep(self) -> bool:
        """See that others find this process's liveness pipe; if they do not, make one under a new token.

        What was claimed under an old token is lost then: others take it for a dead process's.

        Returns:
            False if the liveness pipe was gone: then the waiters must be woken, to enter the line anew.

        Raises:
            StoreError: it was gone, and no other one could be made; the message says what to do.
        """
        if self._own.is_intact():
            return True
        with self._section.entered():
            if self.closed or self._own.is_intact():
                return True
            old = self.token
            self.was_lost = self.was_lost or bool(old)
            self._make_own()
        if old:
            log.warn(
                "the liveness pipe %s was removed from %s: the locks held by this process there are lost; exclude "
                "the folder from whatever cleans up there",
                old,
                self._folder,
            )
        return not old

    def _make_own(self) -> None:
        """Make a liveness pipe; one that was made before stays made if that fails."""
        for _ in range(TRIES):
            token = f"{pid()}-{os.urandom(6).hex()}"
            try:
                made = OpenFile(self._folder / f".{token}", make_pipe(self._folder / f".{token}"))
                try:
                    flock(made.fd, LOCK_EX | LOCK_NB)
                    os.rename(made.path, self._folder / token)  # others see it locked, or not at all
                except BaseException:
                    made.remove()
                    raise
            except (FileNotFoundError, BlockingIOError):
                # A process that sweeps looked at it, or took it away, before it was locked: not every time.
                if not self._folder.is_dir():
                    self._mend()
                continue
            except OSError as error:
                raise failed(f"no liveness pipe could be made in {self._folder}", error) from error
            made.path = os.fsencode(self._folder / token)
            before, self._own, self.token = self._own, made, token
            before.close()
            return
        raise StoreError(
            f"no liveness pipe could be made in {self._folder}: the folder was removed, or is swept all the time; "
            f"exclude it from whatever cleans up there, and connect again"
        )

    # -- the others -------------------------------------------------------------------------------------

    def is_alive(self, token: str) -> bool:
        """Tell whether the process of that liveness pipe lives; another user's that can't be looked at is taken as
        alive."""
        if token == self.token:
            return True
        with self._section.entered():  # nothing is closed meanwhile
            try:
                pipe = self._open(token, os.O_WRONLY)
                flock(pipe.fd, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                # What was removed from alive/ proves nothing any more: others, who look there, take it for dead.
                return pipe.links() > 0
            except OSError as error:
                return error.errno not in NO_PIPE
            flock(pipe.fd, LOCK_UN)
            self._forget(token)
            return False

    def _open(self, name: str, mode: int) -> OpenFile:
        """Return another's pipe, kept open for the next time; under the mutex."""
        pipe = self.others.get(name)
        if pipe is not None and pipe.links() < 1:  # its name may be another pipe's by now, and so may its descriptor
            self._forget(name)
            pipe = None
        if pipe is None:
            pipe = open_pipe(self._folder / name, mode)
            if len(self.others) >= MOST_OTHERS:
                self._forget(next(iter(self.others)))
            self.others[name] = pipe
        return pipe

    def _forget(self, name: str) -> None:
        pipe = self.others.pop(name, None)
        if pipe is not None:
            pipe.close()

    def tell(self, place: Place) -> None:
        """Wake a waiter in another process, with the news that it holds the lock, if that is so."""
        message = f"{place.id} {place.fence} {place.slot}\n" if place.state == USING else "\n"
        # A process that is gone, or whose pipe is full, looks again by itself.
        with self._section.entered(), contextlib.suppress(OSError):
            # Opened for both, so that no reader's absence can raise SIGPIPE.
            os.write(self._open(f"{place.alive}.{place.channel}", os.O_RDWR).fd, message.encode())

    def watch(self, pipe: WakeupPipe, tokens: Iterable[str]) -> None:
        """Let the waiter at a pipe be woken also by the death of these processes, and of no others."""
        wanted = {token for token in tokens if token != self.token and token}
        if wanted or pipe.watched:
            pipe.unwatch(pipe.watched.keys() - wanted)
            for token in wanted:
                if not pipe.watch(token, self._folder) and not self.is_alive(token):
                    pipe.ring()  # it died since the line was looked at: look again at once

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

    def pipe(self, checked: bool = True) -> WakeupPipe:
        """Return a wake-up pipe for one waiter; give it back with `put_back`.

        Args:
            checked: False if the caller sees that others find it, before it says where it waits.

        Raises:
            StoreError, OSError: none could be made.
        """
        if checked or not self._idle:
            self.keep()
        with self._section.entered():
            while self._idle:
                pipe = self._idle.pop()
                if not checked or self.is_reachable(pipe):
                    pipe.drain()
                    return pipe
                self._discard(pipe)
            number = next(number for number in self._numbers if number not in self.wakeups)
            pipe = self.wakeups[number] = WakeupPipe(self._folder, self.token, number)
            return pipe

    def is_reachable(self, pipe: WakeupPipe) -> bool:
        """Tell whether other processes find this wake-up pipe under its name."""
        return pipe.token == self.token and pipe.is_intact()

    def put_back(self, pipe: WakeupPipe) -> None:
        """Keep a wake-up pipe for the next waiter, or remove it when there are many; the caller no longer waits at
        it."""
        with self._section.entered():
            if not self.closed and pipe.token == self.token and len(self._idle) < MOST_IDLE_PIPES:
                self._idle.append(pipe)
            else:
                self._discard(pipe)

    def _discard(self, pipe: WakeupPipe) -> None:
        if self.wakeups.get(pipe.number) is pipe:
            del self.wakeups[pipe.number]
        pipe.remove()

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave: the claims of this process end with it.  Who still waits at a wake-up pipe puts it back."""
        with self._section.entered():
            self.closed = True
            while self._idle:
                self._discard(self._idle.pop())
            self._own.remove()
            self.close_others()

    def forget(self) -> None:
        """In a forked child: close the pipes without removing them, since they are the parent's."""
        self._section = Section()  # another thread of the parent may be in it
        self.closed = True
        for pipe in self.wakeups.values():
            pipe.close()
        self._own.close()
        self.close_others()

    def close_others(self) -> None:
        """Close what is open of other processes."""
        while self.others:
            self.others.popitem()[1].close()


# -- named pipes --------------------------------------------------------------------------------------------


def make_pipe(path: Path) -> int:
    """Make a named pipe, and return a descriptor of both its ends.

    Raises:
        NotOurs: something else lies there by now.
        OSError: it can't be made.
    """
    at = open_folder(path.parent)
    try:
        sharing = sharing_of(os.fstat(at))
        if _DIR_FD:
            os.mkfifo(path.name, sharing.file_mode, dir_fd=at)
        else:
            os.mkfifo(path, sharing.file_mode)
        try:
            fd = os.open(path.name, os.O_RDWR | FLAGS, dir_fd=at)
        except OSError:
            os.unlink(path.name, dir_fd=at)
            raise
    finally:
        os.close(at)
    try:
        found = os.fstat(fd)
        if not found.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "it was removed while it was made", os.fspath(path))
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
            raise NotOurs(f"another program replaced {path} while it was made; find that program")
        settle_new(fd, found, sharing.file_mode, sharing)
    except BaseException:
        os.close(fd)
        raise
    return fd


def remove_pipe(at: int, name: str) -> bool:
    """Unlink a named pipe, and only that, from an open folder; tell whether it was done."""
    try:
        if not stat.S_ISFIFO(os.lstat(name, dir_fd=at).st_mode):
            return False
        os.unlink(name, dir_fd=at)
    except OSError:
        return False
    return True


def open_pipe(path: Path, access: int) -> OpenFile:
    """Open a named pipe, and only that; it does not block.

    Raises:
        FileNotFoundError: there is none.
        OSError: it can't be opened.
    """
    fd = os.open(path, access | FLAGS)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "no named pipe", os.fspath(path))
    return OpenFile(path, fd)
