"""`python -m interlock`: the command `interlock`."""

import gc
import sys


def start() -> int:
    """Run the command in a process of its own; return the exit status.

    Modules are not garbage, so nothing looks for garbage among them, neither now nor at the end of Python: otherwise
    this takes a sixth of a short run.
    """
    gc.disable()
    try:
        from interlock.cli import main
    finally:
        gc.freeze()
        gc.enable()
    try:
        return main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(start())
