"""Wake-up pipes (alive/TOKEN.NUMBER): how a waiter is notified on POSIX systems.

Each waiting thread or task has a *wake-up pipe*: a named pipe to which others write to notify it.  It also opens the
liveness pipes of processes before it for writing, and the kernel wakes it when the only reader has gone.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path
from weakref import ref

from interlock.core.claims import USING
from interlock.core.failures import closed
from interlock.core.line import QueuedClaim
from interlock.core.queue import Granted
from interlock.runtime._threads import readable
from interlock.runtime.waiters import MESSAGE, Waiters
from interlock.stores.files._posix import make_pipe, open_pipe, remove
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.open_file import OpenFile
from interlock.stores.files.opening import failing
from interlock.stores.files.wakeups import FileWaiter, Wakeups

MOST_IDLE_PIPES = 64
SWEEP_THRESHOLD = 16  # with more wake-up pipes, and at each doubling, pipes without a waiter are removed
MAX_PIPE_NUMBER = 999_999  # six digits, as many as a slot has room for


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


class Pipes(Wakeups):
    """The wake-up pipes of a queue.

    Args:
        folder: the folder alive/.
        liveness: the liveness file of the queue, and those of other processes.

    Attributes:
        by_number: the wake-up pipes, by number.
    """

    def __init__(self, folder: Path, liveness: Liveness) -> None:
        self.waiters = Waiters()
        self.by_number: dict[int, WakeupPipe] = {}
        self._folder = folder
        self._liveness = liveness
        self._idle: list[WakeupPipe] = []
        self._many = SWEEP_THRESHOLD
        self._numbers = cycle(range(1, MAX_PIPE_NUMBER + 1))

    def notify(self, place: QueuedClaim) -> None:
        """Notify a waiter in another process, with fence and slot if it is now a holder."""
        message = f"{place.id} {place.fence} {place.slot}\n" if place.state == USING else "\n"
        liveness = self._liveness
        # A failure is ignored: the process has ended, or its full pipe wakes it anyway.
        with liveness.section.entered(), contextlib.suppress(OSError):
            # Opened for reading and writing, so that a missing reader cannot raise SIGPIPE.
            pipe = liveness.open(f"{place.liveness_token}.{place.channel}", open_for_both)
            os.write(pipe.fd, message.encode())

    def watch(self, pipe: WakeupPipe, tokens: Iterable[str]) -> None:
        """Let the death of exactly these processes wake the waiter of a pipe."""
        liveness = self._liveness
        wanted = {token for token in tokens if token != liveness.token and token}
        pipe.unwatch([token for token, each in pipe.watched.items() if token not in wanted or each.fd < 0])
        for token in wanted - pipe.watched.keys():
            other = pipe.watched[token] = OpenFile(self._folder / token)
            try:
                open_pipe(other, os.O_WRONLY)
            except BaseException as error:
                pipe.unwatch((token,))
                if not isinstance(error, OSError):
                    raise
                if not liveness.is_alive(token):
                    pipe.ring()  # the process died after the read of the line: the waiter must poll immediately

    def pipe(self, user: object) -> WakeupPipe:
        """Return a wake-up pipe for a waiter; the waiter returns it by `put_back`.

        Raises:
            StoreError: the pipe cannot be created, or the connection is closed.
        """
        if self._liveness.closed:
            raise closed()
        if not self._idle:
            self._liveness.keep()
        with self._liveness.section.entered(), failing(f"Cannot create a pipe for waiting in {self._folder}"):
            if len(self.by_number) >= self._many:
                self._discard_unused()
                self._many = max(SWEEP_THRESHOLD, 2 * len(self.by_number))
            if self._idle:
                pipe = self._idle.pop()
                if readable(pipe.fd, (), 0.0):  # checked first, because eventlet makes reads wait for data
                    pipe.read()
            else:
                number = next(number for number in self._numbers if number not in self.by_number)
                pipe = self.by_number[number] = WakeupPipe(self._folder, self._liveness.token, number)
                make_pipe(pipe)
            pipe.user = ref(user)
            return pipe

    def _discard_unused(self) -> None:
        """Remove the pipes of exited waiters that have not returned them."""
        for pipe in list(self.by_number.values()):
            if pipe.user() is None and pipe not in self._idle:
                self.discard(pipe)

    def is_reachable(self, pipe: WakeupPipe) -> bool:
        """Return True if other processes find this wake-up pipe under its name."""
        return pipe.token == self._liveness.token and pipe.is_intact()

    def put_back(self, pipe: WakeupPipe) -> None:
        """Keep a wake-up pipe for the next waiter, or remove it if there are many."""
        with self._liveness.section.entered():
            if not self._liveness.closed and pipe.token == self._liveness.token and len(self._idle) < MOST_IDLE_PIPES:
                pipe.user = lambda: None
                self._idle.append(pipe)
            else:
                self.discard(pipe)

    def discard(self, pipe: WakeupPipe) -> None:
        """Remove an unused wake-up pipe."""
        remove(pipe)
        if self.by_number.get(pipe.number) is pipe:
            del self.by_number[pipe.number]

    def close(self) -> None:
        """Remove all unused pipes; a waiting thread or task removes its own."""
        with self._liveness.section.entered():
            self._idle.clear()
            self._discard_unused()

    def forget(self) -> None:
        """Close the pipes in a forked child without removing them: the parent uses them."""
        for pipe in self.by_number.values():
            pipe.close()


def open_for_both(pipe: OpenFile) -> None:
    """Open a pipe for reading and writing; the caller closes it if this raises."""
    open_pipe(pipe, os.O_RDWR)


class BasePipeWaiter(FileWaiter):
    """A waiter that reads a pipe.

    Args:
        pipes: the pipes of the queue.

    Attributes:
        pipe: the pipe by which other processes notify it.
    """

    __slots__ = ("__weakref__", "_message", "_pipes", "pipe")

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._message: Granted | None = None
        self.pipe: WakeupPipe = pipes.pipe(self)

    def wake(self, message: Granted | None = None) -> None:
        """Wake the waiter, from any thread; it keeps the last message until the next `wait`."""
        if message is not None:
            self._message = message
        self.pipe.ring()

    def channel(self) -> str:
        """Return the number of the pipe; replace an unreachable pipe first."""
        pipes = self._pipes
        while not pipes.is_reachable(self.pipe):
            old, self.pipe = self.pipe, pipes.pipe(self)
            pipes.discard(old)
            self.wake()  # a notification in the old pipe would be lost: let the waiter poll
        return str(self.pipe.number)

    def watch(self, tokens: Iterable[str]) -> None:
        """See `FileWaiter.watch`."""
        self._pipes.watch(self.pipe, tokens)

    def close(self) -> None:
        """Return the pipe for the next waiter."""
        self._pipes.put_back(self.pipe)
