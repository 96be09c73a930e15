"""Exit statuses, as flock(1) and sysexits.h have them, and the one line that goes with a bad one."""

import io
import sys
from contextlib import suppress
from typing import Any

CONFLICT = 1  # the lock was not obtained, unless -E says otherwise; evict: nothing was removed
USAGE = 64
UNAVAILABLE = 69  # the command to run is not there or not executable
LOST = 70  # the lock was lost while the command ran; doctor: the store is not fit
OUTPUT = 74  # the output can't be written, or another file can't be used
STORE = 75
BY_SIGNAL = 128  # and the number of the signal


def say(text: str) -> None:
    """Write one line to the error stream; that it can't be written must not stop the work.

    It is one call of `write`: threads of the library speak too, and `print` makes several.
    """
    try:
        sys.stderr.write(f"interlock: {one_line(text)}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # the first: there is no stream, `sys.stderr` is None
        drop_unwritten("stderr")


def drop_unwritten(name: str) -> None:
    """Write without a buffer from now on: otherwise Python flushes at exit, and exits with 120 if that fails.

    Args:
        name: "stdout" or "stderr".
    """
    with suppress(AttributeError, OSError, ValueError):  # none of Python's own streams, or a closed one
        stream: Any = getattr(sys, name)
        raw = stream.buffer.raw
        setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, "backslashreplace", write_through=True))


def fail(status: int, text: str) -> int:
    """Write what went wrong and what to do; return `status`."""
    say(text)
    return status


def store_failed(error: Exception) -> int:
    """Report that the store can't be used; return the status."""
    return fail(STORE, f"the store can't be used: {error}")


def one_line(text: str) -> str:
    """Return `text` without what would move the cursor or start a new line: names and labels are others' words."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
