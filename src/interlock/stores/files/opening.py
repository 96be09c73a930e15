"""Opening what lies in a folder of locks: a path is not proof that it is still a file of ours.

A user who may write to a folder may put a symbolic link, a named pipe or a huge file where a line should be.  So
nothing is opened through a link, no opening blocks, and an open file is checked before it is read, written or
truncated.
"""

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from interlock.core.errors import StoreError
from interlock.runtime import clock

WITHIN_A_STEP = (
    "a signal handler came in the middle of a step of its own thread, and can't lock or release there: let it set a "
    "flag, and lock or release after it"
)

_ADVICE = {
    errno.EMFILE: "this process has too many files open: close some, or raise its limit (ulimit -n)",
    errno.ENFILE: "this machine has too many files open: raise fs.file-max",
    errno.ENOSPC: "the disk is full, or has no inodes left: make room",
    errno.EDQUOT: "the user's quota is used up: make room",
    errno.EROFS: "the file system is mounted read-only: mount it for writing, or choose another folder",
    errno.EFBIG: "this process may not write files that long: raise its limit (ulimit -f)",
    errno.EIO: "the disk fails: look at the machine's log",
    errno.EACCES: "this user may not do that there: its owner must give it the mode that others need (chmod)",
    errno.EPERM: "this user may not do that there: its owner must give it the mode that others need (chmod)",
    errno.ENOTDIR: "it is not a folder: choose another one",
    errno.EEXIST: "a file is where a folder is needed: choose another place",
}


def failed(what: str, error: OSError) -> StoreError:
    """Return the error for something that was not possible, to be raised from `error`.

    Args:
        what: what was not possible.
        error: what the operating system said.
    """
    advice = _ADVICE.get(error.errno or 0, "see `interlock doctor`")
    return StoreError(f"{what}: {error}; {advice}")


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Raise what the operating system refuses within as the error for `what`; also the loading of a module."""
    try:
        yield
    except OSError as error:
        raise failed(what, error) from error


class Section:
    """A part of the program in which one thread at a time may be, and no signal handler of that thread."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._taken = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in it.  A generator that is dropped is left: so an interrupt leaves no mutex taken.

        Raises:
            StoreError: it is a signal handler that asks, in the middle of a section of its own thread.
        """
        with self._mutex:
            if self._taken:
                raise StoreError(WITHIN_A_STEP)
            self._taken = True
            try:
                yield
            finally:
                self._taken = False


MOST_BYTES = 16 << 20  # a line of 32,000 claims; what is longer is no line
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
FLAGS = NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
ROUNDS = 50
GONE = (errno.ENOENT, errno.ENOTDIR)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


class OpenFile:
    """A descriptor of ours, and the file that it leads to.

    A program that becomes a daemon closes descriptors that are not its own, and their numbers become other files.  So
    none is used before it was compared with its file, and only what is still ours is closed.

    Args:
        path: where the file is found.
        fd: what was opened there; -1 for nothing yet.
    """

    __slots__ = ("device", "fd", "inode", "mark", "path")

    def __init__(self, path: str | Path, fd: int = -1) -> None:
        self.path = os.fsencode(path)
        self.fd = self.device = self.inode = self.mark = -1
        if fd >= 0:
            self.hold(fd)

    def hold(self, fd: int) -> None:
        """Keep a descriptor from now on."""
        found = os.fstat(fd)
        self.device, self.inode, self.fd = found.st_dev, found.st_ino, fd

    def links(self) -> int:
        """Return how many names the file has; -1 if it is not open here any more."""
        try:
            found = os.fstat(self.fd)
        except OSError:
            return -1
        return found.st_nlink if found.st_ino == self.inode and found.st_dev == self.device else -1

    def is_found(self) -> bool:
        """Tell whether its path leads to it; what can't be looked at counts as there."""
        try:
            found = os.lstat(self.path)
        except OSError as error:
            return error.errno not in GONE
        return found.st_ino == self.inode and found.st_dev == self.device

    def is_intact(self) -> bool:
        """Tell whether it is open here, and its path leads to it."""
        return self.links() > 0 and self.is_found()

    def close(self) -> None:
        """Close the descriptor, unless it is another file's by now."""
        ours = self.fd >= 0 and self.links() >= 0
        fd, self.fd = self.fd, -1
        if ours:
            os.close(fd)

    def remove(self) -> None:
        """Unlink the file, if it is the one at its path, and close it."""
        if self.fd >= 0 and self.is_found():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self.close()


class NotOurs(StoreError):
    """What lies at a path of the folder is no file of ours; it was neither read nor changed."""


class Sharing(NamedTuple):
    """The users who may use a folder.

    Attributes:
        mode: the permission bits of the folder; its subfolders have the same.
        owner, group: of the folder.
    """

    mode: int
    owner: int
    group: int

    @property
    def file_mode(self) -> int:
        """The permission bits of the files in it."""
        return file_mode(self.mode)

    @property
    def is_shared(self) -> bool:
        """Whether other users may write to it, so that files of every user are trusted."""
        return bool(self.mode & 0o022)

    def trusts(self, owner: int) -> bool:
        """Tell whether a file of that user may be used."""
        return self.is_shared or owner in (os.geteuid(), 0, self.owner)


def file_mode(folder_mode: int) -> int:
    """Return the permission bits of the files in a folder.

    A user who may write to the folder may read and write its files.  Nobody else may even read them: an OS lock needs
    no more than that, and would hold everybody up.
    """
    return 0o600 | (0o060 if folder_mode & 0o020 else 0) | (0o006 if folder_mode & 0o002 else 0)


def sharing_of(found: os.stat_result) -> Sharing:
    """Return the users who may use a folder."""
    return Sharing(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def kind_of(mode: int) -> str:
    """Return in words what has this mode."""
    return _KINDS.get(stat.S_IFMT(mode), "a file")


# -- files --------------------------------------------------------------------------------------------------


def open_file(folder: str | Path, name: str, sharing: Sharing, *, create: bool = True, write: bool = True) -> int:
    """Open a file of ours, and only that.

    Args:
        folder: where it lies; not through a symbolic link.
        name: its name there.
        sharing: the users who may use it.
        create: whether to make it if it is not there.
        write: whether to open it for writing, too.

    Returns:
        A descriptor.

    Raises:
        NotOurs: something else lies there.
        OSError: it can't be opened; FileNotFoundError if it is not there and was not to be made.
    """
    at = open_folder(folder)
    try:
        for _ in range(ROUNDS):
            fd = _open_at(at, name, sharing, create, os.O_RDWR if write else os.O_RDONLY)
            if fd >= 0:
                return fd
    except NotOurs as error:
        raise NotOurs(f"{os.fspath(folder)}/{name} {error}") from None
    except OSError as error:
        error.filename = f"{os.fspath(folder)}/{name}"
        raise
    finally:
        os.close(at)
    raise StoreError(f"{os.fspath(folder)}/{name} appears and disappears again and again; find out why")


def _open_at(at: int, name: str, sharing: Sharing, create: bool, access: int) -> int:
    """Return a descriptor, or -1 to try again."""
    made = False
    try:
        fd = -1
        if create:  # first, and exclusively: most names that are opened are new
            with contextlib.suppress(FileExistsError, PermissionError):
                fd = os.open(name, access | FLAGS | os.O_CREAT | os.O_EXCL, sharing.file_mode, dir_fd=at)
                made = True
        if not made:
            fd = os.open(name, access | FLAGS, dir_fd=at)
    except FileNotFoundError:
        if create and os.access(".", os.W_OK, dir_fd=at):
            return -1
        raise
    except OSError as error:
        try:
            found = os.lstat(name, dir_fd=at)
        except FileNotFoundError:
            raise error from None
        if not stat.S_ISREG(found.st_mode):
            raise _refused(f"is {kind_of(found.st_mode)}") from None
        if error.errno == errno.EACCES and not found.st_size and clock.time_of_day() - found.st_mtime < 1:
            time.sleep(0.001)  # its maker is about to set its mode
            return -1
        raise
    try:
        _settle(fd, sharing, made)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _settle(fd: int, sharing: Sharing, made: bool) -> None:
    """Check that an open file may be ours, and give it the mode that it should have, independent of the umask."""
    found = os.fstat(fd)
    what = oddity(found, sharing)
    if what:
        raise _refused(what)
    if found.st_uid != os.geteuid() or found.st_nlink != 1:
        return
    mode = stat.S_IMODE(found.st_mode)
    if made:
        settle_new(fd, found, sharing.file_mode, sharing)
    elif not found.st_size and mode != sharing.file_mode:
        os.fchmod(fd, sharing.file_mode)  # its maker was killed before it did that
    elif mode & ~sharing.file_mode:
        os.fchmod(fd, mode & sharing.file_mode)


def settle_new(fd: int, found: os.stat_result, mode: int, sharing: Sharing) -> None:
    """Give a new file or folder its mode, owner and group."""
    if found.st_uid == 0 != sharing.owner:
        os.fchown(fd, sharing.owner, sharing.group)  # root leaves nothing in a user's folder that locks its owner out
    elif sharing.is_shared and found.st_gid != sharing.group:
        try:
            os.fchown(fd, -1, sharing.group)
        except PermissionError:
            pass  # not a member of that group: other users may be left out, and are told so
    if stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(fd, mode)


def oddity(found: os.stat_result, sharing: Sharing) -> str:
    """Return what keeps a file from being one of ours; "" if nothing does."""
    if not stat.S_ISREG(found.st_mode):
        return f"is {kind_of(found.st_mode)}"
    if found.st_size > MOST_BYTES:
        return f"is {found.st_size} bytes long"
    if not sharing.trusts(found.st_uid):
        return f"belongs to user {found.st_uid}"
    if not found.st_size and found.st_nlink > 1:
        return "is empty and has another name too"
    return ""


def _refused(what: str) -> NotOurs:
    return NotOurs(f"{what}, no file that interlock made; look at it, and remove it (nothing was changed)")


def read_file(folder: str | Path, name: str, sharing: Sharing, most: int = MOST_BYTES) -> bytes:
    """Return what a file of ours says, up to `most` bytes.

    Raises:
        NotOurs: something else lies there.
        OSError: it can't be read; FileNotFoundError if it is not there.
    """
    fd = open_file(folder, name, sharing, create=False, write=False)
    try:
        return os.pread(fd, min(most, os.fstat(fd).st_size), 0)
    finally:
        os.close(fd)


def put(fd: int, data: bytes, at: int) -> None:
    """Write all of `data`, or raise OSError."""
    if os.pwrite(fd, data, at) != len(data):
        raise OSError(errno.ENOSPC, "only a part could be written")


# -- folders ------------------------------------------------------------------------------------------------


def open_folder(path: str | Path) -> int:
    """Open a folder, not through a symbolic link."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW | os.O_CLOEXEC)


def make_folder(path: Path, mode: int, sharing: Sharing | None = None) -> None:
    """Make a folder, which nobody sees before it has its mode; nothing if it is there."""
    temporary = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
    os.mkdir(temporary, 0o700)
    try:
        fd = open_folder(temporary)
        try:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or os.listdir(fd):
                raise OSError(errno.EPERM, "another program replaced it while it was made", os.fspath(path))
            settle_new(fd, found, mode, sharing or sharing_of(found))
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError as error:
        os.rmdir(temporary)
        if error.errno != errno.ENOTEMPTY and not os.path.isdir(path):  # else another process was quicker
            raise error
