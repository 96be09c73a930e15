"""KeyboardInterrupt, at any moment of an acquire or a release: nothing is left behind."""

import os
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any

import pytest

import interlock
from interlock.testing.waiting import RENEWED, moment, since, until_renewed
from interlock.testing.world import Kind, World

LIBRARY = os.path.dirname(interlock.__file__) + os.sep
TESTING = os.path.join(LIBRARY, "testing") + os.sep
EXIT = {"__exit__", "leave"}
"""What is called at the end of a `with` block: under its name in older versions, too."""

quiet = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interrupt may hit a generator that is being closed; Python reports that and goes on."""


def interrupted_at(
    moment: int, work: Callable[[], object], seen: list[str] | None = None, but: Collection[str] = ()
) -> bool:
    """Call `work` and raise KeyboardInterrupt in it at the so-many-th moment at which Python handles signals.

    Those are the entry of a function and the return of a built-in one; only the library's own are counted.

    Args:
        moment: from 0.
        work: what to interrupt.
        seen: where it was interrupted is added here.
        but: names of functions whose entries do not count.

    Returns:
        False if it had fewer moments, and came to its end; an interrupt that Python swallows, in a generator that is
        being closed, counts.
    """

    def interrupt() -> None:
        raise KeyboardInterrupt

    try:
        return called_at(moment, work, interrupt, seen, but)
    except KeyboardInterrupt:
        return True


def called_at(
    moment: int,
    work: Callable[[], object],
    handler: Callable[[], object],
    seen: list[str] | None = None,
    but: Collection[str] = (),
) -> bool:
    """Call the handler of a signal at a moment of some work; return False if it had fewer moments."""
    left = moment

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        path = frame.f_code.co_filename
        if event not in ("call", "c_return") or not path.startswith(LIBRARY) or path.startswith(TESTING):
            return
        if event == "call" and frame.f_code.co_name in but:
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


def interrupted_entering(names: set[str], work: Callable[[], object]) -> bool:
    """Call `work` and raise KeyboardInterrupt where a function of the library with one of these names is entered.

    The traceback is dropped: as long as it lives, so do the frames in it.

    Returns:
        False if none was entered.
    """

    def profile(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_name in names and frame.f_code.co_filename.startswith(LIBRARY):
            sys.setprofile(None)
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
        if grants:
            grants.pop().release()  # it was swallowed
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
            assert lock.owned() is True
            with lock:  # who enters again gives back what was left
                assert len(world.holders()) == 1
            assert world.nothing_left(), where[-1]
    # The entry of `__exit__`, where no code of ours runs yet; not each run has as many moments before it.
    assert len(set(left_behind)) <= 1, left_behind
    assert moment > 10


def test_a_body_left_without_its_exit_is_released_at_the_next_renewal(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lost: list[object] = []
    lock = kind.make(world.connect(), world.name, ttl=2 * RENEWED, on_lost=lost.append)
    grants: list[Any] = []

    def work() -> None:
        with lock as grant:
            grants.append(grant)

    started = moment()
    for _ in range(3):
        with kind.rival(world.connect(), world.name, timeout=20):
            pass
        assert interrupted_entering(EXIT, work)
        assert not world.nothing_left()
        assert grants[-1].held
        started = moment()
        world.until_free()
    assert since(started) < 2 * RENEWED * 2 / 3, "it must not have waited for the end of the lease"
    assert [grant.held or grant.lost for grant in grants] == [False] * 3
    assert lost == []


def test_a_body_of_a_grant_left_without_its_exit_is_released_too(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lock = kind.make(world.connect(), world.name, ttl=RENEWED)
    grants: list[Any] = []

    def work() -> None:
        with lock.acquire(timeout=5) as grant:
            grants.append(grant)

    assert interrupted_entering(EXIT, work)
    assert grants[0].held
    world.until_free()
    assert (grants[0].held, grants[0].lost) == (False, False)


def test_who_is_in_the_body_is_not_taken_for_one_who_left(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    lock = kind.make(world.connect(), world.name, ttl=RENEWED)
    with lock as grant:
        until_renewed(grant, 2)  # who left is found at the next renewal
    with ExitStack() as stack:
        grant = stack.enter_context(lock)
        until_renewed(grant, 2)
    exit = lock.__exit__
    grant = lock.__enter__()
    until_renewed(grant, 2)
    exit(None, None, None)
    assert world.nothing_left()
    grant = lock.__enter__()
    until_renewed(grant, 2)
    lock.__exit__(None, None, None)
    assert world.nothing_left()


@quiet
def test_an_interrupted_exit_of_a_nested_body_leaves_the_outer_one(world_of_threads: World) -> None:
    world = world_of_threads
    lock = world.connect().rlock(world.name)
    where: list[str] = []

    def nested() -> None:
        with lock:
            pass

    lock.acquire().release()
    moment = 0
    interrupted = True
    while interrupted:
        with lock as outer:
            interrupted = interrupted_at(moment, nested, where)
            assert outer.held is True, where[-1]
            assert len(world.holders()) == 1, where[-1]
        assert world.nothing_left(), where[-1]
        moment += 1
    assert moment > 10


@quiet
def test_an_interrupted_re_entry_leaves_the_outer_hold_to_be_released(world_of_threads: World) -> None:
    world = world_of_threads
    lock = world.connect().rlock(world.name)
    where: list[str] = []

    def take(inner: list[Any]) -> None:
        inner.append(lock.acquire())

    moment = 0
    interrupted = True
    while interrupted:
        outer = lock.acquire()
        inner: list[Any] = []
        interrupted = interrupted_at(moment, partial(take, inner), where)
        assert outer.held is True, where[-1]
        for grant in [*inner, outer]:
            assert grant.release() is True, where[-1]
        assert world.nothing_left(), where[-1]
        assert lock.owned() is False, where[-1]
        moment += 1
    assert moment > 3


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
