"""What the operating system refused, as errors that say what to do."""

import contextlib
import errno
import threading
from collections.abc import Iterator

from interlock.core.errors import StoreError

WITHIN_A_STEP = (
    "a signal handler came in the middle of a step of its own thread, and can't lock or release there: let it set a "
    "flag, and lock or release after it"
)

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


class Section:
    """A part of the program in which one thread at a time may be, and no signal handler of that thread."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._taken = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in it.  A generator that is dropped is left: so an interrupt leaves no mutex taken.

        Raises:
            StoreError: it is a signal handler that asks, in the middle of a section of its own thread.
        """
        with self._mutex:
            if self._taken:
                raise StoreError(WITHIN_A_STEP)
            self._taken = True
            try:
                yield
            finally:
                self._taken = False
