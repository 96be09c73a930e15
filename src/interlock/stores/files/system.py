"""The operating system, as the store sees it: `_posix` or `_windows`, chosen here, which have the same names."""

import os
import sys
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Protocol

from interlock.stores.files.open_file import LivenessFile, Mount, OpenFile, Sharing

if sys.platform == "win32":
    from interlock.core.errors import StoreError

    raise StoreError(
        "file://, the default store, needs a POSIX system for its locks and named pipes. Pass the URL of a server, "
        "or memory://, or set INTERLOCK_URL."
    )
else:
    from interlock.stores.files import _posix as chosen


class System(Protocol):
    """The names that `_posix` and `_windows` share.

    Attributes:
        HAS_PIPES: True if named pipes notify waiters (`pipes`), False for the loopback interface (`loopback`).
        EXAMPLE: the path of a folder, for messages.
        LOCAL: types of file systems that only this machine reaches.
        ADVICE: what to do about an error, by its number; more than `opening` knows.
        LOCK_EX, LOCK_SH, LOCK_NB, LOCK_UN: flags of `flock`, as in flock(2).
        flock: lock or unlock a descriptor; raises BlockingIOError if another descriptor has the lock.
        pread, pwrite: read and write at an offset; the offset of the descriptor stays.
        replace: rename a file over another.
        give_turn: let other processes run.
        take: open the file at a path for reading.
        opener: an opener for `open`: not through a link.
        open_in: open a regular file in a folder; see `opening.open_file`.
        settle: give a new file or folder its mode, owner and group.
        trusts: return True if files of a user may be used.
        may_use: return True if this user has rights; see `os.access`.
        hide_reads: let reads not update the access time.
        remove: remove an open file if its path leads to it, and close it.
        remove_empty: the same for an empty file that other processes may be opening.
        max_open_files: the limit of open files; -1 without one.
        make_folder: create a folder that appears only with its mode.
        check_folder: check that all users of a folder can use its subfolder.
        mode_in: parse the option of the permission bits of a folder.
        folder_path: check the path of a folder, and return it as the store uses it.
        path_in_url: the path that the path of a URL means.
        database_url: the URL by which SQLite opens a file.
        default_folder: the default folder of this user.
        boot_id: the boot or the machine, as the marker of a folder records it.
        restart_id: the boot, where nothing but a restart changes it.
        time_namespace: the clock of this process, where several exist.
        mount_of: the mount that a path is on.
        is_running: True if a process is known to run.
        new_liveness: the liveness file of this process, not made yet; from the folder and a token.
        open_liveness: open the liveness file of another process.
        clean: remove the files of dead processes from a folder.
    """

    HAS_PIPES: bool
    EXAMPLE: str
    LOCAL: Set[str]
    ADVICE: Mapping[int, str]
    LOCK_EX: int
    LOCK_SH: int
    LOCK_NB: int
    LOCK_UN: int

    def flock(self, fd: int, operation: int, /) -> None: ...
    def pread(self, fd: int, length: int, offset: int, /) -> bytes: ...
    def pwrite(self, fd: int, data: bytes, offset: int, /) -> int: ...
    def replace(self, src: str | Path, dst: str | Path) -> None: ...
    def give_turn(self) -> object: ...
    def take(self, file: OpenFile) -> None: ...
    def opener(self, path: str, flags: int) -> int: ...
    def open_in(self, folder: str | Path, name: str, sharing: Sharing, create: bool) -> int: ...
    def settle(self, fd: int, found: os.stat_result, mode: int, sharing: Sharing) -> None: ...
    def trusts(self, sharing: Sharing, owner: int) -> bool: ...
    def may_use(self, path: str | Path, mode: int) -> bool: ...
    def hide_reads(self, fd: int) -> None: ...
    def remove(self, file: OpenFile) -> None: ...
    def remove_empty(self, file: OpenFile) -> None: ...
    def max_open_files(self) -> int: ...
    def make_folder(self, path: Path, mode: int, sharing: Sharing | None = None) -> None: ...
    def check_folder(self, room: Path, sharing: Sharing) -> None: ...
    def mode_in(self, name: str, text: str) -> int: ...
    def folder_path(self, path: str) -> str: ...
    def path_in_url(self, path: str) -> str: ...
    def database_url(self, path: str) -> str: ...
    def default_folder(self) -> str: ...
    def boot_id(self) -> str: ...
    def restart_id(self) -> str: ...
    def time_namespace(self) -> str: ...
    def mount_of(self, path: str | Path) -> Mount: ...
    def is_running(self, pid: str) -> bool: ...
    def new_liveness(self, folder: Path, token: str) -> LivenessFile: ...
    def open_liveness(self, file: OpenFile) -> None: ...
    def clean(self, folder: Path, is_dead: Callable[[str], bool]) -> None: ...


system: System = chosen
