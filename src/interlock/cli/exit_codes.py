"""Exit statuses, like those of flock(1) and sysexits.h, and their error line."""

import atexit
import io
import sys
from contextlib import suppress
from threading import RLock, current_thread, main_thread

CONFLICT = 1  # the lock could not be acquired, unless -E says otherwise; evict: no claim was removed
NO_READER = 1
USAGE = 64
UNAVAILABLE = 69  # the command to run was not found, or is not executable
LOCK_LOST = 70  # the lock was lost while the command ran; doctor: the store is unsuitable
OUTPUT = 74  # the output cannot be written, or another file cannot be used
STORE = 75
BY_SIGNAL = 128  # and the number of the signal

_writing = RLock()
_ends = False


def say(text: str) -> None:
    """Write one line to standard error; a failure to write is ignored.

    The line is one call of `write`, because threads of the library write too, and `print` writes in several calls.
    """
    with _writing:
        if _ends and current_thread() is not main_thread():
            return
        try:
            sys.stderr.write(f"interlock: {one_line(text)}\n")
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):  # AttributeError if `sys.stderr` is None
            drop_unwritten("stderr")


def _silence_threads() -> None:
    """Let no other thread write from now on: Python aborts if a daemon thread writes while Python ends."""
    global _ends
    with _writing:
        _ends = True


atexit.register(_silence_threads)


def drop_unwritten(name: str) -> None:
    """Write unbuffered from now on, so that a failed flush at exit does not set status 120.

    Args:
        name: "stdout" or "stderr".
    """
    with suppress(AttributeError, OSError, ValueError):  # not one of Python's own streams, or a closed one
        stream = getattr(sys, name)
        raw = stream.buffer.raw
        setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, "backslashreplace", write_through=True))


def fail(status: int, text: str) -> int:
    """Write an error with its next step; return `status`."""
    say(text)
    return status


def store_failed(error: Exception) -> int:
    """Report that the store is unavailable or unsuitable; return the status."""
    return fail(STORE, f"The store cannot be used: {error}")


def one_line(text: str) -> str:
    """Return `text` with escaped control characters: names and labels are foreign texts."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
