"""Interrupts and signals: Ctrl-C leaves no claim behind, and a handler that uses locks never causes a hang."""

import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.testing.contract.fixtures import needs_signals, of_threads, struck_while_it_waits
from interlock.testing.faults import Around
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import eventually

LIBRARY = os.path.dirname(interlock.__file__) + os.sep
TESTING = os.path.join(LIBRARY, "testing") + os.sep

STRIDE = 6
"""A test interrupts every 6th moment, and has a parameter for the first one: together they interrupt all."""

quiet = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interrupt may come while a socket is made; Python then closes it with a warning."""


def called_at(
    moment: int, work: Callable[[], object], handler: Callable[[], object], seen: list[str] | None = None
) -> bool:
    """Call a signal handler at a given moment of some work; return False if the work has fewer moments.

    Python runs signal handlers at the entry of a function and at the return of a built-in one; those of the library
    count.

    Args:
        moment: the number of the moment, from 0.
        work: the work to interrupt.
        handler: the interrupting function.
        seen: gets the code position of the interrupt.
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
    """Raises KeyboardInterrupt at one step: before or after the step is performed."""

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
def test_an_acquire_that_is_interrupted_leaves_nothing(world: ContractWorld, kind: LockKind, when: str) -> None:
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
def test_a_release_that_is_interrupted_is_done_all_the_same(world: ContractWorld, kind: LockKind, when: str) -> None:
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
def test_a_body_whose_end_is_interrupted_leaves_nothing(world: ContractWorld, kind: LockKind, when: str) -> None:
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


@quiet  # Python closes a socket that was being made with a warning
@needs_signals
@of_threads
def test_a_wait_interrupted_by_a_signal_leaves_nothing(world: ContractWorld, kind: LockKind) -> None:
    holder = kind.rival(world.connect(), world.name).acquire()
    lock = kind.make(world.connect(), world.name)
    with struck_while_it_waits(world, signal.SIGINT, signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(timeout=20)
    eventually(lambda: [view.id for view in world.eye.claims(world.name)] == [holder.id])
    assert lock.owned() is False
    assert holder.release() is True


@pytest.mark.parametrize("first", range(STRIDE))
@pytest.mark.parametrize("same", [False, True], ids=["another name", "the same name"])
@of_threads
def test_a_handler_that_locks_at_any_moment_hangs_nobody(
    world: ContractWorld, same: bool, first: int, locks: Any
) -> None:
    outer = locks.lock(world.name)
    inner = locks.lock(world.name if same else world.fresh_name())
    rival = world.eye.lock(world.name)
    grants: list[Any] = []
    where: list[str] = []
    refused: list[str] = []

    def handler() -> None:
        try:
            grant = inner.acquire(timeout=0 if same else 5)
            if grant is not None:
                grant.release()
        except StoreError as error:
            refused.append(f"{where[-1]}: {error}")

    def acquire() -> None:
        grants.append(outer.acquire())

    def release() -> None:
        grants.pop().release()

    def strikes(work: Callable[[], None]) -> Any:
        return world.actor().start(partial(called_at, number, work, handler, where)).result(20)

    acquire()
    release()
    number, struck = first, 1
    while struck:
        struck = strikes(acquire)
        assert rival.acquire(blocking=False) is None, where[-1]
        struck += strikes(release)
        eventually(world.nothing_left)
        number += STRIDE
    assert number > first + STRIDE
    # A SQLite file is locked by the interrupted step itself.
    assert all(re.search("interrupted a step of its own thread|is locked", error) for error in refused), refused
