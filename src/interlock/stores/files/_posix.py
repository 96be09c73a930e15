"""What the store needs of a POSIX system; `_windows` has the same names, and `system.System` describes them.

Other users may write to the folder, and may put a symbolic link, a named pipe or a huge file in place of a file.
So no file is opened through a link, no open blocks, and an open file is checked before it is read or written.
"""

import contextlib
import errno
import os
import re
import resource
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Set
from fcntl import F_GETFL, F_SETFL, fcntl
from fcntl import LOCK_EX as LOCK_EX
from fcntl import LOCK_NB as LOCK_NB
from fcntl import LOCK_SH as LOCK_SH
from fcntl import LOCK_UN as LOCK_UN
from fcntl import flock as flock
from functools import partial
from os import pread as pread
from os import pwrite as pwrite
from os import replace as replace
from pathlib import Path
from urllib.parse import quote

from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.options import path_url
from interlock.runtime import clock
from interlock.stores.files.open_file import (
    MOST_BYTES,
    OPEN_ATTEMPTS,
    LivenessFile,
    Mount,
    NotOurs,
    OpenFile,
    Sharing,
    kind_of,
)
from interlock.stores.files.open_file import sharing_of as sharing_of

HAS_PIPES = True
EXAMPLE = "/var/lib/locks"
FOR_SEVERAL = "share:///folder on that file system"
DATABASE_SLASHES = "four slashes"
SHORT_NAME = re.compile(r"[a-z0-9][a-z0-9._:@+=,-]{0,99}")
LOCAL: Set[str] = {
    "aufs", "bcachefs", "btrfs", "devtmpfs", "ecryptfs", "erofs", "ext2", "ext3", "ext4", "f2fs",
    "fuse.fuse-overlayfs", "hfsplus", "jffs2", "jfs", "minix", "nilfs2", "overlay", "ramfs", "reiserfs", "rootfs",
    "tmpfs", "ubifs", "xfs", "zfs",
}  # fmt: skip
ADVICE: Mapping[int, str] = {
    errno.EMFILE: "This process has too many open files. Close some, or raise its limit (ulimit -n).",
    errno.ENFILE: "This machine has too many open files. Raise fs.file-max.",
    errno.EDQUOT: "The user's quota is used up. Free some space.",
    errno.EFBIG: "The file-size limit of this process is too low. Raise it (ulimit -f).",
    errno.EACCES: "This user lacks the right. Let the owner change the mode (chmod).",
    errno.EPERM: "This user lacks the right. Let the owner change the mode (chmod).",
}
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
FLAGS = NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NOATIME = getattr(os, "O_NOATIME", 0)
give_turn: Callable[[], object] = getattr(os, "sched_yield", lambda: None)


def readable_name(words: str) -> str:
    """Return the readable part of a file name: every name is accepted."""
    return words


# -- files --------------------------------------------------------------------------------------------------


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


def take(file: OpenFile, flags: int = os.O_RDONLY) -> None:
    """Open the file at a path.  The caller closes it if this raises."""
    file.fd = descriptor(file.path, flags | FLAGS)
    file.identify()


def opener(path: str, flags: int) -> int:
    """Open a file, not through a symbolic link, for `open`; a new one is this user's alone."""
    return os.open(path, flags | FLAGS, 0o600)


def open_in(folder: str | Path, name: str, sharing: Sharing, create: bool) -> int:
    """Open a regular file; see `opening.open_file`.

    Returns:
        A descriptor; -1 if the file appeared and disappeared repeatedly.
    """
    fd = -1
    try:
        with opened(folder) as at:
            for _ in range(OPEN_ATTEMPTS):
                fd = _open_at(at, name, sharing, create)
                if fd >= 0:
                    break
    except BaseException:
        if fd >= 0:
            os.close(fd)
        raise
    return fd


def _open_at(at: int, name: str, sharing: Sharing, create: bool) -> int:
    """Return a descriptor, or -1 to try again."""
    access = FLAGS | (os.O_RDWR if create else os.O_RDONLY)
    try:
        fd = -1
        if create:  # try to create it first, because most names are new
            try:  # not `suppress`, because an interrupt may come at its end
                fd = descriptor(name, access | NOATIME | os.O_CREAT | os.O_EXCL, sharing.file_mode, at)
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
    if not trusts(sharing, found.st_uid):
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


def trusts(sharing: Sharing, owner: int) -> bool:
    """Return True if files of a user may be used: of every user if others may write."""
    return bool(sharing.mode & 0o022) or owner in (os.geteuid(), 0, sharing.owner)


def may_use(path: str | Path, mode: int) -> bool:
    """Return True if this user has rights; see `os.access`."""
    return os.access(path, mode, effective_ids=True)


def hide_reads(fd: int, found: os.stat_result) -> None:
    """Let reads not update the access time of an own file."""
    if NOATIME and found.st_uid == os.geteuid():
        flags = fcntl(fd, F_GETFL)
        if not flags & NOATIME:  # not created by this process
            fcntl(fd, F_SETFL, flags | NOATIME)


def mark(fd: int) -> int:
    """Set a random file offset, which pread and pwrite do not change, and return it."""
    return os.lseek(fd, (1 << 30) + int.from_bytes(os.urandom(4)) // 4, os.SEEK_SET)


def is_marked(fd: int, mark: int) -> bool:
    """Return True if a descriptor has the offset of its mark."""
    try:
        return os.lseek(fd, 0, os.SEEK_CUR) == mark
    except OSError:
        return False


def remove(file: OpenFile) -> None:
    """Unlink an open file if its path leads to it, and close it."""
    if file.fd >= 0 and file.is_found():
        with contextlib.suppress(OSError):
            os.unlink(file.path)
    file.close()


remove_empty = remove
"""Unlink an open, empty file."""


def max_open_files() -> int:
    """Return how many files this process may have open; -1 without a limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


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


def check_folder(room: Path, sharing: Sharing) -> None:
    """Check that all users of a folder can use its subfolder.

    Raises:
        NotOurs: it belongs to another user.
    """
    with opened(room) as fd:
        found = os.fstat(fd)
        if not trusts(sharing, found.st_uid):
            raise NotOurs(f"{room} belongs to user {found.st_uid}. Inspect it, and remove it.")
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != sharing.mode:
            os.fchmod(fd, sharing.mode)


def mode_in(name: str, text: str) -> int:
    """Parse the option of the permission bits of a folder."""
    if not re.fullmatch("0?[0-3]?7[07][07]", text):
        raise InvalidArgument(
            f"{name}={text!r}: write 0700 (this user only), 0770 or 2770 (a group), 0777 or 1777 (everybody). Each "
            f"user of the locks needs all rights in their folder."
        )
    return int(text, 8)


def folder_path(path: str) -> str:
    """Check the path of a folder.

    Raises:
        InvalidArgument: it is not absolute.
    """
    if not os.path.isabs(path):
        raise InvalidArgument(f"file:// needs an absolute folder, not {path!r}. Write file://{EXAMPLE}.")
    return path


def resolved(path: Path) -> str:
    """Return the path of a folder without symbolic links."""
    return os.path.realpath(path)


def path_in_url(path: str) -> str:
    """Return the path that the path of a URL means."""
    return path


def folder_meant(path: str) -> str:
    """Return the URL that a path without its first slash probably means."""
    top = path.partition("/")[0]
    if top not in ("", ".", "..", "~") and os.path.isdir(f"/{top}"):
        return path_url(f"/{path}")
    return path_url(os.path.abspath(os.path.expanduser(path)))


def database_url(path: str) -> str:
    """Return the URL by which SQLite opens a file."""
    return f"file:{quote(os.fsencode(path))}"


SHARED = "/tmp"
_OWN_TMP = r"systemd-private-|snap-private-tmp|/tmp-inst/"
"""Matches the root of a private mount at /tmp: systemd's PrivateTmp=, snap, pam_namespace."""
_ELSEWHERE = "set INTERLOCK_URL (or connect(url), --store) to a folder that all users of the lock see, " \
    "e.g. file:///var/lib/app/locks."  # fmt: skip


def default_folder() -> str:
    """Return the default folder of this user's locks; create it if it does not exist.

    Returns:
        The folder /tmp/interlock-UID, with the effective user id.

    Raises:
        StoreError: another user owns the folder or may write to it, or this process has a private /tmp.
    """
    path = os.path.join(SHARED, f"interlock-{os.geteuid()}")
    try:
        if re.search(_OWN_TMP, mount_of(SHARED).root):
            raise StoreError(
                f"This service has a private {SHARED} (PrivateTmp=), invisible to others. To share "
                f"locks, {_ELSEWHERE}"
            )
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except OSError as error:
        raise StoreError(f"Cannot create the folder of this user's locks: {error}. Or {_ELSEWHERE}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StoreError(f"{path} is not a folder of this user. Let its owner or root remove it, or {_ELSEWHERE}")
    if found.st_mode & 0o022:
        raise StoreError(f"Others may write to {path} and remove locks. Run chmod 700 {path}, or {_ELSEWHERE}")
    return path


# -- the machine --------------------------------------------------------------------------------------------

MOUNTS = Path("/proc/self/mountinfo")
KINDS = {
    0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs", 0x794C7630: "overlay",
    0x2FC12FC1: "zfs", 0xF2F52010: "f2fs", 0xCA451A4E: "bcachefs", 0x858458F6: "ramfs", 0x6969: "nfs",
    0xFF534D42: "cifs", 0xFE534D42: "smb3", 0x01021997: "9p", 0x00C36400: "ceph", 0x65735546: "fuse",
    0x0BD00BD0: "lustre", 0x47504653: "gpfs", 0x01161970: "gfs2", 0x7461636F: "ocfs2", 0x5346414F: "afs",
}  # fmt: skip
"""The types of file systems by the numbers of statfs(2)."""


def boot_id() -> str:
    """Return the id of this boot of this machine.

    Raises:
        OSError: the id exists, but can't be read.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return f"host {os.uname().nodename}"


restart_id = boot_id
"""Return the id of this boot, where nothing but a restart changes it."""


def time_namespace() -> str:
    """Return the time namespace of this process, which has a monotonic clock of its own; "0" if there is none.

    Raises:
        OSError: the namespace exists, but can't be examined.
    """
    try:
        return str(os.stat("/proc/self/ns/time").st_ino)
    except FileNotFoundError:
        return "0"


def mount_of(path: str | Path) -> Mount:
    """Return the mount that a path is on; its type is "unknown" on a system without /proc.

    The table of mounts does not show the root of a chroot: then the type is that of statfs, without a point.

    Raises:
        OSError: /proc/self/mountinfo exists, but can't be read.
    """
    best = Mount("", "", "unknown")
    try:
        # The name of a mount point need not be UTF-8.
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return best
    real = os.path.realpath(path)
    for line in lines:
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        point = point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if (real + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best.point):
            best = Mount(point, root, right.split()[0])  # the last mount hides those before
    return best if best.point else Mount("", "", _type_in_chroot(real))


def _type_in_chroot(path: str) -> str:
    """Return the type of a path's file system, as the kernel tells it; "unknown" if it can't be found out."""
    try:
        import ctypes  # needed only here

        about = ctypes.create_string_buffer(1024)
        while not os.path.lexists(path):  # SQLite's file is made at its first use
            path = os.path.dirname(path)
        if ctypes.CDLL(None).statfs(os.fsencode(path), about) == 0:
            return KINDS.get(int.from_bytes(about.raw[:4], sys.byteorder), "unknown")
    except (ImportError, AttributeError, OSError):
        pass  # Python without ctypes, or a C library without the function
    return "unknown"


def is_running(pid: str) -> bool:
    """Return True if a process with a number is known to run."""
    return os.path.exists(f"/proc/{pid}")


# -- liveness -----------------------------------------------------------------------------------------------


class LivenessPipe(LivenessFile):
    """A named pipe, whose final name appears only when it is locked.

    Args:
        folder: the folder alive/.
        token: the name of the file.
    """

    __slots__ = ("_folder",)

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__(folder / f".{token}")
        self._folder = folder
        self.token = token

    def make(self) -> None:
        """Create the file, and lock it; the caller removes it if this raises."""
        make_pipe(self)
        flock(self.fd, LOCK_EX | LOCK_NB)
        os.rename(self.path, self._folder / self.token)
        self.path = os.fspath(self._folder / self.token)


new_liveness = LivenessPipe


def open_liveness(file: OpenFile) -> None:
    """Open the liveness file of another process; the caller closes it if this raises."""
    open_pipe(file, os.O_WRONLY)


def clean(folder: Path, is_dead: Callable[[str], bool]) -> None:
    """Remove the pipes of dead processes from a folder.

    Args:
        folder: the folder.
        is_dead: returns True for the name of a file of a dead process.
    """
    with opened(folder) as at:
        for name in os.listdir(at):
            dead = is_dead(name)
            with contextlib.suppress(OSError):
                if dead and stat.S_ISFIFO(os.lstat(name, dir_fd=at).st_mode):
                    os.unlink(name, dir_fd=at)


def make_pipe(pipe: OpenFile) -> None:
    """Create a named pipe at a path, and open it for reading and writing.

    Raises:
        NotOurs: another program replaced the pipe in between.
        OSError: the pipe cannot be created.
    """
    path = Path(pipe.path)
    try:
        with opened(path.parent) as at:
            sharing = sharing_of(os.fstat(at))
            if os.mkfifo in os.supports_dir_fd:
                os.mkfifo(path.name, sharing.file_mode, dir_fd=at)
            else:
                os.mkfifo(path, sharing.file_mode)
            pipe.fd = descriptor(path.name, os.O_RDWR | FLAGS, at=at)
        pipe.identify()
        found = os.fstat(pipe.fd)
        if not found.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "removed during its creation", pipe.path)
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
            raise NotOurs(f"Another program replaced {path} during its creation. Find that program.")
        settle(pipe.fd, found, sharing.file_mode, sharing)
    except BaseException:
        pipe.close()
        raise


def open_pipe(pipe: OpenFile, access: int) -> None:
    """Open only a named pipe, without blocking; the caller closes it on an error.

    Raises:
        FileNotFoundError: the path is not a named pipe.
        OSError: the pipe cannot be opened.
    """
    take(pipe, access)
    if not stat.S_ISFIFO(os.fstat(pipe.fd).st_mode):
        raise FileNotFoundError(errno.ENOENT, "no named pipe", pipe.path)
