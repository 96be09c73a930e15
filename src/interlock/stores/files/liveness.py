"""Liveness files (alive/): which processes live.

Each process has one *liveness file* that it keeps open and locked as long as it lives: on POSIX systems a named pipe.
The OS lock proves that the process lives: the system releases it at the death of the process.

Other processes find it by its name.  If the name was removed (a tmp cleaner, `rm alive/*`) or its descriptor was
closed, others take the process for dead.  The process notices this, makes another file under a new token, and has
lost the claims that it made under the old one.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from interlock.core.errors import StoreError
from interlock.runtime import log
from interlock.runtime.process import pid
from interlock.storekit.blocking import Section
from interlock.stores.files.open_file import MISSING_ERRNOS, LivenessFile, OpenFile
from interlock.stores.files.opening import failed
from interlock.stores.files.system import system

MAX_OPEN_PIPES = 128
PIPE_ATTEMPTS = 50
SHARED_TRY = system.LOCK_SH | system.LOCK_NB
UNLOCK = system.LOCK_UN
flock = system.flock


class Liveness:
    """The liveness file of this process, and other processes' files.

    The first `keep` makes the liveness pipe; before that, it can only ask about other processes.

    Args:
        folder: the folder alive/.
        repair: creates the folder again if it was removed.

    Attributes:
        token: the name of the liveness pipe; "" before there is one.
        closed: True if it makes no more pipes.
        others: the open files of other processes, by name.
        section: the caller that opens or closes one of them is in it.
    """

    def __init__(self, folder: Path, repair: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._repair = repair
        self.section = Section()
        self._own: LivenessFile | None = None
        self.token = ""
        self.closed = False
        self.others: dict[str, OpenFile] = {}

    # -- the own liveness pipe ---------------------------------------------------------------------------------

    def keep(self) -> bool:
        """Check that others find the liveness pipe; otherwise create one with a new token.

        The claims under the old token are then lost: for others its process is dead.

        Returns:
            False if the liveness pipe was lost: the caller must wake all waiters, so that they enter again.

        Raises:
            StoreError: no liveness pipe could be created; the message gives the next step.
        """
        if self._is_kept():
            return True
        with self.section.entered():
            if self.closed or self._is_kept():
                return True
            old = self.token
            self._make_own()
        if old:
            log.warn(
                "The liveness pipe %s was removed from %s, so this process has lost its locks there. Exclude the "
                "folder from cleaners.",
                old,
                self._folder,
            )
        return not old

    def _is_kept(self) -> bool:
        return self._own is not None and self._own.is_intact()

    def _make_own(self) -> None:
        """Create a liveness pipe; if that fails, the old one stays in use."""
        for _ in range(PIPE_ATTEMPTS):
            made = system.new_liveness(self._folder, f"{pid()}-{os.urandom(6).hex()}")
            try:
                try:
                    made.make()
                    before, self._own, self.token = self._own, made, made.token
                except BaseException:
                    system.remove(made)
                    raise
            except (FileNotFoundError, BlockingIOError):
                # A process that sweeps locked or removed it before this one locked it; that is rare, so try again.
                self._repair()
                continue
            except OSError as error:
                raise failed(f"Cannot create a liveness pipe in {self._folder}", error) from error
            if before is not None:
                before.close()
            return
        raise StoreError(
            f"Cannot create a liveness pipe in {self._folder}: the folder is removed or cleaned repeatedly. Exclude "
            f"the folder from cleaners, and connect again."
        )

    # -- the others -------------------------------------------------------------------------------------

    def is_alive(self, token: str) -> bool:
        """Return True if the process of a liveness file lives, or its file is inaccessible."""
        if token == self.token:
            return True
        with self.section.entered():  # no other thread closes the file in between
            try:
                file = self.open(token, system.open_liveness)
                flock(file.fd, SHARED_TRY)
            except BlockingIOError:
                # A file that was removed from alive/ does not count: other processes take its owner for dead.
                return file.links() > 0
            except OSError as error:
                return error.errno not in (*MISSING_ERRNOS, errno.ENXIO, errno.ELOOP)
            flock(file.fd, UNLOCK)
            self._forget(token)
            return False

    def open(self, name: str, opened_by: Callable[[OpenFile], None]) -> OpenFile:
        """Return another process's file, and keep it open; call it within the section."""
        file = self.others.get(name)
        if file is None or file.links() < 1:  # removed: its name or descriptor may be another file's now
            self._forget(name)
            if len(self.others) >= MAX_OPEN_PIPES:
                self._forget(next(iter(self.others)))
            file = self.others[name] = OpenFile(self._folder / name)
            try:
                opened_by(file)
            except BaseException:
                self._forget(name)
                raise
        return file

    def _forget(self, name: str) -> None:
        pipe = self.others.get(name)
        if pipe is not None:
            pipe.close()
            del self.others[name]

    def sweep(self) -> None:
        """Remove the files of dead processes from alive/."""
        seen: dict[str, bool] = {}

        def is_dead(name: str) -> bool:
            token = name.lstrip(".").partition(".")[0]
            if token not in seen:
                seen[token] = self.is_alive(token) or (name.startswith(".") and self.is_alive(name))
            return not seen[token]

        system.clean(self._folder, is_dead)

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove the liveness file, which ends all claims."""
        with self.section.entered():
            self.closed = True
            if self._own is not None:
                system.remove(self._own)
            self.close_others()

    def forget(self) -> None:
        """Close the files in a forked child without removing them: the parent uses them."""
        self.section = Section()  # a thread of the parent may have been in the old one during the fork
        self.closed = True
        if self._own is not None:
            self._own.close()
        self.close_others()

    def close_others(self) -> None:
        """Close the open files of other processes."""
        for name in list(self.others):
            self._forget(name)
