"""Signals: a handler that interrupts a wait, waits within one, or locks at any moment hangs nobody."""

import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.contract.fixtures import main_thread, needs_signals
from interlock.testing.contract.interrupts import LIBRARY, called_at, quiet
from interlock.testing.waiting import Moment, eventually, moment, since
from interlock.testing.world import Kind, World


@quiet  # a socket that was just being made is closed by Python, with a warning
@needs_signals
def test_a_wait_interrupted_by_a_signal_leaves_nothing(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    holder = kind.rival(world.connect(), world.name).acquire()
    lock = kind.make(world.connect(), world.name)
    main = main_thread()
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


def waits(thread: int) -> bool:
    """Tell whether a thread waits to be told, and is in the middle of nothing else."""
    frame = sys._current_frames().get(thread)
    while frame is not None and not frame.f_code.co_filename.startswith(LIBRARY):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name in ("wait", "readable", "sleep", "_sleep")


@needs_signals
def test_a_wait_is_told_though_a_signal_handler_waited_within_it(world_of_threads: World, kind: Kind) -> None:
    world = world_of_threads
    inner_name = world.fresh_name()
    outer_holder = kind.rival(world.connect(), world.name).acquire()
    inner_holder = kind.rival(world.connect(), inner_name).acquire()
    locks = world.connect()
    outer, inner = kind.make(locks, world.name), kind.make(locks, inner_name)
    main = main_thread()
    released: list[Moment] = []
    refused = [StoreError("no signal has come yet")]

    def handler(*_: object) -> None:
        try:
            grant = inner.acquire(timeout=5)
        except StoreError as error:  # in the middle of a step
            refused.append(error)
            return
        if grant is None:  # it came where its thread kept the others of this process from doing anything
            refused.append(StoreError("nobody could release it"))
        else:
            grant.release()

    def waits_within() -> bool:
        if refused and waits(main):
            refused.clear()
            signal.pthread_kill(main, signal.SIGUSR1)
        return bool(world.waiters(inner_name))

    def strike() -> None:
        world.until_waiting(1)
        eventually(waits_within)
        outer_holder.release()
        inner_holder.release()
        released.append(moment())

    before = signal.signal(signal.SIGUSR1, handler)
    striker = world.actor().start(strike)
    try:
        grant = outer.acquire(timeout=20)
        waited = since(released[0]) if released else 0.0
    finally:
        striker.result(20)
        signal.signal(signal.SIGUSR1, before)
    assert grant.release() is True
    assert waited < 1.5, "it was not told, and looked by itself"


@pytest.mark.parametrize("same", [False, True], ids=["another name", "the same name"])
def test_a_handler_that_locks_at_any_moment_hangs_nobody(world_of_threads: World, same: bool) -> None:
    world = world_of_threads
    locks = world.connect()
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
    number, struck = 0, 1
    while struck:
        struck = strikes(acquire)
        assert rival.acquire(blocking=False) is None, where[-1]
        struck += strikes(release)
        eventually(world.nothing_left)
        number += 1
    assert number > 5
    # A file of SQLite is locked by the very step that was interrupted.
    assert all(re.search("in the middle of a step of its own thread|is locked", error) for error in refused), refused
