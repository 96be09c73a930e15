"""Files: a guard that a process stopped in its step keeps delays callers until their deadline, on this line only."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import StoreError
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.line import RENEWAL_OK, StepResult
from interlock.stores.files import FileStore, line_file, steps
from interlock.stores.files.folder import Folder
from tests.support.client_actors import SYNC_AND_ASYNC, side
from tests.support.files_folder import until_waiting, within

PATIENT = 5.0
"""Seconds for which a guard is tried."""


@contextmanager
def stuck(folder: Path, name: str = "book") -> Iterator[None]:
    """Keep the guard of a line, like a process that was stopped in its step."""
    fd = os.open(folder / "lines" / name, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_one_try_takes_its_time_only(line: interlock.Locks, folder: Path, sync_or_async: str) -> None:
    with side(sync_or_async, f"file://{folder}") as ours, line.lock("book"), stuck(folder), within(1.0):
        assert ours.take("book", blocking=False) is None
    until_waiting(folder, 0)


def test_who_waits_for_a_guard_does_not_spin(line: interlock.Locks, folder: Path) -> None:
    with stuck(folder):
        spent = time.process_time()
        assert line.lock("book").acquire(timeout=2.0) is None
        assert time.process_time() - spent < 0.3


def test_who_stands_in_line_gives_up_in_time(line: interlock.Locks, folder: Path) -> None:
    with line.lock("book"):

        async def main() -> None:
            async with interlock.aconnect(f"file://{folder}") as locks:
                waiting = asyncio.create_task(locks.lock("book", ttl=5).acquire(timeout=1.0))
                await asyncio.to_thread(until_waiting, folder, 1)
                with stuck(folder):
                    with pytest.raises(StoreError, match="guard"):
                        await waiting

        with within(1.0 + PATIENT):
            asyncio.run(main())


def test_a_release_says_so_in_time_and_can_be_repeated(line: interlock.Locks, folder: Path) -> None:
    grant = line.lock("book").acquire()
    with stuck(folder):
        for _ in range(2):
            with within(PATIENT), pytest.raises(StoreError, match="guard"):
                grant.release()
    assert grant.release() is True
    assert line.claims("book") == []


def held(folder: Path, *names: str, ttl: float = 30.0) -> tuple[Any, list[Claim]]:
    """Return a queue of the folder, and claims that hold locks."""
    queue = FileStore(str(folder)).queue()
    claims = [Claim(name, LockSpec(SEPARATOR + name, ttl=ttl)) for name in names]
    assert [queue.enter(claim, None, False, False).state for claim in claims] == ["using"] * len(names)
    return queue, claims


def test_a_stuck_line_does_not_hold_up_the_renewals_of_others(folder: Path) -> None:
    queue, claims = held(folder, "shelf", "book", "desk", ttl=2.0)
    with stuck(folder), within(0.2):
        answers = queue.renew(claims)
    assert answers[::2] == [RENEWAL_OK, RENEWAL_OK]
    assert isinstance(answers[1], StoreError)
    assert queue.renew(claims) == [RENEWAL_OK] * 3
    queue.close()


def test_a_lock_of_the_program_on_a_number_that_was_ours_stays(folder: Path, tmp_path: Path) -> None:
    lines = steps.FileSteps(Folder(str(folder)))
    with (tmp_path / "own").open("w") as own:

        def reuse(*_: object) -> StepResult:
            os.dup2(own.fileno(), lines.lines["book"].fd)
            fcntl.flock(own, fcntl.LOCK_EX)
            return StepResult(None, True)

        lines.step("book", reuse)
        with open(own.name) as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lines.lines["book"].fd)
    lines.close()


def test_a_line_that_is_shortened_is_still_guarded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, [holder] = held(folder, "book")
    others = FileStore(str(folder)).queue()
    waiter = others.subscribe()
    for number in range(2 * line_file.MOST_IDLE):
        others.enter(holder._replace(id=f"waits {number}"), waiter, True, False)
    new = holder._replace(id="new")

    def turn() -> None:
        assert others.enter(new, None, False, False).state == "using"

    monkeypatch.setattr(steps, "give_turn", turn)
    assert queue.evict(holder.spec.key, None) == 1 + 2 * line_file.MOST_IDLE
    assert [view.id for view in queue.look(holder.spec.key)] == ["new"]
    waiter.close()
    others.close()
    queue.close()
