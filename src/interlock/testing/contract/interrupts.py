"""KeyboardInterrupt, at any line of an acquire or a release: nothing is left behind."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import interlock
from interlock.testing.waiting import eventually
from interlock.testing.world import Kind, World

LIBRARY = os.path.dirname(interlock.__file__) + os.sep
TESTING = os.path.join(LIBRARY, "testing") + os.sep


def interrupted_at(line: int, work: Callable[[], object]) -> bool:
    """Call `work` and raise KeyboardInterrupt in it before the library's so-many-th line; False if it has fewer."""
    left = [line]

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(LIBRARY) or path.startswith(TESTING):
            return None
        if event == "line":
            if left[0] == 0:
                sys.settrace(None)
                left[0] = -1
                raise KeyboardInterrupt
            left[0] -= 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_acquire_interrupted_at_any_line_leaves_nothing(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lock = kind.make(world.connect(), world.name)
    lock.acquire().release()
    left_behind = []
    for line in range(2000):
        grants: list[Any] = []
        if not interrupted_at(line, lambda: grants.append(lock.acquire())):  # noqa: B023 - called at once
            grants[0].release()
            break
        if not world.nothing_left():
            left_behind.append(line)
            world.eye.evict(world.name)
    else:
        raise AssertionError("an acquire of more than 2,000 lines?")
    assert line > 20
    assert left_behind == []
    assert lock.owned() is False


def test_a_body_interrupted_at_any_line_of_its_lock_leaves_nothing(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lock = kind.make(world.connect(), world.name)

    def work() -> None:
        with lock:
            pass

    work()
    left_behind = []
    for line in range(4000):
        if not interrupted_at(line, work):
            break
        if not world.nothing_left():
            left_behind.append(line)
            world.eye.evict(world.name)
    assert left_behind == []


def test_a_release_interrupted_at_any_line_can_be_done_again(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lost: list[object] = []
    lock = kind.make(world.connect(), world.name, on_lost=lost.append)
    lock.acquire().release()
    for line in range(2000):
        grant = lock.acquire()
        interrupted = interrupted_at(line, grant.release)
        grant.release()
        assert world.nothing_left(), line
        assert not grant.lost, line
        if not interrupted:
            break
    assert lost == []


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
