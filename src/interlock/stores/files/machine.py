"""What the processes that share a folder must have in common: a boot of a machine, its clock, a local file system."""

import os
from pathlib import Path

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
"""File systems that a program or the host of a virtual machine serves: who else sees them can't be known here."""

_FIRST_CLOCK = 0xEFFFFFFA  # the inode of the time namespace that the machine has booted with


def boot_id() -> str:
    """Return what tells this boot of this machine from all others.

    Raises:
        OSError: it can't be read, though it is there.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return f"host {os.uname().nodename}"


def clock() -> str:
    """Return how far this process's monotonic clock is ahead of the machine's, in a time namespace; "0" elsewhere.

    Raises:
        OSError: it can't be read, though it is there.
    """
    try:
        mine = os.stat("/proc/self/ns/time").st_ino
        if mine == _FIRST_CLOCK:
            return "0"
        if mine != os.stat("/proc/self/ns/time_for_children").st_ino:
            return f"namespace {mine}"  # the offsets that can be read are those of the children to come
        lines = [line.split() for line in Path("/proc/self/timens_offsets").read_text().splitlines()]
    except FileNotFoundError:
        return "0"
    seconds, nanoseconds = next((line[1:3] for line in lines if line[:1] == ["monotonic"]), ("0", "0"))
    return "0" if seconds == nanoseconds == "0" else f"{seconds} s {nanoseconds} ns"


def file_system(path: Path) -> str:
    """Return the type of the file system that `path` lies on, or "unknown".

    Raises:
        OSError: it can't be read, though it is there.
    """
    best, kind = "", "unknown"
    try:
        # Mount points may have any name.
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
    """Tell whether several machines reach a file system of that type."""
    return kind in NETWORK


def is_guest(kind: str) -> bool:
    """Tell whether others than this machine may reach a file system of that type, as far as one can know."""
    return kind in GUESTS or (kind.startswith("fuse.") and kind not in LOCAL | NETWORK)
