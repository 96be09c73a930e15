"""What the operating system refused, as errors that say what to do."""

import contextlib
import errno
from collections.abc import Iterator

from interlock.core.errors import StoreError

_ADVICE = {
    errno.EMFILE: "this process has too many files open: close some, or raise its limit (ulimit -n)",
    errno.ENFILE: "this machine has too many files open: raise fs.file-max",
    errno.ENOSPC: "the disk is full, or has no inodes left: make room",
    errno.EDQUOT: "the user's quota is used up: make room",
    errno.EROFS: "the file system is mounted read-only: mount it for writing, or choose another folder",
    errno.EFBIG: "this process may not write files that long: raise its limit (ulimit -f)",
    errno.EIO: "the disk fails: look at the machine's log",
    errno.EACCES: "this user may not do that there: its owner must give it the mode that others need (chmod)",
    errno.EPERM: "this user may not do that there: its owner must give it the mode that others need (chmod)",
}


def failed(what: str, error: OSError) -> StoreError:
    """Return the error for something that was not possible, to be raised from `error`.

    Args:
        what: what was not possible.
        error: what the operating system said.
    """
    advice = _ADVICE.get(error.errno or 0, "see `interlock doctor`")
    return StoreError(f"{what}: {error}; {advice}")


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Raise what the operating system refuses within as the error for `what`; also the loading of a module."""
    try:
        yield
    except OSError as error:
        raise failed(what, error) from error
