"""The most common steps of a line as compiled code; `line.py` handles all others.

Other threads may close the descriptors in `Liveness.others`.  The GIL prevents that while compiled code uses them.
On a free-threaded Python the compiled code gets none of them, and declines the steps that need them: waiting behind a
claim of another process, and handing over to one.
"""

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from interlock.core.claims import MICROS, Claim
from interlock.core.queue import BUSY, OCCUPIED, REFUSED, EnterResult, Wakeable
from interlock.runtime import clock, log
from interlock.runtime.process import pid
from interlock.storekit._sync.step_queue import pause_before_look
from interlock.stores.files.line_file import give_turn
from interlock.stores.files.slots import tail
from interlock.stores.files.steps import FileSteps
from interlock.stores.files.system import system
from interlock.stores.files.wakeups import FileWaiter

INTERFACE = 2
"""The version of the arguments and results of `_fast_path.c`."""
native = None
"""The compiled module; None if it is not installed, or INTERLOCK_PURE is set in the environment."""
if not os.environ.get("INTERLOCK_PURE"):
    with suppress(ImportError):
        native = import_module("interlock.stores.files._fast_path")
    if native is not None and getattr(native, "INTERFACE", 1) != INTERFACE:
        log.warn(
            "The compiled part of the file store is that of another version, and not used. Install interlock again."
        )
        native = None

ATTEMPTS = range(4)  # a step needs at most three pipes of other processes
FAST_REFUSED, FAST_LEFT, FAST_LEFT_WITH_WAITERS = 0, 1, 2
OTHERS_WAIT, GUARD_IS_BUSY = -2, -3


class Quick:
    """The compiled steps of the lines of a folder.

    Args:
        native: the compiled module.
        steps: the lines.
    """

    def __init__(self, native: Any, steps: FileSteps) -> None:
        self._enter = native.enter
        self._leave = native.leave
        self._steps = steps
        has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        self._others = steps.liveness.others if has_gil else {}

    def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult | None:
        """Take a free lock, enter the line of a held one, or stay in the line.

        Args:
            claim, waiter, may_queue, already_queued: as in `AsyncQueue.enter`.

        Returns:
            The result; None if Python must perform the step.
        """
        id, spec, who = claim
        steps = self._steps
        if spec.once or (waiter is not None and not (may_queue and spec.capacity == 1)):
            return None
        line = steps.lines.get(spec.key) or steps.new_line(spec.key)
        if line is None:
            return None
        now = clock.now()
        if now >= steps.trusted:
            try:
                steps.trust()
            except OSError:
                return None  # the step in Python raises the error
        pipe = 0
        if isinstance(waiter, FileWaiter):
            # Before the step, because another process may promote the claim directly after it.
            steps.waiters.add(id, waiter)
            pipe = int(waiter.channel() or 0)
        token = steps.liveness.token
        end = tail(
            spec.units,
            spec.capacity,
            int(spec.ttl * MICROS),
            False,
            token,
            steps.origin.process_name,
            who,
            spec.label,
        )
        for _ in ATTEMPTS:
            with line.section.mutex:
                if line.section.taken or line.retired or not line.is_there(now):
                    return None
                answer = self._enter(
                    line.fd, line.mark, line.head, id, spec.capacity, spec.ttl, end, pipe, token, self._others, pid(),
                    already_queued,
                )  # fmt: skip
            if answer.__class__ is not str:
                break
            if not self._opens(answer):
                return None
        else:
            return None
        if answer.__class__ is tuple:
            before, micros, places = answer
            waiter.watch((before,))  # type: ignore[union-attr]
            return EnterResult("pending", poll_after=pause_before_look(steps.poll_after, micros, places))
        if answer > 0:
            if waiter is not None:
                steps.waiters.remove(id)  # like the step in Python: nobody must wake its pipe, which others reuse
            return EnterResult("using", answer)
        if answer == GUARD_IS_BUSY and may_queue:  # the step in Python would keep others waiting for longer
            return BUSY
        if answer in (FAST_REFUSED, GUARD_IS_BUSY) or (answer == OTHERS_WAIT and not may_queue):
            return None
        return OCCUPIED if may_queue else REFUSED

    def leave(self, claim: Claim) -> bool:
        """Leave, or hand over to the first waiter; return False to let Python do the step."""
        steps = self._steps
        line = steps.lines.get(claim.spec.key)
        if line is None:
            return False
        token = steps.liveness.token
        for _ in ATTEMPTS:
            with line.section.mutex:
                if line.section.taken or line.retired or not line.is_there(clock.now()):
                    return False
                outcome = self._leave(
                    line.fd, line.mark, line.head, claim.id, claim.spec.capacity, token, self._others, pid()
                )
            if outcome.__class__ is not str:
                break
            if not self._opens(outcome):
                return False
        else:
            return False
        if outcome.__class__ is tuple:
            steps.waiters.notify(*outcome)
            return True
        if outcome == FAST_LEFT_WITH_WAITERS:
            give_turn()  # otherwise the kernel, which expects a pipe's writer to sleep soon, delays the woken process
        return bool(outcome)

    def _opens(self, name: str) -> bool:
        """Open a pipe of another process that a step needs; return False to let Python do the step."""
        liveness = self._steps.liveness
        if self._others is not liveness.others:
            return False
        from interlock.stores.files.pipes import open_for_both  # POSIX only, like the compiled module

        with suppress(OSError), liveness.section.entered():
            liveness.open(name, open_for_both if "." in name else system.open_liveness)
            return True
        return False
