"""`interlock run`: hold a lock while a command runs."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from interlock.cli.child import Child, NotRunnable, look_up
from interlock.cli.exits import BY_SIGNAL, LOST, STORE, UNAVAILABLE, USAGE, fail, say
from interlock.cli.options import HelpWanted, Order, Usage, help_text, parse
from interlock.cli.signals import ENDING, Event, Signals, WaitBroken, stop_here

if TYPE_CHECKING:
    from interlock.locks import Grant, Lock, Locks

LONGEST_LABEL = 200


def main(words: Sequence[str]) -> int:
    """Run the command `interlock run`.

    Args:
        words: what follows `run`.

    Returns:
        The exit status.
    """
    try:
        order = parse(words)
        if (order.store or os.environ.get("INTERLOCK_URL") or "").partition(":")[0].lower() == "memory":
            raise Usage("memory:// is seen by one process only and guards nothing here: give --store file:///folder")
    except HelpWanted:
        print(help_text(), end="")
        return 0
    except Usage as error:
        return fail(USAGE, f"{error} (see interlock run --help)")
    try:
        path = look_up(order.command[0])
    except NotRunnable as error:
        return fail(UNAVAILABLE, str(error))
    _fill_standard_streams()
    return Guard(order, path).run()


def _fill_standard_streams() -> None:
    """Let no file of ours become descriptor 0, 1 or 2 where those were closed; the command finds them closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


class Guard:
    """One run: the lock, the command, and the signals between them.

    Args:
        order: what to do.
        path: of the program.
    """

    def __init__(self, order: Order, path: str) -> None:
        self._order = order
        self._signals = Signals()
        self._lost = False
        with_keep = order.keep
        self._child = Child(path, order.command, self._signals, with_keep)

    def run(self) -> int:
        """Wait for the lock, run the command, release; return the exit status."""
        with closing(self._signals):
            try:
                self._signals.listen()
                return self._with_store()
            except WaitBroken as signalled:
                self._tell(f"gave up waiting for {self._order.name!r}: signal {_name_of(signalled.number)}")
                return BY_SIGNAL + signalled.number
            finally:
                self._child.discard()
