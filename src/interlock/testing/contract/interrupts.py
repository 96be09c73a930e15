"""KeyboardInterrupt while an acquire or a release waits or talks: the claim is taken out before it goes on."""

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import interlock
from interlock.testing.contract.fixtures import of_threads
from interlock.testing.faults import Around
from interlock.testing.world import Kind, World

LIBRARY = os.path.dirname(interlock.__file__) + os.sep
TESTING = os.path.join(LIBRARY, "testing") + os.sep

quiet = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interrupt may hit a socket that is just being made; Python closes it, with a warning."""


def called_at(
    moment: int, work: Callable[[], object], handler: Callable[[], object], seen: list[str] | None = None
) -> bool:
    """Call the handler of a signal at a moment of some work; return False if it had fewer moments.

    Python handles signals at the entry of a function and the return of a built-in one; the library's own are counted.

    Args:
        moment: from 0.
        work: what is interrupted.
        handler: what interrupts it.
        seen: where it was interrupted is added here.
    """
    left = moment

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        path = frame.f_code.co_filename
        if event not in ("call", "c_return") or not path.startswith(LIBRARY) or path.startswith(TESTING):
            return
        left -= 1
        if left == -1:
            sys.setprofile(None)
            if seen is not None:
                seen.append(f"{event} at {path.removeprefix(LIBRARY)}:{frame.f_lineno}")
            handler()

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return left < 0


class Interrupting(Around):
    """Raises KeyboardInterrupt at one step: `before` it is done, or `after` it was done."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.step = self.when = ""

    def _strike(self, step: str, when: str) -> None:
        if (step, when) == (self.step, self.when):
            self.step = ""
            raise KeyboardInterrupt

    def before(self, step: str, args: Any) -> Any:
        self._strike(step, "before")
        return args

    def after(self, step: str, args: Any, answer: Any) -> Any:
        self._strike(step, "after")
        return answer


@pytest.mark.parametrize("when", ["before", "after"])
@of_threads
def test_an_acquire_that_is_interrupted_leaves_nothing(world: World, kind: Kind, when: str) -> None:
    locks, interrupting = world.connect_with(Interrupting)
    lock = kind.make(locks, world.name)
    interrupting.step, interrupting.when = "enter", when
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    assert world.nothing_left()
    assert lock.owned() is False
    assert lock.acquire().release() is True


@pytest.mark.parametrize("when", ["before", "after"])
@of_threads
def test_a_release_that_is_interrupted_is_done_all_the_same(world: World, kind: Kind, when: str) -> None:
    lost: list[object] = []
    locks, interrupting = world.connect_with(Interrupting)
    grant = kind.make(locks, world.name, on_lost=lost.append).acquire()
    interrupting.step, interrupting.when = "leave", when
    with pytest.raises(KeyboardInterrupt):
        grant.release()
    assert world.nothing_left()
    assert grant.held is grant.lost is False
    assert grant.release() is False
    assert lost == []


@pytest.mark.parametrize("when", ["before", "after"])
@of_threads
def test_a_body_whose_end_is_interrupted_leaves_nothing(world: World, kind: Kind, when: str) -> None:
    locks, interrupting = world.connect_with(Interrupting)
    lock = kind.make(locks, world.name)
    with pytest.raises(KeyboardInterrupt):
        with lock:
            interrupting.step, interrupting.when = "leave", when
    assert world.nothing_left()
    with pytest.raises(KeyboardInterrupt):
        with lock:
            raise KeyboardInterrupt
    assert world.nothing_left()
    assert lock.owned() is False
