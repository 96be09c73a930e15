"""A release by a thread: interrupts, and blocks that were left without their exit."""

from typing import Any

import pytest

from interlock.core.errors import LockLost
from interlock.locks.sync import grants as of_threads
from interlock.client._sync.grants import Grant
from interlock.locks.unreleased import kept
from tests.support.spied_grants import NOW, Colour
from tests.support.spied_store import away


def test_an_interrupt_at_the_end_of_a_block_releases_again_and_a_failure_does_not() -> None:
    asked: list[str] = []

    class Ends:
        def __init__(self, error: BaseException) -> None:
            self._error: BaseException | None = error

        def _end(self, block: Any) -> None:
            asked.append(type(self._error).__name__)
            error, self._error = self._error, None
            if error is not None:
                raise error

    for error in (KeyboardInterrupt(), away()):
        with pytest.raises(type(error)):
            of_threads.leave(Ends(error), [], None, None, None)
    assert asked == ["KeyboardInterrupt", "NoneType", "StoreError"]


def test_a_grant_whose_block_is_known_is_kept_until_that_is_left(threads: Colour) -> None:
    grant = threads.grant()
    with grant:
        assert kept == {"a": grant}
    assert kept == {}


def test_a_handle_in_a_block_keeps_its_hold(threads: Colour) -> None:
    hold = threads.grant()
    with threads.reentry(hold):
        assert kept == {"a": hold}
    both = threads.several(threads.grant("b"), threads.grant("c"))
    with both:
        assert list(kept) == ["b", "c"]
    assert kept == {}


def test_an_interrupt_while_a_block_is_entered_releases(threads: Colour) -> None:
    def interrupted(grant: object) -> None:
        raise KeyboardInterrupt

    grant = threads.grant()
    grant.__class__ = type("Spied", (Grant,), {"__slots__": (), "_keep_for_block": interrupted})
    with pytest.raises(KeyboardInterrupt), grant:
        pass
    assert (grant._state, threads.asked) == ("released", ["leave a"])
    lost = threads.grant("b")
    lost._deadline = NOW
    with pytest.raises(LockLost), lost:
        pass
    assert threads.asked == ["leave a"], "who could not enter it has it still"
