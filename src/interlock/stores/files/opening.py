"""Opening of files that interlock may have created, and errors of the operating system with advice."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from interlock.core.errors import StoreError
from interlock.stores.files.open_file import MOST_BYTES, NotOurs, Sharing
from interlock.stores.files.system import system

pwrite = system.pwrite
_ADVICE = {
    errno.ENOSPC: "The disk is full, or has no inodes left. Free some space.",
    errno.EROFS: "The file system is read-only. Mount it for writing, or choose another folder.",
    errno.ENOLCK: "The file system has no OS locks. Choose a folder on a local disk.",
    errno.EOPNOTSUPP: "The file system has no OS locks. Choose a folder on a local disk.",
    errno.EIO: "The disk fails. Check the machine's log.",
    errno.ENOTDIR: "The path is not a folder. Choose another folder.",
    errno.EEXIST: "A file is in the place of the folder. Choose another folder.",
    **system.ADVICE,
}


def failed(what: str, error: OSError) -> StoreError:
    """Return the StoreError for an error of the operating system, with advice; raise it from `error`.

    Args:
        what: the beginning of the message: the failed operation.
        error: the error of the operating system.
    """
    advice = _ADVICE.get(error.errno or 0, "Run `interlock doctor`.")
    return StoreError(f"{what}: {error}. {advice}")


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Convert an OSError or ImportError in the block into a StoreError."""
    try:
        yield
    except OSError as error:
        raise failed(what, error) from error


def open_file(folder: str | Path, name: str, sharing: Sharing, create: bool = True) -> int:
    """Open a regular file that interlock may have created.

    Args:
        folder: the folder; not through a symbolic link.
        name: the name of the file in it.
        sharing: the users who may use the folder.
        create: True to open it for writing too, and to create it if it does not exist.

    Returns:
        A descriptor.

    Raises:
        NotOurs: another kind of file is there, or one of a user who is not trusted.
        OSError: the file cannot be opened; FileNotFoundError if it does not exist and `create` is False.
    """
    try:
        fd = system.open_in(folder, name, sharing, create)
    except NotOurs as error:
        raise NotOurs(
            f"{os.fspath(folder)}/{name} {error}, so interlock did not create it. Inspect the file, and remove it. "
            f"Nothing was changed."
        ) from None
    except OSError as error:
        error.filename = f"{os.fspath(folder)}/{name}"
        raise
    if fd < 0:
        raise StoreError(f"{os.fspath(folder)}/{name} appears and disappears repeatedly. Find the cause.")
    return fd


def read_file(folder: str | Path, name: str, sharing: Sharing, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file, up to `most` bytes.

    Raises:
        NotOurs: interlock did not create the file; see `open_file`.
        OSError: the file cannot be read; FileNotFoundError if it does not exist.
    """
    with open(open_file(folder, name, sharing, create=False), "rb", 0) as file:
        return file.read(min(most, os.fstat(file.fileno()).st_size))


def put(fd: int, data: bytes, at: int) -> None:
    """Write all of `data` at offset `at`, or raise OSError."""
    if pwrite(fd, data, at) != len(data):
        raise OSError(errno.ENOSPC, "only a part was written")
