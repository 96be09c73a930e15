"""SQLite: an interrupt after any call of a step leaves no transaction open, so a release still completes."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock.stores.sqlite import database


class Interrupt:
    """Raises KeyboardInterrupt right after a call into SQLite, like a signal that arrives during the call.

    Args:
        number: of the call.
    """

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: Any, event: str, function: Any) -> None:
        if event == "c_return" and frame.f_code.co_filename == database.__file__:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    def strikes(self, call: Callable[[], object]) -> bool:
        """Make a call; return True if it was interrupted."""
        sys.setprofile(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


@pytest.mark.parametrize("what", ["acquire", "release"])
def test_an_interrupt_in_any_call_leaves_no_claim(what: str, url: str, locks: Any) -> None:
    with interlock.connect(url) as eye:
        lock = locks.lock("book")
        lock.acquire().release()
        interrupts = 0
        while True:
            grant = lock.acquire(timeout=5) if what == "release" else None
            call = lock.acquire if grant is None else grant.release
            if not Interrupt(interrupts + 1).strikes(call):
                break
            interrupts += 1
            assert eye.claims() == []
        assert interrupts > 3
