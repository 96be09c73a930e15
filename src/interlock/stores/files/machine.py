"""Which file systems only this machine reaches."""

from pathlib import Path

from interlock.core.claims import Check
from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.files.open_file import Mount as Mount
from interlock.stores.files.system import system

mount_of = system.mount_of

NETWORK = {
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.ceph-fuse", "fuse.cephfs",
    "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "remote", "smb3", "smbfs",
}  # fmt: skip
GUESTS = {"fakeowner", "fuse", "fuseblk", "hgfs", "osxfs", "prl_fs", "vboxsf", "virtiofs", "vmhgfs"}
"""File systems served by a program or by the host of a virtual machine: other machines may use them as well."""


def is_guest(kind: str) -> bool:
    """Return True for a type of file system that other machines might use."""
    return kind in GUESTS or (kind.startswith("fuse.") and kind not in system.LOCAL | NETWORK)


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
            f"{path} is on a network file system ({kind}). Choose a local folder, or a store for several machines, "
            f"such as {system.FOR_SEVERAL}."
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
    if kind in system.LOCAL:
        return Check("file system", "ok", f"{path} is on {kind}.")
    return Check(
        "file system",
        "warn",
        f"{path} is on {kind}; other machines may use it without seeing its locks. Make sure that none does.",
    )
