"""The fast paths through a line of files, compiled: a step without an interpreter between its system calls.

A process that has slept runs Python code five times slower than one that is busy, and most locks are given back by
the first and taken by the second.  What `_quick.c` can't do at once it leaves alone, and says so; the step then goes
the way of `fastpath` and `plan`.

The descriptors in `Liveness.others` and `Liveness.wakeups` are closed by other threads.  The interpreter's lock
keeps them from that while compiled code uses one; without it (a free-threaded Python) compiled code is told of none,
and leaves to Python what needs them: taking over from, waiting for and handing over to somebody else.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from interlock.core.claims import Claim
from interlock.core.queue import OCCUPIED, REFUSED, EnterResult
from interlock.stores.files.fastpath import FastPath, jitter
from interlock.stores.files.linefile import LineFile
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.plan import LOOK_AGAIN

NOT_DONE, DONE, DONE_THERE = 0, 1, 2
OTHERS_WAIT = -2


def has_gil() -> bool:
    """Tell whether one thread at a time runs Python code, as everywhere but in a free-threaded Python."""
    is_enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return is_enabled()


class CompiledPath:
    """The compiled ways of one store.

    Args:
        native: the compiled module.
        fastpath: the same ways in Python.
        liveness: returns this process's liveness in the folder.
    """

    def __init__(self, native: Any, fastpath: FastPath, liveness: Callable[[], Liveness]) -> None:
        self._enter = native.enter
        self._join = native.join
        self._leave = native.leave
        self._tail = fastpath.tail
        self._liveness = liveness
        self._has_gil = has_gil()

    def enter(self, line: LineFile, claim: Claim, wakeup: Any, wait: bool) -> EnterResult | None:
        """Take a free lock, stand in line for one that is held, or find that it can't be had now.

        Args:
            line: the files; the caller has their mutex, and not their guard.
            claim, wakeup, wait: as in `Queue.enter`; for a claim that did not enter before.

        Returns:
            The result; None if nothing was done.
        """
        id, spec, _ = claim
        liveness = self._liveness()
        token = liveness.token
        end = self._tail(line, claim, token)
        if wakeup is not None:
            return self._stand(line, claim, wakeup, end, token) if spec.capacity == 1 else None
        others = liveness.others if self._has_gil else {}
        fence = self._enter(line, id, spec.capacity, spec.ttl, end, token, others)
        if fence > 0:
            return EnterResult("using", fence)
        if fence == NOT_DONE or (fence == OTHERS_WAIT and not wait):
            return None
        return OCCUPIED if wait else REFUSED

    def _stand(self, line: LineFile, claim: Claim, wakeup: Any, end: bytes, token: str) -> EnterResult | None:
        others = self._liveness().others if self._has_gil else {}
        joined = self._join(line, claim.id, claim.spec.ttl, end, wakeup.pipe.number, token, others)
        if joined is None:
            return None
        before, seconds = joined
        wakeup.stand_in(line.waiters)
        wakeup.watch((before,))
        return EnterResult("pending", 0, jitter(max(0.001, min(LOOK_AGAIN, seconds))))

    def leave(self, line: LineFile, claim: Claim) -> bool:
        """Leave a line in which nobody waits, or hand over to the first in it, and tell it.

        Args:
            line: the files; the caller has their mutex, and not their guard.
            claim: the one that holds.

        Returns:
            False if nothing was done.
        """
        liveness = self._liveness()
        spec = claim.spec
        others, wakeups = (liveness.others, liveness.wakeups) if self._has_gil else ({}, {})
        done = self._leave(line, claim.id, spec.capacity, liveness.token, others, wakeups)
        if done == DONE_THERE:
            os.sched_yield()  # as in `FileQueue._ring_freely`
        return bool(done != NOT_DONE)
