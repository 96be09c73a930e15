"""The command `interlock` and its connection; all but the usual forms of `run` need click and rich."""

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence

import interlock
from interlock import Locks
from interlock.api.connect import default_url
from interlock.cli.exit_codes import NO_READER, OUTPUT, UNAVAILABLE, USAGE, drop_unwritten, fail, store_failed
from interlock.core.errors import install
from interlock.core.redaction import masked

_given: tuple[Callable[[str], interlock.Locks], str] | None = None
"""In a program that contains the command: makes the locks, and names the store."""


def is_given(store: str | None) -> bool:
    """Return True if the locks are those of the program."""
    return store is None and _given is not None


def connect(store: str | None, namespace: str) -> interlock.Locks:
    """Return the locks that a command works on, like `interlock.connect`."""
    if store is None and _given is not None:
        return _given[0](namespace)
    return interlock.connect(store, namespace=namespace)


def called(store: str | None) -> str:
    """Return the name of the store: its URL without passwords, or the program's name for it."""
    if store is None and _given is not None:
        return _given[1]
    return masked(default_url() if store is None else store)


NEEDED = {
    **dict.fromkeys(("click", "rich"), "cli"),
    **dict.fromkeys(("starlette", "uvicorn", "anyio", "h11"), "serve"),
}
"""The packages that commands need, and the extras that install them."""
COMPLETE = "_INTERLOCK_COMPLETE"  # the environment variable by which a shell requests completions


def main(
    arguments: Sequence[str] | None = None, locks: Callable[[str], Locks] | None = None, called: str = ""
) -> int:
    """Run the command.

    Args:
        arguments: the words after `interlock`; None for those of this process.
        locks: for a program that contains the command: makes the locks of a namespace if no --store is given;
            each command closes them.
        called: the program's name for its store.

    Returns:
        The exit status.
    """
    global _given
    _given = None if locks is None else (locks, called)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an unprintable name must not end a list
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    try:
        if words[:1] == ["run"] and COMPLETE not in os.environ:
            from interlock.cli.run_words import read, start

            given = read(words[1:])
            if given is not None:
                return start(given)
        from interlock.cli.lazy_group import main as run_group

        return run_group(words)
    except KeyboardInterrupt:
        return 130
    except interlock.InvalidArgument as error:
        return fail(USAGE, str(error))
    except interlock.LockError as error:
        return store_failed(error)
    except OSError as error:
        drop_unwritten("stdout")
        if sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None:
            return NO_READER  # Windows' error for an output without a reader: silent, like EPIPE, which click handles
        return fail(OUTPUT, f"Cannot write the output or use a file: {error.strerror or error}.")
    except Exception as error:
        missing = str(getattr(error, "name", "")).partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and missing in NEEDED:
            return fail(UNAVAILABLE, f"This command needs {missing}. Run: {install(NEEDED[missing])}")
        # Python's own status for this is 1, which would look like a lock that another program holds.
        import traceback

        traceback.print_exc()
        return 70
