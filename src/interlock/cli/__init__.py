"""The command `interlock`.

`interlock run` needs nothing but the core: click and rich are imported for the other commands only, so that a
guarded command starts fast, and so that it starts at all where only the core is installed.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock import Locks


def main(
    arguments: Sequence[str] | None = None, locks: "Callable[[str], Locks] | None" = None, called: str = ""
) -> int:
    """Run the command.

    Args:
        arguments: the words after `interlock`; None for those of this process.
        locks: for a program that contains the command: makes the locks of a namespace, where no --store is given.
        called: what such a program calls its store.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from interlock.cli.where import given as given_locks

        with given_locks(locks, called, alone=arguments is None):
            if given[:1] == ["run"] and not hasattr(os, "fork") and given[1:] not in (["--help"], ["-h"]):
                from interlock.cli.exits import UNAVAILABLE, fail

                return fail(UNAVAILABLE, "interlock run needs a POSIX system: here, lock in the program itself")
            if given[:1] == ["run"]:
                from interlock.cli.run import main as run

                return run(given[1:])
            return _others(given)
    except KeyboardInterrupt:
        return 130
    except Exception:
        # Python's own status for this is 1, which would look like a lock that somebody else holds.
        import traceback

        traceback.print_exc()
        return 70


def _others(given: list[str]) -> int:
    try:
        from interlock.cli.group import main as others

        return others(given)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("click", "rich"):
            raise
        return _without_click(given)


def _without_click(given: list[str]) -> int:
    from interlock.cli.exits import UNAVAILABLE, fail
    from interlock.cli.summary import help_text, version_text

    if given[:1] in (["--version"], ["-V"]):
        print(version_text())
    elif given[:1] in (["--help"], ["-h"]) or given[1:] in (["--help"], ["-h"]):
        print(help_text(), end="")
    else:
        return fail(UNAVAILABLE, "only `interlock run` works without click and rich: pip install 'interlock[cli]'")
    return 0
