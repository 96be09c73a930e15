"""The fast paths through a line of files, compiled: a step without an interpreter between its system calls.

A process that has slept runs Python code five times slower than one that is busy, and most locks are given back by
the first and taken by the second.  What `_quick.c` can't do at once it leaves alone, and says so; the step then goes
the way of `quick` and `plan`.
"""

import os
from collections.abc import Callable
from typing import Any

from interlock.core.claims import Claim
from interlock.core.queue import OCCUPIED, REFUSED, EnterResult
from interlock.stores.files.fastpath import FastPath, jitter
from interlock.stores.files.linefile import WAITING_AT, LineFile
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.plan import LOOK_AGAIN

NOT_DONE, DONE, DONE_THERE = 0, 1, 2
OTHERS_WAIT = -2


class CompiledWays:
    """The compiled ways of one store.

    Args:
        native: the compiled module.
        quick: the same ways in Python.
        liveness: returns this process's liveness in the folder.
    """

    def __init__(self, native: Any, fastpath: FastPath, liveness: Callable[[], Liveness]) -> None:
        self._enter = native.enter
        self._join = native.join
        self._leave = native.leave
        self._tail = fastpath.tail
        self._liveness = liveness

    def enter(self, line: LineFile, claim: Claim, wakeup: Any, wait: bool) -> EnterResult | None:
        """Take a free lock, stand in line for one that is held, or find that it can't be had now.

        Args:
            line: the files; the caller has their mutex, and not their guard.
            claim, wakeup, wait: as in `Queue.enter`; for a claim that did not enter before.

        Returns:
            The turn; None if nothing was done.
        """
        id, spec, _ = claim
        liveness = self._liveness()
        token = liveness.token
        end = self._tail(line, claim, token)
        if wakeup is not None:
            return self._stand(line, claim, wakeup, end, token) if spec.capacity == 1 else None
        fence = self._enter(line, id, spec.capacity, spec.ttl, end, WAITING_AT, token, liveness.others)
        if fence > 0:
            return EnterResult("using", fence)
        if fence == NOT_DONE or (fence == OTHERS_WAIT and not wait):
            return None
        return OCCUPIED if wait else REFUSED

    def _stand(self, line: LineFile, claim: Claim, wakeup: Any, end: bytes, token: str) -> EnterResult | None:
        others = self._liveness().others
        joined = self._join(line, claim.id, claim.spec.ttl, end, WAITING_AT, wakeup.pipe.number, token, others)
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
        done = self._leave(
            line, claim.id, spec.capacity, WAITING_AT, liveness.token, liveness.others, liveness.wakeups
        )
        if done == DONE_THERE:
            os.sched_yield()  # as in `FileStore._ring_freely`
        return bool(done != NOT_DONE)
