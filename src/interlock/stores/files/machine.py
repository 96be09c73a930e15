"""Checks that all processes which share a folder run on one boot of one machine, with one monotonic clock."""

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.files.opening import ROUNDS, NotOurs, OpenFile, Sharing, open_file, put

LOCAL = {
    "aufs", "bcachefs", "btrfs", "devtmpfs", "ecryptfs", "erofs", "ext2", "ext3", "ext4", "f2fs",
    "fuse.fuse-overlayfs", "hfsplus", "jffs2", "jfs", "minix", "nilfs2", "overlay", "ramfs", "reiserfs", "rootfs",
    "tmpfs", "ubifs", "xfs", "zfs",
}  # fmt: skip
NETWORK = {
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.ceph-fuse", "fuse.cephfs",
    "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "smb3", "smbfs",
}  # fmt: skip
GUESTS = {"fakeowner", "fuse", "fuseblk", "hgfs", "osxfs", "prl_fs", "vboxsf", "virtiofs", "vmhgfs"}
"""File systems served by a program or by the host of a virtual machine: other machines may use them as well."""

_FIRST_CLOCK = 0xEFFFFFFA  # the inode of the initial time namespace of a machine


def advice_on_guest(kind: str, path: str) -> str:
    """Return the advice for a path on a file system that other machines may use."""
    if kind == "fakeowner":
        return "it is a folder of the host, in a container of Docker Desktop: choose a named volume"
    return f"choose a local folder, or write {path}?allow={kind} if no other machine uses it"


def boot_id() -> str:
    """Return the id of this boot of this machine.

    Raises:
        OSError: the id exists, but can't be read.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return f"host {os.uname().nodename}"


def clock() -> str:
    """Return the offset of this process's monotonic clock in its time namespace, as text; "0" for none.

    Raises:
        OSError: the offset exists, but can't be read.
    """
    try:
        mine = os.stat("/proc/self/ns/time").st_ino
        if mine == _FIRST_CLOCK:
            return "0"
        if mine != os.stat("/proc/self/ns/time_for_children").st_ino:
            return f"namespace {mine}"  # the readable offsets are those of future children, not of this process
        lines = [line.split() for line in Path("/proc/self/timens_offsets").read_text().splitlines()]
    except FileNotFoundError:
        return "0"
    seconds, nanoseconds = next((line[1:3] for line in lines if line[:1] == ["monotonic"]), ("0", "0"))
    return "0" if seconds == nanoseconds == "0" else f"{seconds} s {nanoseconds} ns"


def file_system(path: Path) -> str:
    """Return the type of the file system of `path`, or "unknown".

    Raises:
        OSError: /proc/self/mountinfo exists, but can't be read.
    """
    best, kind = "", "unknown"
    try:
        # The name of a mount point need not be UTF-8.
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return kind
    real = os.path.realpath(path)
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if (real + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def is_network(kind: str) -> bool:
    """Return True for a type of file system that several machines share."""
    return kind in NETWORK


def is_guest(kind: str) -> bool:
    """Return True for a type of file system that other machines may use, although this can't be known."""
    return kind in GUESTS or (kind.startswith("fuse.") and kind not in LOCAL | NETWORK)


def allowed_in(name: str, kind: str) -> str:
    """Parse the option that allows a type of file system.

    Raises:
        InvalidArgument: the type needs no permission, or several machines share it.
    """
    if is_network(kind) or not is_guest(kind):
        raise InvalidArgument(
            f"{name}={kind!r}: only a file system that a program or a host serves to this machine can be allowed, "
            f"like virtiofs or fuse.rclone; one that reaches several machines can't"
        )
    return kind


NAME = "interlock"
MAGIC = b"interlock files "
VERSION = MAGIC + b"2\n"
MOST = 400  # bytes of the marker
WAITS = 500  # tries, 0.01 s apart, to lock the marker
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class MarkerTaken(StoreError):
    """Another process has locked the marker exclusively, which normally lasts for a moment only."""


def text_here(path: Path) -> bytes:
    """Return the text of the marker of a folder, for this process.

    Raises:
        OSError: the boot, the clock or the folder can't be read.
    """
    inode = os.stat(path).st_ino
    return VERSION + f"boot={boot_id()}\nclock={clock()}\nfolder={inode}\n".encode()


def defect(path: Path, written: bytes, links: int) -> str:
    """Return why this process can't share a folder with its present users; "" if it can.

    Args:
        path: the folder.
        written: the text of its marker.
        links: the number of hard links of the marker.
    """
    here = _facts(text_here(path))
    there = _facts(written)
    if links > 1 and there.get("folder") != here["folder"]:
        return "is a copy made of hard links (cp -al) of another folder: remove the copy, and make it without links"
    if not written.startswith(VERSION):
        return "is used by another version of interlock: end its processes, or use another folder"
    if there.get("boot") != here["boot"]:
        return (
            f"is used by another machine or boot ({there.get('boot')}, here {here['boot']}): its processes can't be "
            f"seen from here; give each machine a folder of its own"
        )
    if there.get("clock", "0") != here["clock"]:
        return (
            f"is used in another time namespace (its clock is ahead by {there.get('clock', '0')}, here by "
            f"{here['clock']}): leases can't be compared; give each time namespace a folder of its own"
        )
    return ""


def _facts(text: bytes) -> dict[str, str]:
    lines = text.decode(errors="replace").splitlines()[1:]
    return {key: fact for key, _, fact in (line.partition("=") for line in lines)}


def join_marker(path: Path, sharing: Sharing, *, wait: bool) -> OpenFile:
    """Lock the marker in shared mode, as all users of the folder do.

    Args:
        path: the folder.
        sharing: the users who may use the folder.
        wait: True to wait for a process that has locked the marker exclusively.

    Returns:
        The marker; closing it releases the lock.

    Raises:
        MarkerTaken: another process has locked the marker exclusively.
        StoreError: processes of another machine, boot or version use the folder, or OS locks do not work there.
        OSError: the marker can't be read or written.
    """
    real = Path(os.path.realpath(path))
    for _ in range(ROUNDS):
        marker = OpenFile(real / NAME, open_file(real, NAME, sharing))
        with contextlib.ExitStack() as closing:
            closing.callback(marker.close)
            try:
                _join(real, marker.fd, WAITS if wait else 1)
                _see_that_locks_exclude(real, sharing, marker.fd)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                raise StoreError(f"{path} has no OS locks ({error}); choose a folder on a local disk") from error
            if marker.is_intact():  # else it was replaced meanwhile
                marker.path = os.fsencode(path / NAME)
                closing.pop_all()
                return marker
    raise StoreError(f"{path}/{NAME} is replaced again and again; find the program that does it")


def _join(path: Path, marker: int, tries: int) -> None:
    alone = _lock_alone(marker)
    if not alone:
        _share(path, marker, tries)
    written, links = os.pread(marker, MOST, 0), os.fstat(marker).st_nlink
    if written and not written.startswith(MAGIC):
        raise NotOurs(f"{path}/{NAME} is no file of interlock's: choose another folder, or remove it")
    if alone:
        here = text_here(path)
        if links == 1 or _facts(written).get("folder") == _facts(here)["folder"]:
            put(marker, here, 0)
            os.ftruncate(marker, len(here))
        _share(path, marker, tries)
        written = os.pread(marker, MOST, 0)  # another process may have written it between the two locks
    why = defect(path, written, links) if written else ""
    if why:
        raise StoreError(f"{path} {why}")


def _lock_alone(marker: int) -> bool:
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _share(path: Path, marker: int, tries: int) -> None:
    for left in reversed(range(tries)):
        try:
            fcntl.flock(marker, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if left:
                time.sleep(0.01)  # an exclusive lock normally lasts for a moment
    raise MarkerTaken(f"{path}/{NAME} is locked exclusively by some other program; find it with lslocks")


def _see_that_locks_exclude(path: Path, sharing: Sharing, marker: int) -> None:
    try:
        other = open_file(path, NAME, sharing, create=False)
    except FileNotFoundError:
        return  # removed just now
    try:
        if not os.path.samestat(os.fstat(other), os.fstat(marker)):
            return  # replaced just now
        if not _lock_alone(other):
            return
    finally:
        os.close(other)
    raise StoreError(f"OS locks do not exclude in {path}: choose a folder on a local disk")
