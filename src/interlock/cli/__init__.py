"""The command `interlock`; it needs click and rich."""

import sys
from collections.abc import Callable, Sequence

from interlock import Locks
from interlock.cli.exits import UNAVAILABLE, fail
from interlock.cli.where import given as given_locks

NEEDED = ("click", "rich")


def main(
    arguments: Sequence[str] | None = None, locks: Callable[[str], Locks] | None = None, called: str = ""
) -> int:
    """Run the command.

    Args:
        arguments: the words after `interlock`; None for those of this process.
        locks: for a program that contains the command: makes the locks of a namespace, where no --store is given.
        called: what such a program calls its store.

    Returns:
        The exit status.
    """
    try:
        from interlock.cli.group import main as run_group

        with given_locks(locks, called, alone=arguments is None):
            return run_group(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in NEEDED:
            return fail(UNAVAILABLE, "the command interlock needs click and rich: pip install 'interlock[cli]'")
        # Python's own status for this is 1, which would look like a lock that somebody else holds.
        import traceback

        traceback.print_exc()
        return 70
