"""The machine of this process: its boot, its monotonic clock, and which file systems only this machine reaches."""

import os
from pathlib import Path
from typing import NamedTuple

from interlock.core.claims import Check
from interlock.core.errors import InvalidArgument, StoreError

MOUNTS = Path("/proc/self/mountinfo")
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
    """Return the time namespace of this process, which has a monotonic clock of its own; "0" if there is none.

    Raises:
        OSError: the namespace exists, but can't be examined.
    """
    try:
        return str(os.stat("/proc/self/ns/time").st_ino)
    except FileNotFoundError:
        return "0"


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


def mount_of(path: str | Path) -> Mount:
    """Return the mount that a path is on; its type is "unknown" on a system without /proc.

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
    return best


def is_guest(kind: str) -> bool:
    """Return True for a type of file system that other machines might use."""
    return kind in GUESTS or (kind.startswith("fuse.") and kind not in LOCAL | NETWORK)


def allowed_in(name: str, kind: str) -> str:
    """Parse the option that allows a type of file system.

    Raises:
        InvalidArgument: the type needs no permission, or several machines share it.
    """
    if not is_guest(kind):
        raise InvalidArgument(
            f"{name}={kind!r} is not allowed. Allow only a file system that a program or a host serves to this "
            f"machine alone, such as virtiofs or fuse.rclone."
        )
    return kind


def refuse_file_system(path: Path, allowed: str, url: str) -> None:
    """Raise StoreError if other machines use, or might use, the file system of a path.

    Args:
        path: an existing file or folder.
        allowed: a type of file system that the user allows because no other machine uses it.
        url: the beginning of the URL, which the error shows.
    """
    kind = mount_of(path).kind
    if kind in NETWORK:
        raise StoreError(
            f"{path} is on a network file system ({kind}). Choose a local folder, or a store for several machines."
        )
    if is_guest(kind) and kind != allowed:
        raise StoreError(
            f"{path} is on a file system ({kind}) that other machines may use without seeing its locks. Choose a "
            f"local folder (in a container, a named volume), or write {url}?allow={kind} if no other machine uses "
            f"the file system."
        )


def check_of(path: Path) -> Check:
    """Return the finding of `doctor` about the file system of a path."""
    kind = mount_of(path).kind
    if kind in LOCAL:
        return Check("file system", "ok", f"{path} is on {kind}.")
    return Check(
        "file system",
        "warn",
        f"{path} is on {kind}; other machines may use it without seeing its locks. Make sure that none does.",
    )
