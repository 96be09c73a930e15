"""An open file, and the users of its folder; the parts of the store that every system shares."""

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple

from interlock.core.errors import StoreError

MOST_BYTES = 16 << 20  # a line of 32,000 claims; a longer file is refused
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

    def identify(self) -> os.stat_result:
        """Record the identity of the opened file, and return its attributes; before, `close` closes the number."""
        found = os.fstat(self.fd)
        self.device, self.inode = found.st_dev, found.st_ino
        return found

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


class LivenessFile(OpenFile):
    """The liveness file of this process, and what ends with it.

    Attributes:
        token: the name under which others find it, after `make`.
    """

    __slots__ = ("token",)
    token: str

    def make(self) -> None:
        """Create the file, and lock it for life; the caller removes it if this raises.

        Raises:
            FileNotFoundError, BlockingIOError: another process locked or removed it before; try another token.
            OSError: it can't be created.
        """
        raise NotImplementedError


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


def sharing_of(found: os.stat_result) -> Sharing:
    """Return the users who may use a folder."""
    return Sharing(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def kind_of(mode: int) -> str:
    """Return the kind of a file, as text, by its mode."""
    return _FILE_KINDS.get(stat.S_IFMT(mode), "a file")


class Mount(NamedTuple):
    """A mounted file system, see proc_pid_mountinfo(5).

    Attributes:
        point: the path at which it is mounted.
        root: the path within it that is visible there.
        kind: its type.
    """

    point: str
    root: str
    kind: str
