"""The shared folder: its layout, the check that it can keep locks, and its clock.

=NAMESPACE/=NAME/t.N.NONCE   the token: an empty file; its name is the present version of the name
=NAMESPACE/=NAME/d.N.NONCE   the line of that version
=NAMESPACE/.new-NONCE/       a name that is being created, which then gets its name by a rename

A listing can come from a cache of this client, which drops the listing of a folder when it writes into it.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from interlock.core.claims import SEPARATOR
from interlock.core.errors import StoreError
from interlock.core.failures import Denied, Unreachable
from interlock.runtime import clock
from interlock.stores.files.system import system as machine
from interlock.stores.share.system import System

PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
LONGEST_NAME = 140  # characters of a file's name; some file systems allow 143
READS_LISTINGS = machine.LOCAL | {"ceph", "fuse.glusterfs", "gpfs", "lustre", "nfs", "nfs4"}
"""File systems whose clients read a listing from the server, or revalidate it, each time that it is opened."""
FORBIDDEN = (errno.EACCES, errno.EROFS, errno.ENOTDIR)
OUTDATED, INCOMPLETE = "its listing shows no current version", "its lock data is incomplete"  # reasons to retry
FILE = re.compile(r"([tdp])\.([0-9]{1,18})\.([0-9a-f]{16})")
_ahead: dict[str, float] = {}
"""The seconds by which a server's clock is ahead of this machine's: one number for the process, since all of its
connections compare the leases of its claims."""


class Token(NamedTuple):
    """A version of a line.

    Attributes:
        number: one more than the number of the version before.
        nonce: a random number, so that no file gets the same name again.
    """

    number: int
    nonce: str


def encoded(text: str) -> str:
    """Return a text as a file name that no file system folds or normalizes."""
    name = "=" + "".join(chr(byte) if byte in PLAIN else f"%{byte:02x}" for byte in text.encode())
    return name if len(name) <= LONGEST_NAME else "~" + sha256(text.encode()).hexdigest()


def path_of(folder: str, kind: str, token: Token) -> str:
    """Return the path of the token ("t") or of the line ("d") of a version."""
    return os.path.join(folder, f"{kind}.{token.number}.{token.nonce}")


def unusable(where: str, error: OSError) -> StoreError:
    """Return the error of a failed call that has changed nothing."""
    text = f"{where} cannot be used: {error.strerror}."
    if error.errno in FORBIDDEN:
        return Denied(f"{text} Every user of the locks needs all rights in the folder (mode 2770, umask 007).")
    if error.strerror in (OUTDATED, INCOMPLETE):
        return Unreachable(f"{text} Retry; if it persists, run `interlock doctor`.")
    return Unreachable(f"{text} Check that the file system is mounted and its server reachable.")


class SharedFolder:
    """A shared folder.

    Args:
        path: the absolute path.
        system: performs the system calls.

    Attributes:
        path: the path.
        perform: performs a system call.
        kind: the type of the file system; "" before the first use.
    """

    def __init__(self, path: str, system: System) -> None:
        self.path = path
        self.perform = system.perform
        self.kind = ""
        self._mode = 0

    def prepare(self) -> None:
        """Check the folder at its first use.

        Raises:
            StoreError: it cannot keep locks; the message gives the next step.
        """
        if self.kind:
            return
        try:
            self._mode = stat.S_IMODE(self.perform(os.stat, self.path).st_mode)
            wrong = "" if self._mode & stat.S_ISVTX else self._probe()
            kind = machine.mount_of(self.path).kind
        except FileNotFoundError:
            raise Unreachable(
                f"{self.path} does not exist. Mount its file system, or create the folder once: mkdir -m 2770."
            ) from None
        except OSError as error:
            raise unusable(self.path, error) from error
        if self._mode & stat.S_ISVTX:
            raise Denied(
                f"{self.path} is sticky (mode {self._mode:o}), so users cannot rename the files of others. Give it "
                f"to one group: chgrp GROUP, chmod 2770, and umask 007 in all programs."
            )
        if wrong:
            raise Denied(
                f"{self.path} cannot keep locks of several machines: {wrong}, so it only emulates a file system. Use "
                f"another file system, or the URL of a server or a bucket."
            )
        self.kind = kind

    def _probe(self) -> str:
        """Read the clock; return what is wrong with links and renames, or "".

        File systems that only emulate files, such as mounts of buckets, have no hard links. On some of them one file
        can be created, or renamed, twice.

        Raises:
            OSError: the folder cannot be written.
        """
        first, second, third = (os.path.join(self.path, f".probe-{secrets.token_hex(8)}") for _ in range(3))
        try:
            sent = clock.awake_or_not()
            stamp = self.create(first)
            _ahead.setdefault("seconds", stamp - (sent + clock.awake_or_not()) / 2)
            if not self.does(os.link, first, second) or self.does(os.link, first, second):
                return "it has no hard links, or one name can be linked twice"
            real = self.does(os.rename, first, third) and not self.does(os.rename, first, second)
            return "" if real else "a file cannot be renamed, or can be renamed twice"
        finally:
            self.remove(first, second, third)

    def does(self, call: Callable[[str, str], None], old: str, new: str) -> bool:
        """Link or rename a file; return True if the server confirms it."""
        try:
            self.perform(call, old, new)
        except OSError:
            return False
        return True

    @property
    def is_cached(self) -> bool:
        """True if this client may show an old listing."""
        return self.kind not in READS_LISTINGS

    @property
    def ahead(self) -> float:
        """The seconds by which the server's clock is ahead of this machine's."""
        return _ahead["seconds"]

    def path_of(self, key: str) -> str:
        """Return the folder of a name."""
        namespace, _, name = key.partition(SEPARATOR)
        return os.path.join(self.path, encoded(namespace), encoded(name))

    def listing(self, folder: str) -> tuple[Token | None, list[tuple[str, Token]]]:
        """Return the token in a name's folder with the highest number, and kind and version of all files.

        Raises:
            OSError: the folder, or the whole shared folder, cannot be read.
        """
        names: list[str] = []
        try:
            names = self.perform(os.listdir, folder)
        except FileNotFoundError:
            self.perform(os.stat, self.path)
        files = [(found[1], Token(int(found[2]), found[3])) for found in map(FILE.fullmatch, names) if found]
        return max((token for kind, token in files if kind == "t"), default=None), files

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        with open(self.perform(os.open, path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            return self.perform(file.read)

    def create(self, path: str, data: bytes = b"") -> float:
        """Create a file, write it to the server's disk, and return the time with which it was stamped."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(self.perform(os.open, path, flags, 0o666), "wb") as file:
            stamped = os.fstat(file.fileno()).st_mtime
            if data:
                file.write(data)
                self.perform(file.flush)
                self.perform(os.fsync, file.fileno())
        return stamped

    def make(self, folder: str) -> None:
        """Create the folder of a name, and that of its namespace, with the rights of the shared folder."""
        for path in (os.path.dirname(folder.rstrip("/")), folder):
            with suppress(FileExistsError):
                self.perform(os.mkdir, path)
                with suppress(PermissionError):  # of a file system without modes
                    self.perform(os.chmod, path, self._mode)

    def remove(self, *paths: str) -> None:
        """Remove files, and empty folders whose paths end with a slash, if possible."""
        for path in paths:
            with suppress(OSError):
                self.perform(os.rmdir if path.endswith("/") else os.unlink, path)

    def touch(self, folder: str) -> float:
        """Write into a folder, so that this client drops its listing; return the server's time of day.

        Raises:
            OSError: nothing can be written there.
        """
        path = os.path.join(folder, f"p.0.{secrets.token_hex(8)}")
        try:
            return self.create(path)
        finally:
            self.remove(path)
