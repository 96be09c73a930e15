"""The folder of a file store: its layout, and the checks of its suitability.

interlock      the marker: the format, and the boot and clock of the machine whose processes use the folder
lines/NAME     the holders and waiters of NAME; a writer holds flock on this file, the guard
alive/         liveness pipes and wake-up pipes of the processes
kept/NAME      the value of a completed run of NAME, as long as its record is kept
"""

import contextlib
import os
import stat
from pathlib import Path

from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.machine import refuse_file_system
from interlock.stores.files.open_file import NotOurs, Sharing
from interlock.stores.files.opening import failing, open_file, put, read_file
from interlock.stores.files.system import system

boot_id = system.boot_id

FOLDER_ATTEMPTS = 50
NAME = "interlock"
FOLDER_MAGIC = b"interlock files "
MARKER_SIZE = 400  # bytes of the marker


class Folder:
    """A folder that is ready to keep locks.

    Args:
        path: an absolute path; created if it does not exist.
        mode: the required permission bits; None accepts those of the folder, and creates it with 0o700.
        allow: a type of file system, such as "virtiofs", that the user allows because no other machine uses it.

    Raises:
        StoreError: the folder cannot be created or written, or its file system is unsuitable; the message gives the
            next step.
    """

    def __init__(self, path: str, mode: int | None = None, allow: str = "") -> None:
        if "\0" in path:
            raise InvalidArgument("The folder of file:// must not contain a NUL character.")
        self.path = Path(system.folder_path(path))
        self.lines = self.path / "lines"
        self.alive = self.path / "alive"
        self.kept = self.path / "kept"
        self._mode = mode
        self._allowed = allow
        self._marker_path = os.path.join(self.path, NAME)
        self._marker: tuple[int, ...] = ()
        self.sharing: Sharing
        self.repair()

    def repair(self) -> None:
        """Create missing parts, and check that this process can share the folder.

        Tmp cleaners remove empty subfolders.

        Raises:
            StoreError: the folder is unsuitable for locks.
        """
        with failing(f"{self.path} cannot keep locks (choose another folder, on a local disk)"):
            for _ in range(FOLDER_ATTEMPTS):
                with contextlib.suppress(FileNotFoundError):  # another program removed a part in between
                    return self._make()
        raise StoreError(f"{self.path} is removed repeatedly. Find the program that removes it.")

    def _make(self) -> None:
        """Try `repair` once; no attribute changes before all checks have passed."""
        if not os.path.isdir(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            system.make_folder(self.path, 0o700 if self._mode is None else self._mode)
        sharing = system.sharing_of(os.stat(self.path))
        if self._mode is not None and (sharing.mode ^ self._mode) & 0o1777:
            raise StoreError(
                f"{self.path} has mode {sharing.mode:o}, but the URL requires {self._mode:o}. Change the mode of the "
                f"folder and its files (chmod), or omit ?mode in the URL."
            )
        refuse_file_system(self.path, self._allowed, f"file://{self.path}")
        for room in (self.lines, self.alive):
            self._see_to(room, sharing)
        self._mark(sharing)
        self._marker = self._found_marker()
        self.sharing = sharing

    def _mark(self, sharing: Sharing) -> None:
        """Write machine, boot and clock into the marker, unless others use the folder.

        A process that has joined never changes it: if other machines reach the folder, but not its locks, one of the
        machines notices the other.
        """
        here = FOLDER_MAGIC + f"3\nboot={boot_id()}\nclock={system.time_namespace()}\n".encode()
        with open(open_file(system.resolved(self.path), NAME, sharing), "r+b", 0) as marker:
            found = marker.read(MARKER_SIZE)
            if found and not found.startswith(FOLDER_MAGIC):
                raise NotOurs(
                    f"{self.path}/{NAME} was not created by interlock. Use another folder, or inspect and remove it."
                )
            if found and found != here and (self._marker or self._is_in_use()):
                raise StoreError(
                    f"{self.path} is used by another machine, boot, time namespace or version of interlock, whose "
                    f"processes or leases are invisible here. End them, or use another folder (found "
                    f"{found[len(FOLDER_MAGIC) :].split()}, not {here[len(FOLDER_MAGIC) :].split()})."
                )
            if found != here:
                put(marker.fileno(), here, 0)
                marker.truncate(len(here))

    def _found_marker(self) -> tuple[int, ...]:
        """Return the attributes that change when the marker is written or replaced."""
        found = os.stat(self._marker_path)
        return found.st_ino, found.st_dev, found.st_mtime_ns

    def _is_in_use(self) -> bool:
        """Return True if a process with claims in this folder lives."""
        with contextlib.closing(Liveness(self.alive)) as others:
            return any(others.is_alive(name) for name in names_in(self.alive))

    def _see_to(self, room: Path, sharing: Sharing) -> None:
        """Create a subfolder, or check that all users of the folder can use the existing one."""
        if not os.path.lexists(room):
            system.make_folder(room, sharing.mode, sharing)
        system.check_folder(room, sharing)

    def stay(self) -> None:
        """Join again if the folder or its marker was removed or replaced.

        Raises:
            StoreError: the folder is no longer suitable for locks.
        """
        with contextlib.suppress(OSError):  # `repair` creates it again, or reports the problem
            if self._found_marker() == self._marker:
                return
        self.repair()

    # -- values of completed runs -----------------------------------------------------------------------

    def keep_value(self, name: str, done: int, value: str) -> None:
        """Write the value of a completed run, before its record is written.

        The caller has the guard of the line.  Replace a file that others may have put there, and do not write to it.
        In a sticky folder only the owner may replace a file.
        """
        self._see_to(self.kept, self.sharing)
        sticky = self.sharing.mode & stat.S_ISVTX
        new = name if sticky else f"{name}~"
        if not sticky:
            self.drop_value(new)  # left by a killed process
        with open(open_file(self.kept, new, self.sharing), "r+b", 0) as file:
            found = file.read(MARKER_SIZE).partition(b" ")[0]
            if os.fstat(file.fileno()).st_nlink != 1 or (found and not found.isdigit()):
                raise NotOurs(
                    f"{self.kept / new} is not a record of a run, or has another name (a hard link). Inspect "
                    f"the file, and remove it. Nothing was changed."
                )
            data = b"%d %b" % (done, value.encode())
            put(file.fileno(), data, 0)
            file.truncate(len(data))
        if not sticky:
            system.replace(self.kept / new, self.kept / name)

    def value_kept(self, name: str, done: int) -> str | None:
        """Return the value of the completed run whose record ends at `done`; None if a power failure lost it."""
        try:
            end, _, value = read_file(self.kept, name, self.sharing).partition(b" ")
        except FileNotFoundError:
            return None
        return value.decode(errors="replace") if end == b"%d" % done else None

    def drop_value(self, name: str) -> None:
        """Remove the value of a name, if there is one."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.kept, name))


def names_in(room: Path) -> list[str]:
    """Return the names in a subfolder; none if it was removed: the next user creates it again."""
    try:
        return sorted(os.listdir(room))
    except FileNotFoundError:
        return []
