"""Who is alive, and how to wake them: beacons and bells, the files in alive/.

Each process has one *beacon*: a named pipe that it keeps open and locked (flock) as long as it lives.  The OS lock
is the proof of life: the kernel takes it away when the process dies, however it dies.  Who waits for the process
opens the pipe too and is woken by the kernel when its only reader has gone.
Each waiting thread or task has a *bell*: a named pipe that others write to when its turn has come.
"""

import errno
import os
import select
import threading
from collections.abc import Iterable
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from types import BuiltinFunctionType

from interlock.errors import StoreError
from interlock.process import pid
from interlock.protocols.queue import Told
from interlock.stores.native import compiled

MOST_IDLE_BELLS = 64
MOST_OTHERS = 128
native = compiled("interlock.stores.files._quick")
_poll = select.poll if isinstance(select.poll, BuiltinFunctionType) else None


class Presence:
    """This process in one folder: its beacon, its bells, and its view of the others.

    Args:
        folder: the folder alive/, which exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.token = f"{pid()}-{os.urandom(6).hex()}"
        self._beacon = self._light()
        self._mutex = threading.Lock()
        self._idle: list[Bell] = []
        self.bells: dict[int, Bell] = {}
        self._made = 0
        self.others: dict[str, int] = {}

    def _light(self) -> int:
        path = self._folder / f".{self.token}"
        for attempt in range(10):
            try:
                os.mkfifo(path, 0o666)
                fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                flock(fd, LOCK_EX | LOCK_NB)
                os.rename(path, self._folder / self.token)  # others see it locked, or not at all
                return fd
            except FileNotFoundError:
                if attempt == 9:  # somebody who sweeps may take it away once, not ten times
                    raise
        raise StoreError(f"no beacon could be made in {self._folder}: it is swept all the time")

    def is_alive(self, token: str) -> bool:
        """Tell whether the process of that beacon lives; another user's that can't be looked at is taken as alive."""
        if token == self.token:
            return True
        with self._mutex:
            try:
                fd = self._open(token, os.O_WRONLY)
                flock(fd, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                return True
            except OSError as error:
                return error.errno not in (errno.ENOENT, errno.ENXIO)
            os.close(self.others.pop(token))
            return False

    def _open(self, name: str, mode: int) -> int:
        """Return another's pipe, kept open for the next time; under the mutex."""
        fd = self.others.get(name)
        if fd is None:
            fd = os.open(self._folder / name, mode | os.O_NONBLOCK | os.O_CLOEXEC)
            if len(self.others) >= MOST_OTHERS:
                os.close(self.others.pop(next(iter(self.others))))
            self.others[name] = fd
        return fd

    def bell(self) -> "Bell":
        """Return a bell for one waiter; give it back with `put_back`."""
        with self._mutex:
            if self._idle:
                bell = self._idle.pop()
            else:
                self._made += 1
                bell = self.bells[self._made] = Bell(self._folder, self.token, self._made)
        bell.drain()
        return bell

    def put_back(self, bell: "Bell") -> None:
        """Keep a bell for the next waiter, or remove it when there are many."""
        with self._mutex:
            if len(self._idle) < MOST_IDLE_BELLS:
                self._idle.append(bell)
                return
            self.bells.pop(bell.number, None)
        bell.remove()

    def ring(self, token: str, number: int, told: Told | None) -> None:
        """Wake the waiter at a bell, with the news that it holds the lock, if that is so."""
        message = b"\n" if told is None else b"%b %d\n" % (told.id.encode(), told.fence)
        try:
            with self._mutex:  # nothing is closed meanwhile
                if token == self.token:
                    bell = self.bells.get(number)
                    if bell is not None:
                        os.write(bell.fd, message)
                    return
                # Opened for both, so that no reader's absence can raise SIGPIPE.
                os.write(self._open(f"{token}.{number}", os.O_RDWR), message)
        except OSError:
            pass  # it is gone, or its pipe is full of news: it looks again by itself

    def open_beacon(self, token: str) -> int | None:
        """Open another's beacon to be woken by its death; None if it can't be watched."""
        try:
            return os.open(self._folder / token, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None

    def sweep(self) -> int:
        """Remove what dead processes left in alive/; return how many files."""
        removed = 0
        seen: dict[str, bool] = {}
        for name in os.listdir(self._folder):
            token = name.lstrip(".").partition(".")[0]
            if token not in seen:
                seen[token] = self.is_alive(token) or (name.startswith(".") and self.is_alive(name))
            if not seen[token]:
                try:
                    os.unlink(self._folder / name)
                    removed += 1
                except OSError:
                    pass
        return removed

    def close(self) -> None:
        """Leave: the claims of this process end with it."""
        with self._mutex:
            bells, self.bells, self._idle = list(self.bells.values()), {}, []
        for bell in bells:
            bell.remove()
        if self._beacon >= 0:
            try:
                os.unlink(self._folder / self.token)
            except OSError:
                pass
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
    """A named pipe that one waiter listens to."""

    def __init__(self, folder: Path, token: str, number: int) -> None:
        self.number = number
        self.watched: dict[str, int] = {}  # kept from one waiter to the next, who often waits for the same process
        self._path = folder / f"{token}.{number}"
        os.mkfifo(self._path, 0o666)
        self.fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def drain(self) -> Told | None:
        """Read what came; return the last news of a lock obtained."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return None
        told = None
        for line in data.split(b"\n"):
            id, _, fence = line.partition(b" ")
            if fence.isdigit():
                told = Told(id.decode(errors="replace"), int(fence))
        return told

    def remove(self) -> None:
        """Close and unlink it."""
        try:
            os.unlink(self._path)
        except OSError:
            pass
        self.forget()

    def forget(self) -> None:
        """Close it."""
        while self.watched:
            os.close(self.watched.popitem()[1])
        fd, self.fd = self.fd, -1  # in this order: others may write to it at any time
        if fd >= 0:
            os.close(fd)


class Wakeup:
    """A bell, and the beacons of those whose death matters to who waits at it."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self.bell = presence.bell()
        self._watched = self.bell.watched
        self._waiters: set[object] = set()

    def stand_in(self, waiters: set[object]) -> None:
        """Be counted among those of this process who wait in one line."""
        self._waiters = waiters
        waiters.add(self)

    def watch(self, tokens: Iterable[str]) -> None:
        """Be woken also by the death of these processes, and of no others."""
        wanted = {token for token in tokens if token != self._presence.token}
        if not wanted and not self._watched:
            return
        for token in [token for token in self._watched if token not in wanted]:
            self._unwatch(token)
        for token in wanted:
            if token not in self._watched:
                fd = self._presence.open_beacon(token)
                if fd is not None:
                    self._watched[token] = fd
                elif not self._presence.is_alive(token):
                    os.write(self.bell.fd, b"\n")  # it died since the line was looked at: look again at once

    def _unwatch(self, token: str) -> None:
        os.close(self._watched.pop(token))

    def close(self) -> None:
        """Give the bell back."""
        self._waiters.discard(self)
        self._presence.put_back(self.bell)


class ThreadWakeup(Wakeup):
    """A wake-up for one thread."""

    def wait(self, seconds: float) -> Told | None:
        """Block until told, until somebody watched dies, or until `seconds` have passed."""
        if native is not None and select.poll is _poll:  # gevent and its like put their own way of waiting there
            news = native.wait(self.bell.fd, tuple(self._watched.values()), seconds)
            if news is None:
                return None
            if news:
                return Told(news[0].decode(errors="replace"), news[1])
        poll = select.poll()
        poll.register(self.bell.fd, select.POLLIN)
        for fd in self._watched.values():
            poll.register(fd, 0)
        events = poll.poll(max(0.0, seconds) * 1000)
        if self._watched:
            gone = {fd for fd, _ in events if fd != self.bell.fd}
            for token in [token for token, fd in self._watched.items() if fd in gone]:
                self._unwatch(token)  # it would only report its death again and again
        return self.bell.drain()
