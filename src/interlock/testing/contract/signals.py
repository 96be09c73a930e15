"""Signals: a handler that interrupts a wait, waits within one, or locks at any moment hangs nobody."""

import re
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.contract.fixtures import main_thread, needs_signals, of_threads
from interlock.testing.contract.interrupts import called_at, quiet
from interlock.testing.waiting import eventually
from interlock.testing.world import Kind, World


@quiet  # a socket that was just being made is closed by Python, with a warning
@needs_signals
@of_threads
def test_a_wait_interrupted_by_a_signal_leaves_nothing(world: World, kind: Kind) -> None:
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


@pytest.mark.parametrize("same", [False, True], ids=["another name", "the same name"])
@of_threads
def test_a_handler_that_locks_at_any_moment_hangs_nobody(world: World, same: bool, locks: Any) -> None:
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
