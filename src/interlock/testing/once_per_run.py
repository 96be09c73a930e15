"""The fixture `once_per_run`: what is made once for all workers of a test run, and undone once.

Each worker that uses a name holds a reader lock on it until it ends, so a killed worker stops using it too.  A worker
begins or ends to use a name only while it holds the name's turn: nobody begins while the last worker undoes.
"""

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from interlock.api._sync.locks import Locks
from interlock.client._sync.grants import Grant
from interlock.client._sync.lock import Lock
from interlock.core.errors import LockError, NotKept

KEEP = 7 * 86400.0  # seconds: longer than a test run
POLL_INTERVAL = 0.05  # seconds between two checks of the other workers, after the tests of this one

Undo = Callable[[Any], object]


class Use:
    """The use of a name by this worker.

    Attributes:
        grant: the held reader lock.
        undo: the function that undoes `make`; None to leave what was made.
    """

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.undo: Undo | None = None


class OncePerRun:
    """What the fixture returns: called with a name and `make`, it calls `make` in one of the workers.

    Args:
        locks: a connection that all workers of this test run share with no other run.
    """

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self._uses: dict[str, Use] = {}
        self._at_end = ExitStack()

    def __call__(self, name: str, make: Callable[[], Any], undo: Undo | None = None) -> Any:
        """Return the result of `make`, which runs once in the whole test run.

        Args:
            name: of what is made.
            make: makes it; its result goes through JSON.  If it raises, the next caller calls it again.
            undo: called with the result, by the last worker that used the name; None to leave what was made.  If a
                worker is killed in it, the next one calls it again.

        Raises:
            LockError: a worker was killed while it undid, and this call has no `undo`.
        """
        with self._turn(name):
            use = self._uses.get(name)
            if use is None:
                self._finish_undo(name, undo)
                grant = self._locks.rwlock(f"use:{name}").read().acquire()
                assert grant is not None  # it has no time limit
                use = self._uses[name] = Use(grant)
                self._at_end.callback(self._leave, name, use)
            use.undo = undo or use.undo
        return self._locks.once(_made(name), keep=KEEP).run(make)  # outside of the turn: nobody undoes what is used

    def end(self) -> None:
        """Use nothing any more, in the reverse order; undo what no other worker uses."""
        self._at_end.close()

    def wait(self) -> None:
        """Wait until all that has an undo is undone, in place of workers that are killed before they can undo it.

        An exception of `undo` is a warning here, since the worker has no test that could fail.
        """
        waiting = {name: use for name, use in self._uses.items() if use.undo is not None}
        while waiting:
            for name, use in reversed(list(waiting.items())):
                try:
                    with self._turn(name):
                        if self._undone(name, use):
                            del waiting[name]
                except Exception as error:
                    del waiting[name]
                    warnings.warn(f"once_per_run could not undo {name!r}: {error!r}", stacklevel=2)
            if waiting:
                time.sleep(POLL_INTERVAL)

    def close(self) -> None:
        """Close the connection."""
        self._locks.close()

    def _turn(self, name: str) -> Lock:
        return self._locks.lock(f"turn:{name}")

    def _leave(self, name: str, use: Use) -> None:
        with self._turn(name):  # so that the last worker, not one that waits, undoes it
            use.grant.release()
            self._undone(name, use)

    def _undone(self, name: str, use: Use) -> bool:
        """Undo if no worker uses the name; return False if one does.  The caller has the turn."""
        if use.undo is None or not (self._locks.is_done(_made(name)) or self._locks.is_done(_undoing(name))):
            return True
        if self._locks.claims(f"use:{name}"):
            return False
        undo, use.undo = use.undo, None
        self._undo(name, undo)
        return True

    def _finish_undo(self, name: str, undo: Undo | None) -> None:
        """Finish the undo that a killed worker began.  The caller holds the lock of the turn."""
        if self._locks.is_done(_undoing(name)):
            if undo is None:
                raise LockError(
                    f"The undo of {name!r} was not finished: it failed, or its worker was killed. Pass undo= in "
                    f"every call of once_per_run for {name!r}, so that another worker can finish it."
                )
            self._undo(name, undo)

    def _undo(self, name: str, undo: Undo) -> None:
        """Undo and forget; if this worker is killed meanwhile, a record tells the next worker that the undo began."""
        self._locks.once(_undoing(name), keep=KEEP).run(lambda: None)
        if self._locks.is_done(_made(name)):
            result = None
            with suppress(NotKept):
                result = self._locks.once(_made(name), keep=KEEP).run(lambda: None)  # the recorded one
            undo(result)
            self._locks.forget(_made(name))
        self._locks.forget(_undoing(name))


def _made(name: str) -> str:
    return f"made:{name}"


def _undoing(name: str) -> str:
    return f"undoing:{name}"
