"""KeyboardInterrupt, at any moment of an acquire or a release: nothing is left behind."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import interlock
from interlock.testing.waiting import eventually
from interlock.testing.world import Kind, World

LIBRARY = os.path.dirname(interlock.__file__) + os.sep
TESTING = os.path.join(LIBRARY, "testing") + os.sep
OUT_OF_REACH = {"__del__", "__exit__"}
"""No code of ours runs yet when `__exit__` is interrupted at its entry; every `with` in Python has that gap."""

quiet = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interrupt may hit a generator that is being closed; Python reports that and goes on."""


def interrupted_at(moment: int, work: Callable[[], object], seen: list[str] | None = None) -> bool:
    """Call `work` and raise KeyboardInterrupt in it at the so-many-th moment at which Python handles signals.

    Those are the entry of a function and the return of a built-in one; only the library's own are counted.

    Args:
        moment: from 0.
        work: what to interrupt.
        seen: where it was interrupted is added here.

    Returns:
        False if it had fewer moments, and came to its end.
    """
    left = moment

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        path = frame.f_code.co_filename
        if event not in ("call", "c_return") or not path.startswith(LIBRARY) or path.startswith(TESTING):
            return
        if event == "call" and frame.f_code.co_name in OUT_OF_REACH:
            return
        left -= 1
        if left == -1:
            sys.setprofile(None)
            if seen is not None:
                seen.append(f"{event} at {path.removeprefix(LIBRARY)}:{frame.f_lineno}")
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


@quiet
def test_an_acquire_interrupted_at_any_moment_leaves_nothing(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lock = kind.make(world.connect(), world.name)
    lock.acquire().release()
    grants: list[Any] = []
    where: list[str] = []
    left_behind = []
    moment = 0
    while interrupted_at(moment, lambda: grants.append(lock.acquire()), where):
        moment += 1
        if not world.nothing_left():
            left_behind.append(where[-1])
            world.eye.evict(world.name)
    assert left_behind == []
    assert moment > 5
    assert grants[0].release() is True
    assert lock.owned() is False


@quiet
def test_a_body_interrupted_at_any_moment_of_its_lock_leaves_nothing(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lock = kind.make(world.connect(), world.name)
    where: list[str] = []
    left_behind = []

    def work() -> None:
        with lock:
            pass

    work()
    moment = 0
    while interrupted_at(moment, work, where):
        moment += 1
        if not world.nothing_left():
            left_behind.append(where[-1])
            world.eye.evict(world.name)
    assert left_behind == []
    assert moment > 10


@quiet
def test_a_release_interrupted_at_any_moment_can_be_done_again(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lost: list[object] = []
    where: list[str] = []
    lock = kind.make(world.connect(), world.name, on_lost=lost.append)
    lock.acquire().release()
    moment = 0
    interrupted = True
    while interrupted:
        grant = lock.acquire()
        interrupted = interrupted_at(moment, grant.release, where)
        grant.release()
        assert world.nothing_left(), where[-1]
        assert not grant.lost, where[-1]
        moment += 1
    assert lost == []
    assert moment > 3


def test_a_wait_interrupted_by_a_signal_leaves_nothing(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    holder = kind.rival(world.connect(), world.name).acquire()
    lock = kind.make(world.connect(), world.name)
    main = threading.main_thread().ident
    assert main == threading.get_ident(), "signals reach the main thread only"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted = False

    def strike() -> None:
        world.until_waiting(1)
        signal.pthread_kill(main, signal.SIGINT)

    striker = world.actor().start(strike)
    try:
        lock.acquire(timeout=20)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        striker.result(20)
        signal.signal(signal.SIGINT, before)
    assert interrupted
    eventually(lambda: [view.id for view in world.eye.claims(world.name)] == [holder.id])
    assert lock.owned() is False
    assert holder.release() is True
