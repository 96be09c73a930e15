"""The named pipes in alive/: making, opening and removing them, and the wake-up pipe that one waiter listens to."""

import errno
import os
import stat
from pathlib import Path

from interlock.core.queue import Granted
from interlock.stores.files.opening import FLAGS, NotOurs, open_folder, settle_new, sharing_of

MOST_FENCE_DIGITS = 18
GONE = (errno.ENOENT, errno.ENOTDIR)


def make_pipe(path: Path) -> int:
    """Make a named pipe, and return a descriptor of both its ends.

    Raises:
        NotOurs: something else lies there by now.
        OSError: it can't be made.
    """
    at = open_folder(path.parent)
    try:
        sharing = sharing_of(os.fstat(at))
        os.mkfifo(path.name, sharing.file_mode, dir_fd=at)
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
            raise NotOurs(f"{path} was replaced by somebody else while it was made; find out by whom")
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


def open_pipe(path: str | Path, access: int) -> int:
    """Open a named pipe, and only that; it does not block.

    Raises:
        FileNotFoundError: there is none.
        OSError: it can't be opened.
    """
    fd = os.open(path, access | FLAGS)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "no named pipe", os.fspath(path))
    return fd


def write_once(path: Path, message: bytes) -> None:
    """Write to a named pipe that is not kept open."""
    fd = open_pipe(path, os.O_RDWR)
    try:
        os.write(fd, message)
    finally:
        os.close(fd)


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return the device and inode of a file."""
    return status.st_dev, status.st_ino


def is_there(path: Path, known: tuple[int, int]) -> bool:
    """Tell whether `path` still leads to the file that was known there; what can't be looked at counts as there."""
    try:
        return identity(os.lstat(path)) == known
    except OSError as error:
        return error.errno not in GONE


def unlink(path: Path) -> bool:
    """Unlink a file; tell whether it was done."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


class WakeupPipe:
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
        self._known = identity(os.fstat(self.fd))

    def is_reachable(self, token: str) -> bool:
        """Tell whether others who look for a wake-up pipe of the process `token` find this one under its name."""
        return self.token == token and is_there(self._path, self._known)

    def ring(self, message: bytes) -> None:
        """Write to it, unless it is closed or full; under the mutex that guards its closing."""
        if self.fd >= 0:
            try:
                os.write(self.fd, message)
            except BlockingIOError:
                pass  # full of news: whoever waits at it looks anyhow

    def drain(self) -> Granted | None:
        """Read what came; return the last news of a lock obtained."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return None
        granted = None
        for line in data.split(b"\n")[:-1]:
            id, _, fence = line.partition(b" ")
            if len(fence) <= MOST_FENCE_DIGITS and fence.isdigit():
                granted = Granted(id.decode(errors="replace"), int(fence))
        return granted

    def remove(self) -> None:
        """Close and unlink it."""
        if is_there(self._path, self._known):
            unlink(self._path)
        self.forget()

    def forget(self) -> None:
        """Close it."""
        while self.watched:
            os.close(self.watched.popitem()[1])
        fd, self.fd = self.fd, -1  # in this order: others may write to it at any time
        if fd >= 0:
            os.close(fd)
