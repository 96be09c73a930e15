"""The operating system, as the store sees it: `_posix` or `_windows`, chosen here, which have the same names."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Protocol

from interlock.stores.files.open_file import LivenessFile, Mount, OpenFile, Sharing

if sys.platform == "win32":
    from interlock.stores.files import _windows as chosen
else:
    from interlock.stores.files import _posix as chosen


class System(Protocol):
    """The names that `_posix` and `_windows` share.

    Attributes:
        HAS_PIPES: True if named pipes notify waiters (`pipes`), False for the loopback interface (`loopback`).
        EXAMPLE: the path of a folder, for messages.
        DATABASE_SLASHES: how the absolute path of a SQLite file begins in a URL, for messages.
        FOR_SEVERAL: a store that several machines can use, for messages.
        SHORT_NAME: matches names that are their own file names.
        LOCAL: types of file systems that only this machine reaches.
        ADVICE: what to do about an error, by its number; more than `opening` knows.
        LOCK_EX, LOCK_SH, LOCK_NB, LOCK_UN: flags of `flock`, as in flock(2).
    """

    HAS_PIPES: bool
    EXAMPLE: str
    DATABASE_SLASHES: str
    FOR_SEVERAL: str
    SHORT_NAME: re.Pattern[str]
    LOCAL: Set[str]
    ADVICE: Mapping[int, str]
    LOCK_EX: int
    LOCK_SH: int
    LOCK_NB: int
    LOCK_UN: int

    def flock(self, fd: int, operation: int, /) -> None:
        """Lock or unlock a descriptor; raise BlockingIOError if another descriptor has the lock."""

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        """Read at an offset."""

    def pwrite(self, fd: int, data: bytes, offset: int, /) -> int:
        """Write at an offset; return the number of written bytes."""

    def mark(self, fd: int) -> int:
        """Give a descriptor a mark, which another file at the same descriptor does not have."""

    def is_marked(self, fd: int, mark: int) -> bool:
        """Return True if a descriptor has its mark."""

    def replace(self, src: str | Path, dst: str | Path) -> None:
        """Rename a file over another."""

    def give_turn(self) -> object:
        """Let other processes run."""

    def take(self, file: OpenFile) -> None:
        """Open the file at a path for reading."""

    def opener(self, path: str, flags: int) -> int:
        """Return an opener for `open`: not through a link."""

    def open_in(self, folder: str | Path, name: str, sharing: Sharing, create: bool) -> int:
        """Open a regular file in a folder; see `opening.open_file`."""

    def sharing_of(self, found: os.stat_result) -> Sharing:
        """Return the users who may use a folder."""

    def settle(self, fd: int, found: os.stat_result, mode: int, sharing: Sharing) -> None:
        """Give a new file or folder its mode, owner and group."""

    def trusts(self, sharing: Sharing, owner: int) -> bool:
        """Return True if files of a user may be used."""

    def may_use(self, path: str | Path, mode: int) -> bool:
        """Return True if this user has rights; see `os.access`."""

    def hide_reads(self, fd: int, found: os.stat_result) -> None:
        """Let reads not update the access time."""

    def remove(self, file: OpenFile) -> None:
        """Remove an open file if its path leads to it, and close it."""

    def remove_empty(self, file: OpenFile) -> None:
        """Remove an open file, which is empty, unless another process opens it."""

    def max_open_files(self) -> int:
        """Return the limit of open files; -1 without one."""

    def make_folder(self, path: Path, mode: int, sharing: Sharing | None = None) -> None:
        """Create a folder that appears only with its mode."""

    def check_folder(self, room: Path, sharing: Sharing) -> None:
        """Check that all users of a folder can use its subfolder."""

    def mode_in(self, name: str, text: str) -> int:
        """Parse the option of the permission bits of a folder."""

    def folder_path(self, path: str) -> str:
        """Check the path of a folder, and return it as the store uses it."""

    def resolved(self, path: Path) -> str:
        """Return the path of a folder without links, where `open_in` opens nothing in a link."""

    def path_in_url(self, path: str) -> str:
        """Return the path that the path of a URL means."""

    def folder_meant(self, path: str) -> str:
        """Return the URL that a path without its first slash probably means."""

    def readable_name(self, words: str) -> str:
        """Return the readable part of a file name, as the system accepts it."""

    def database_url(self, path: str) -> str:
        """Return the URL by which SQLite opens a file."""

    def default_folder(self) -> str:
        """Return the default folder of this user."""

    def boot_id(self) -> str:
        """Return the boot or the machine, as the marker of a folder records it."""

    def restart_id(self) -> str:
        """Return the boot, where nothing but a restart changes it."""

    def time_namespace(self) -> str:
        """Return the clock of this process, where several exist."""

    def mount_of(self, path: str | Path) -> Mount:
        """Return the mount that a path is on."""

    def is_running(self, pid: str) -> bool:
        """True if a process is known to run."""

    def new_liveness(self, folder: Path, token: str) -> LivenessFile:
        """Return the liveness file of this process, not made yet; from the folder and a token."""

    def open_liveness(self, file: OpenFile) -> None:
        """Open the liveness file of another process."""

    def clean(self, folder: Path, is_dead: Callable[[str], bool]) -> None:
        """Remove the files of dead processes from a folder."""


system: System = chosen
