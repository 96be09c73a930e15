"""The folder of a file store: what lies where, and whether it is fit to keep locks.

interlock      the marker: what this folder is, and of which boot and clock of which machine
fences         a number: no fence of a name whose file was removed was higher
lines/NAME     who uses NAME and who waits for it; whoever writes holds flock on this file, the guard
alive/         liveness pipes and wake-up pipes of the processes
kept/NAME      what the completed run of NAME has left, for who comes while its record is kept
broken/        line files that could not be read, kept for people to look at
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.files.machine import file_system, is_guest, is_network, join_marker
from interlock.stores.files.opening import (
    NotOurs,
    OpenFile,
    Section,
    Sharing,
    failed,
    make_folder,
    open_file,
    open_folder,
    put,
    read_file,
    sharing_of,
)
from interlock.stores.files.slots import MOST_NUMBER

MOST_FENCES = 32  # bytes
SPINS = 200
TRIES = 50
give_turn = getattr(os, "sched_yield", lambda: None)


class Folder:
    """One folder that is ready to keep locks.

    Args:
        path: an absolute path; made if it is not there.
        mode: the permission bits that it is to have; None for those that it has, or 0o700 if it is made.
        allow: a type of file system that the user vouches for, like "virtiofs".

    Raises:
        StoreError: it can't be made or written, or its file system keeps no locks; the message says what to do.
    """

    def __init__(self, path: str, mode: int | None = None, allow: str = "") -> None:
        if "\0" in path:
            raise InvalidArgument("the folder of file:// must not contain a NUL character")
        if not os.path.isabs(path):
            raise InvalidArgument(f"file:// needs an absolute folder, not {path!r}: write file:///var/lib/app/locks")
        self.path = Path(path)
        self.lines = self.path / "lines"
        self.alive = self.path / "alive"
        self.broken = self.path / "broken"
        self.kept = self.path / "kept"
        self.allowed = allow
        self._mode = mode
        self._marker = self._fences = OpenFile(self.path)
        self._real = path
        self.sharing: Sharing
        self.inodes = (0, 0, 0)  # of its device, of itself, and of its marker
        self.start_afresh()
        self.join(wait=True)

    def start_afresh(self) -> None:
        """In a forked child: no thread joins the folder just now, and an OS lock is its own."""
        self._fences.close()
        self._section = Section()

    def join(self, *, wait: bool) -> None:
        """Make what is missing, lock the marker together with all who use the folder, and see that OS locks work.

        Raises:
            StoreError: the folder can't keep locks.
        """
        path = self.path
        try:
            for left in reversed(range(TRIES)):
                try:
                    marker = self._joined(wait)
                    break
                except FileNotFoundError:  # something was removed meanwhile
                    if not left:
                        raise
        except FileNotFoundError as error:
            raise failed(f"{path} is removed all the time: find out who does it", error) from error
        except PermissionError as error:
            raise StoreError(f"{path} can't be written by this user: {error}; choose another folder") from error
        except NotADirectoryError as error:
            raise StoreError(f"{path} is not a folder: {error}; choose another one") from error
        except FileExistsError as error:
            raise StoreError(f"{error.filename} is a file where a folder is needed; choose another place") from error
        except OSError as error:
            raise failed(f"{path} can't keep locks (choose a folder on a local disk)", error) from error
        old, self._marker = self._marker, marker
        if old is not marker:
            old.close()
            self._fences.close()

    def _joined(self, wait: bool) -> OpenFile:
        """Return a descriptor of the marker, locked; all is found out before anything is changed here."""
        sharing = self._made()
        joined = self._marker.is_intact() and sharing == self.sharing
        if not joined:
            self._refuse_file_system()
        for room in (self.lines, self.alive):
            self._see_to(room, sharing)
        if joined:  # only a subfolder was missing: what takes longer here leaves time to remove it again
            return self._marker
        real = os.path.realpath(self.path)
        marker = join_marker(self.path, sharing, wait=wait)
        try:
            found = os.stat(self.path)
        except BaseException:
            marker.close()
            raise
        self.sharing, self._real = sharing, real
        self.inodes = found.st_dev, found.st_ino, marker.inode
        return marker

    def _made(self) -> Sharing:
        """Make the folder if it is not there; return who may use it."""
        if not os.path.isdir(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            make_folder(self.path, 0o700 if self._mode is None else self._mode)
        found = os.stat(self.path)
        has = stat.S_IMODE(found.st_mode)
        if self._mode is not None and (has ^ self._mode) & 0o1777:
            raise StoreError(
                f"{self.path} has the mode {has:o}, not {self._mode:o} as the URL says: change it, and that of the "
                f"files in it (chmod), or leave ?mode out of the URL"
            )
        return sharing_of(found)

    def _see_to(self, room: Path, sharing: Sharing) -> None:
        """Make a subfolder, or see that the one that is there can be used by all who may use the folder."""
        if not os.path.lexists(room):
            make_folder(room, sharing.mode, sharing)
        keeps_out = StoreError(f"{room} keeps out some who may use {self.path}: chmod {sharing.mode:o} {room}")
        try:
            fd = open_folder(room)
        except PermissionError as error:
            raise keeps_out from error
        try:
            found = os.fstat(fd)
            if not sharing.trusts(found.st_uid):
                raise NotOurs(f"{room} belongs to user {found.st_uid}; look at it, and remove it")
            missing = sharing.mode & ~found.st_mode & 0o777
            if found.st_uid == os.geteuid():
                if stat.S_IMODE(found.st_mode) != sharing.mode:
                    os.fchmod(fd, sharing.mode)
            elif missing and os.geteuid():
                raise keeps_out
        finally:
            os.close(fd)

    def _refuse_file_system(self) -> None:
        kind = file_system(self.path)
        if is_network(kind):
            raise StoreError(
                f"{self.path} lies on a network file system ({kind}): file:// is for the processes of one machine; "
                f"choose a local folder, or a store that reaches several machines"
            )
        if is_guest(kind) and kind != self.allowed:
            raise StoreError(
                f"{self.path} lies on a file system ({kind}) that others than this machine may reach, without seeing "
                f"its locks; choose a local folder, or write file://{self.path}?allow={kind} if nobody else uses it"
            )

    def stay(self) -> None:
        """Join again if the folder or its marker was removed or replaced: what others do there, they do anew.

        Raises:
            MarkerTaken: not now, somebody has the new marker locked exclusively.
            StoreError: it can't keep locks any more.
        """
        if not self._marker.is_intact():
            with self._section.entered():
                if not self._marker.is_intact():
                    self.join(wait=False)

    def mend(self) -> None:
        """Make again what is missing in it: tmp cleaners remove subfolders that are empty.

        Raises:
            MarkerTaken, StoreError: as for `stay`.
        """
        with self._section.entered():
            self.join(wait=False)

    def open_line(self, name: str) -> int:
        """Open the file of a line, made if it is not there, as its folder is.

        Raises:
            StoreError, OSError: it can't be opened.
        """
        try:
            return open_file(self.lines, name, self.sharing)
        except FileNotFoundError:
            self.mend()
            return open_file(self.lines, name, self.sharing)

    def leave(self) -> None:
        """Give the marker's lock back."""
        with self._section.entered():
            self._marker.close()
            self._fences.close()

    def put_aside(self, name: str, content: bytes) -> None:
        """Keep what was found in the place of a line for people to look at."""
        self._see_to(self.broken, self.sharing)
        at = open_folder(self.broken)
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=at)
        finally:
            os.close(at)
        try:
            put(fd, content, 0)
        finally:
            os.close(fd)

    # -- values of completed runs -----------------------------------------------------------------------

    def keep_value(self, name: str, content: bytes) -> None:
        """Keep the value of a name, whole or not at all; under the guard of its line."""
        self._see_to(self.kept, self.sharing)
        new = f"{name}~"
        self.drop_value(new)  # of a process that was killed
        fd = open_file(self.kept, new, self.sharing)
        try:
            put(fd, content, 0)
        finally:
            os.close(fd)
        os.replace(self.kept / new, self.kept / name)

    def value_of(self, name: str) -> bytes:
        """Return the value of a name; nothing if there is none."""
        try:
            return read_file(self.kept, name, self.sharing)
        except FileNotFoundError:
            return b""

    def drop_value(self, name: str) -> None:
        """Remove the value of a name, if there is one."""
        with contextlib.suppress(OSError):
            os.unlink(self.kept / name)

    # -- fences -----------------------------------------------------------------------------------------

    def floor(self) -> int:
        """Return the highest fence of any name whose file was removed.

        Raises:
            NotOurs: the record of fences is no such record.
            OSError: it can't be read.
        """
        with self._section.entered():
            try:
                return self._fence_in(os.pread(self._open_fences(create=False), MOST_FENCES, 0))
            except FileNotFoundError:
                return 0

    def raise_floor(self, fence: int) -> bool:
        """Remember `fence` before the file that shows it is removed.

        Returns:
            False if somebody else has the record locked for longer than that should take.

        Raises:
            NotOurs: the record of fences is no such record.
            OSError: it can't be written.
        """
        with self._section.entered():
            fd = self._open_fences(create=True)
            if not _lock_soon(fd):
                return False
            try:
                if fence > self._fence_in(os.pread(fd, MOST_FENCES, 0)):
                    put(fd, b"%020d\n" % fence, 0)
                return True
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def _open_fences(self, create: bool) -> int:
        if not self._fences.is_intact():
            self._fences.close()
            self._fences = OpenFile(
                f"{self._real}/fences", open_file(self._real, "fences", self.sharing, create=create)
            )
        return self._fences.fd

    def _fence_in(self, record: bytes) -> int:
        digits, end = record[:20], record[20:]
        fence = int(digits) if len(digits) == 20 and digits.isdigit() and end == b"\n" else -1
        if 0 <= fence <= MOST_NUMBER or not record:
            return max(0, fence)
        raise NotOurs(
            f"{self.path}/fences is no record of fences ({record[:24]!r}); look at it, and remove it: then fences "
            f"follow the time of day alone"
        )


def names_in(room: Path) -> list[str]:
    """Return the names in a subfolder; none if it was removed, which is mended when it is needed."""
    try:
        return sorted(os.listdir(room))
    except FileNotFoundError:
        return []


def _lock_soon(fd: int) -> bool:
    """Lock a file exclusively if that takes no longer than others need for a step."""
    for _ in range(SPINS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            give_turn()
    return False
