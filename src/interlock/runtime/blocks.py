"""The grants of one lock object, and the blocks that acquired them.

A `with` statement enters and leaves from one frame, so the frame identifies the block, even if another thread or task
closes its generator.  The record keeps the frame and not its `id()`: Python reuses the address of an ended frame.
"""

import sys
import warnings
from collections.abc import Callable
from opcode import opmap
from types import FrameType
from typing import Any, TypeAlias

_WITH = {opmap[name] for name in ("BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL") if name in opmap}
_BACK = 2 if "LOAD_SPECIAL" in opmap else 0  # since Python 3.14, `with` loads `__enter__` and then calls it
_STACKS = {"contextlib", "unittest.case", "unittest.async_case"}
CallSite: TypeAlias = FrameType | tuple[FrameType | None]
"""The frame of a `with` statement; or a tuple with another caller's frame or None.

Code compiled by Cython has no frames: all its tasks may show the frame of one Python function.
"""

Acquisition: TypeAlias = tuple[CallSite | None, Any, Any]
"""The call site of the block, None without a block; the grant or run; and the thread or task that acquired it.

It is a plain tuple: with a named tuple, acquiring and releasing a lock in memory took 2 % longer.
"""


def call_site() -> CallSite:
    """Return the call site where the caller's caller enters a block."""
    try:
        frame = sys._getframe(2)
    except ValueError:  # called from C code
        return (None,)
    if frame.f_code.co_code[frame.f_lasti - _BACK] in _WITH:
        return frame
    # The frame of an exit stack returns before the block ends, and would keep its locals and callers alive.
    return (None if frame.f_globals.get("__name__") in _STACKS else frame,)


class Acquired(list[Acquisition]):
    """The acquisitions that were not released, in order.

    A grant or run has `_over`, True once it was released or the caller knows of its loss, and `inherited`, True in a
    forked child.  It may have two more attributes: `_hold` is one object shared by all handles of a hold, or None if
    the grant or run holds nothing; `_body` is the caller that is in the `with` block of the grant itself.  Threads
    may use this class concurrently: each change is one list operation.
    """

    _many = 16
    _most = 1000

    def note(self, site: CallSite | None, begun: object, owner: object) -> None:
        """Record an acquisition; forget ended ones if there are many, and blocks if too many."""
        if len(self) >= self._many:
            by_hand = len(self) >= self._most  # a block left without its end; the few latest may be open
            for each in self.copy():
                at, earlier, _ = each
                over = earlier._over and (at is None or (by_hand and isinstance(at, tuple)))
                if over or (at is None and getattr(earlier, "lost", False)):
                    self.forget(each)
            self._many = 16 + 2 * len(self)
        self.append((site, begun, owner))

    def forget(self, each: Acquisition) -> bool:
        """Remove an acquisition; return False if another thread was faster."""
        try:
            self.remove(each)
            return True
        except ValueError:
            return False

    def drop(self, begun: object) -> None:
        """Remove an interrupted acquisition, if it was recorded."""
        for each in self.copy():
            if each[1] is begun:
                self.forget(each)

    def end(self, caller: Callable[[], object], lock: object) -> list[Any]:
        """Return the grant of the ending block; if it is unclear, nothing, with a warning.

        Args:
            caller: returns the thread or task that ends the block.
            lock: the lock object, for the warning.

        Returns:
            The grant or run; also a grant that its owner re-acquired in the block, like a Condition.
        """
        frame: object = self
        try:
            frame = sys._getframe(2)
            last = self[-1]
            if last[0] is frame:  # the usual case
                self.remove(last)
                return [last[1]]
        except (ValueError, IndexError):  # called from C code; or nothing was entered
            pass
        known = self.copy()  # an iterator of a list ends early if another thread shortens the list
        for each in reversed(known):
            site, _, owner = each
            if site is frame:
                return self._take(each)
            if isinstance(site, tuple) and site[0] is frame and owner is caller():
                break
        owner = caller()
        loose = [each for each in known if isinstance(each[0], tuple)]
        loose = [each for each in loose if not each[1].inherited] or loose  # a forked child's own blocks go first
        own = [each for each in loose if each[2] is owner]
        ended = all(who is not None and who.done() for _, _, who in loose)
        fit = [each for each in own if each[0] == (frame,)] or own or (loose if ended else [])
        held = [getattr(begun, "_hold", begun) for _, begun, _ in fit]
        if fit and len({*held} - {None}) <= 1:  # an acquisition that holds nothing comes first
            return self._take(fit[held.index(None) if None in held else -1])
        warnings.warn(
            f"The end of a block of {lock!r} released nothing: {len(fit) or 'no'} open blocks of the caller match. "
            f"Use a `with` statement, or pass the grant to the stack: `stack.enter_context(lock.acquire())`.",
            RuntimeWarning,
            stacklevel=3,
        )
        return []

    def _take(self, each: Acquisition) -> list[object]:
        _, begun, owner = each
        found = self.copy()
        if not self.forget(each):
            return []
        if found[-1] is each or not begun._over:
            return [begun]
        later = [one for site, one, who in found[found.index(each) :] if site is None and who is owner]
        return [begun, *[one for one in later if not one._over and getattr(one, "_body", None) is None][:1]]
