"""Safe opening of files in a folder that other users may write to.

Such a user may put a symbolic link, a named pipe or a huge file where a line should be.  So no file is opened through
a link, no open blocks, and an open file is checked before it is read, written or truncated.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from interlock.core.errors import StoreError
from interlock.runtime import clock

_ADVICE = {
    errno.EMFILE: "This process has too many open files. Close some, or raise its limit (ulimit -n).",
    errno.ENFILE: "This machine has too many open files. Raise fs.file-max.",
    errno.ENOSPC: "The disk is full, or has no inodes left. Free some space.",
    errno.EDQUOT: "The user's quota is used up. Free some space.",
    errno.EROFS: "The file system is read-only. Mount it for writing, or choose another folder.",
    errno.EFBIG: "The file-size limit of this process is too low. Raise it (ulimit -f).",
    errno.ENOLCK: "The file system has no OS locks. Choose a folder on a local disk.",
    errno.EOPNOTSUPP: "The file system has no OS locks. Choose a folder on a local disk.",
    errno.EIO: "The disk fails. Check the machine's log.",
    errno.EACCES: "This user lacks the right. Let the owner change the mode (chmod).",
    errno.EPERM: "This user lacks the right. Let the owner change the mode (chmod).",
    errno.ENOTDIR: "The path is not a folder. Choose another folder.",
    errno.EEXIST: "A file is in the place of the folder. Choose another folder.",
}


def failed(what: str, error: OSError) -> StoreError:
    """Return the StoreError for an error of the operating system, with advice; raise it from `error`.

    Args:
        what: the beginning of the message: the failed operation.
        error: the error of the operating system.
    """
    advice = _ADVICE.get(error.errno or 0, "Run `interlock doctor`.")
    return StoreError(f"{what}: {error}. {advice}")


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Convert an OSError or ImportError in the block into a StoreError."""
    try:
        yield
    except OSError as error:
        raise failed(what, error) from error


MOST_BYTES = 16 << 20  # a line of 32,000 claims; a longer file is refused
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
FLAGS = NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OPEN_ATTEMPTS = 50
MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR)
_FILE_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


class OpenFile:
    """A descriptor, and the identity of its file.

    A program that becomes a daemon closes all descriptors, and their numbers are used for other files.  So each
    descriptor is compared with its file before it is used or closed.

    Args:
        path: the path of the file, not opened yet.
    """

    __slots__ = ("device", "fd", "inode", "mark", "path")

    def __init__(self, path: str | Path) -> None:
        self.path = os.fspath(path)
        self.fd = self.device = self.inode = self.mark = -1

    def identify(self) -> None:
        """Record the identity of the opened file; before that `close` closes the number."""
        found = os.fstat(self.fd)
        self.device, self.inode = found.st_dev, found.st_ino

    def take(self, flags: int) -> None:
        """Open the file at the path.  The caller closes it if this raises."""
        self.fd = descriptor(self.path, flags | FLAGS)
        self.identify()

    def links(self) -> int:
        """Return the number of hard links; -1 if the descriptor no longer belongs to the file."""
        try:
            found = os.fstat(self.fd)
        except OSError:
            return -1
        return found.st_nlink if found.st_ino == self.inode and found.st_dev == self.device else -1

    def is_found(self) -> bool:
        """Return True if the path leads to this file, or cannot be examined."""
        try:
            found = os.lstat(self.path)
        except OSError as error:
            return error.errno not in MISSING_ERRNOS
        return found.st_ino == self.inode and found.st_dev == self.device

    def is_intact(self) -> bool:
        """Return True if the file is open, and its path leads to it."""
        return self.links() > 0 and self.is_found()

    def close(self) -> None:
        """Close the descriptor, unless it belongs to another file now."""
        ours = self.fd >= 0 and (self.inode < 0 or self.links() >= 0)
        fd, self.fd, self.inode = self.fd, -1, -1
        if ours:
            os.close(fd)

    def remove(self) -> None:
        """Unlink the file if its path leads to it, and close it."""
        if self.fd >= 0 and self.is_found():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self.close()


class NotOurs(StoreError):
    """The file at a path was not created by interlock; it was not changed."""


class Sharing(NamedTuple):
    """The users who may use a folder.

    Attributes:
        mode: the permission bits of the folder; its subfolders have the same.
        owner, group: the owner and group of the folder.
    """

    mode: int
    owner: int
    group: int

    @property
    def file_mode(self) -> int:
        """The permission bits of the files in the folder.

        A user who may write to the folder may read and write its files.  Others may not even read them: a reader
        could take an OS lock and block all users.
        """
        return 0o600 | (0o060 if self.mode & 0o020 else 0) | (0o006 if self.mode & 0o002 else 0)

    def trusts(self, owner: int) -> bool:
        """Return True if files of a user may be used: of every user if others may write."""
        return bool(self.mode & 0o022) or owner in (os.geteuid(), 0, self.owner)


def sharing_of(found: os.stat_result) -> Sharing:
    """Return the users who may use a folder."""
    return Sharing(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def kind_of(mode: int) -> str:
    """Return the kind of a file, as text, by its mode."""
    return _FILE_KINDS.get(stat.S_IFMT(mode), "a file")


# -- files --------------------------------------------------------------------------------------------------


def open_file(folder: str | Path, name: str, sharing: Sharing, create: bool = True) -> int:
    """Open a regular file that interlock may have created.

    Args:
        folder: the folder; not through a symbolic link.
        name: the name of the file in it.
        sharing: the users who may use the folder.
        create: True to open it for writing too, and to create it if it does not exist.

    Returns:
        A descriptor.

    Raises:
        NotOurs: another kind of file is there, or one of a user who is not trusted.
        OSError: the file cannot be opened; FileNotFoundError if it does not exist and `create` is False.
    """
    fd = -1
    try:
        with opened(folder) as at:
            for _ in range(OPEN_ATTEMPTS):
                fd = _open_at(at, name, sharing, create)
                if fd >= 0:
                    break
    except NotOurs as error:
        raise NotOurs(
            f"{os.fspath(folder)}/{name} {error}, so interlock did not create it. Inspect the file, and remove it. "
            f"Nothing was changed."
        ) from None
    except OSError as error:
        error.filename = f"{os.fspath(folder)}/{name}"
        raise
    except BaseException:
        if fd >= 0:
            os.close(fd)
        raise
    if fd < 0:
        raise StoreError(f"{os.fspath(folder)}/{name} appears and disappears repeatedly. Find the cause.")
    return fd


def descriptor(path: str | Path, flags: int, mode: int = 0o777, at: int | None = None) -> int:
    """Open a file, and return its descriptor so that no interrupt can lose it.

    An interrupt can come after a call and before the assignment of its result.  It can't come between the system call
    and the assignment in this function, or between its return and an assignment.  So assign the result, and begin a
    `try` in the next line.

    Args:
        path, flags, mode: as for `os.open`.
        at: the folder of a relative path.
    """
    (fd,) = map(partial(os.open, dir_fd=at), (path,), (flags,), (mode,))
    return fd


def _open_at(at: int, name: str, sharing: Sharing, create: bool) -> int:
    """Return a descriptor, or -1 to try again."""
    access = FLAGS | (os.O_RDWR if create else os.O_RDONLY)
    try:
        fd = -1
        if create:  # try to create it first, because most names are new
            try:  # not `suppress`, because an interrupt may come at its end
                fd = descriptor(name, access | os.O_CREAT | os.O_EXCL, sharing.file_mode, at)
            except (FileExistsError, PermissionError):
                pass
        if fd < 0:
            fd = descriptor(name, access, at=at)
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
            raise NotOurs(f"is {kind_of(found.st_mode)}") from None
        if error.errno == errno.EACCES and not found.st_size and clock.time_of_day() - found.st_mtime < 1:
            time.sleep(0.001)  # the process that created it is about to set its mode
            return -1
        raise
    try:
        _settle(fd, sharing)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _settle(fd: int, sharing: Sharing) -> None:
    """Check that interlock may have created an open file; set its mode if it is ours."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(f"is {kind_of(found.st_mode)}")
    if found.st_size > MOST_BYTES:
        raise NotOurs(f"is {found.st_size} bytes long")
    if not sharing.trusts(found.st_uid):
        raise NotOurs(f"belongs to user {found.st_uid}")
    if not found.st_size and found.st_nlink > 1:
        raise NotOurs("is empty and has a second name")
    if found.st_uid == os.geteuid() and found.st_nlink == 1:
        mode = stat.S_IMODE(found.st_mode)
        if not found.st_size:  # new, or the process that created it was killed before it set the mode
            settle(fd, found, sharing.file_mode, sharing)
        elif mode & ~sharing.file_mode:  # never give others a file with content, which may have been moved here
            os.fchmod(fd, mode & sharing.file_mode)


def settle(fd: int, found: os.stat_result, mode: int, sharing: Sharing) -> None:
    """Give a new file or folder its mode, owner and group."""
    try:
        if found.st_uid == 0 != sharing.owner:
            os.fchown(fd, sharing.owner, sharing.group)  # because a file of root would exclude the folder's owner
        elif sharing.mode & 0o022 and found.st_gid != sharing.group:
            with contextlib.suppress(PermissionError):  # not a member: a user who cannot open the file gets an error
                os.fchown(fd, -1, sharing.group)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a user namespace (rootless podman) has no number for the owner
            raise
    if stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(fd, mode)


def read_file(folder: str | Path, name: str, sharing: Sharing, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file, up to `most` bytes.

    Raises:
        NotOurs: interlock did not create the file; see `open_file`.
        OSError: the file cannot be read; FileNotFoundError if it does not exist.
    """
    with open(open_file(folder, name, sharing, create=False), "rb", 0) as file:
        return file.read(min(most, os.fstat(file.fileno()).st_size))


def opener(path: str, flags: int) -> int:
    """Open a file, not through a symbolic link, for `open`; a new one is this user's alone."""
    return os.open(path, flags | FLAGS, 0o600)


def put(fd: int, data: bytes, at: int) -> None:
    """Write all of `data` at offset `at`, or raise OSError."""
    if os.pwrite(fd, data, at) != len(data):
        raise OSError(errno.ENOSPC, "only a part was written")


# -- folders ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[int]:
    """Open a folder for a `with` block, not through a symbolic link."""
    fd = descriptor(path, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def make_folder(path: Path, mode: int, sharing: Sharing | None = None) -> None:
    """Create a folder, which appears only with its mode; do nothing if it exists."""
    temporary = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
    os.mkdir(temporary, 0o700)
    try:
        with opened(temporary) as fd:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or os.listdir(fd):
                raise OSError(errno.EPERM, "another program replaced it during its creation", os.fspath(path))
            settle(fd, found, mode, sharing or sharing_of(found))
        os.rename(temporary, path)
    except OSError as error:
        os.rmdir(temporary)
        if error.errno != errno.ENOTEMPTY and not os.path.isdir(path):  # otherwise another process was faster
            raise error
