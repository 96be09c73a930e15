"""The folder of a file store: what lies where, and whether it is fit to keep locks.

interlock      the marker: what this folder is, and of which boot of which machine
fences         a number: no fence of a name whose files were removed was higher
using/NAME     who uses NAME (and the line's guard: whoever writes holds flock on this file)
pending/NAME   who waits for NAME; there only while somebody does
alive/         beacons and bells of the processes
broken/        line files that could not be read, kept for people to look at
"""

import errno
import fcntl
import os
import re
import stat
import time
from pathlib import Path

from interlock.claims import SEPARATOR
from interlock.errors import InvalidArgument, StoreError

VERSION = b"interlock files 1\n"
NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gfs2",
    "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs",
}  # fmt: skip
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._:@+=,-]{0,99}")


def runtime_folder() -> str:
    """Return the user's own runtime folder for locks, made if it is not there.

    Raises:
        StoreError: the folder in the temporary directory belongs to somebody else.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isdir(base):
        return os.path.join(base, "interlock")
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"interlock-{os.getuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise StoreError(
                f"{path} belongs to somebody else or others may write to it; remove it, or set INTERLOCK_URL"
            ) from None
    return path


def file_name(key: str) -> str:
    """Return the file name of a key: the name itself if it is plain, else a readable part and a 160-bit hash.

    No two keys share one, also where the file system does not tell capital letters from small ones.
    """
    namespace, _, name = key.partition(SEPARATOR)
    if not namespace and _PLAIN.fullmatch(name):
        return name
    from hashlib import blake2b  # costs a program with plain names nothing

    readable = re.sub(r"[^a-z0-9._-]+", "-", f"{namespace}.{name}".strip(".").lower())[:60].strip("-.")
    return f"{readable}~{blake2b(key.encode(), digest_size=20).hexdigest()}"


def boot_id() -> str:
    """Return what tells this boot of this machine from all others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"host {os.uname().nodename}"


def file_system(path: Path) -> str:
    """Return the type of the file system that `path` lies on, or "unknown"."""
    best, kind = "", "unknown"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return kind
    real = os.path.realpath(path)
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        if (real + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


class Folder:
    """One folder that is ready to keep locks.

    Args:
        path: an absolute path; made if it is not there.

    Raises:
        StoreError: it can't be made or written, or its file system keeps no locks; the message says what to do.
    """

    def __init__(self, path: str) -> None:
        if "\0" in path:
            raise InvalidArgument("the folder of file:// must not contain a NUL character")
        if not os.path.isabs(path):
            raise InvalidArgument(f"file:// needs an absolute folder, not {path!r}: write file:///var/lib/app/locks")
        self.path = Path(path)
        self.using = self.path / "using"
        self.pending = self.path / "pending"
        self.alive = self.path / "alive"
        self.broken = self.path / "broken"
        self._marker = -1
        try:
            for each in (self.using, self.pending, self.alive):
                each.mkdir(parents=True, exist_ok=True)
            kind = file_system(self.path)
            if kind in NETWORK:
                raise StoreError(
                    f"{path} lies on a network file system ({kind}): file:// is for the processes of one machine; "
                    f"choose a local folder, or a store that reaches several machines"
                )
            self.join()
        except PermissionError as error:
            raise StoreError(f"{path} can't be written by this user: {error}; choose another folder") from error
        except NotADirectoryError as error:
            raise StoreError(f"{path} is not a folder: {error}; choose another one") from error
        except FileExistsError as error:
            raise StoreError(f"{error.filename} is a file where a folder is needed; choose another place") from error
        except OSError as error:
            raise StoreError(f"{path} can't keep locks: {error}; choose a folder on a local disk") from error

    def join(self) -> None:
        """Lock the marker together with all who use the folder, and see that OS locks work here."""
        path = self.path / "interlock"
        self._marker = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        here = VERSION + b"boot=" + boot_id().encode() + b"\n"
        try:
            fcntl.flock(self._marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
            self._share()
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise StoreError(f"{self.path} has no OS locks ({error}); choose a folder on a local disk") from error
            raise
        if alone:
            os.ftruncate(self._marker, 0)
            os.pwrite(self._marker, here, 0)
            self._share()
        written = os.pread(self._marker, 200, 0)
        if written != here and written:
            raise StoreError(
                f"{self.path} is used by another machine, boot or version of interlock ({written!r}): its processes "
                f"can't be seen from here; give each machine a folder of its own"
            )
        self._see_that_locks_exclude(path)

    def _share(self) -> None:
        for _ in range(500):
            try:
                fcntl.flock(self._marker, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.01)  # whoever holds it exclusively does so for a moment
        raise StoreError(f"{self.path}/interlock is locked exclusively by some other program; find it with lslocks")

    def _see_that_locks_exclude(self, path: Path) -> None:
        other = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        finally:
            os.close(other)
        raise StoreError(f"OS locks do not exclude in {self.path}: choose a folder on a local disk")

    def leave(self) -> None:
        """Give the marker's lock back."""
        if self._marker >= 0:
            os.close(self._marker)
            self._marker = -1

    def floor(self) -> int:
        """Return the highest fence of any name whose files were removed."""
        try:
            return int((self.path / "fences").read_bytes())
        except (OSError, ValueError):
            return 0

    def raise_floor(self, fence: int) -> None:
        """Remember `fence` before the file that shows it is removed."""
        fd = os.open(self.path / "fences", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                known = int(os.pread(fd, 32, 0))
            except ValueError:
                known = 0
            if fence > known:
                os.pwrite(fd, b"%020d\n" % fence, 0)
        finally:
            os.close(fd)
