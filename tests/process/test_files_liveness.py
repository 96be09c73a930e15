"""Files: the removal of a liveness pipe or a pipe from alive/ is noticed; claims made with it are lost."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import LockLost
from interlock.stores.files.liveness import Liveness
from interlock.testing.other_process import Remote
from interlock.testing.waiting import eventually
from tests.support.files_folder import (
    TRY,
    complaints,
    connect,
    liveness_pipes_of,
    pipes_of,
    remove_from,
    until_not_trusted,
    until_waiting,
)

HERE = os.getpid()
SOON = 5.0


# -- holders ----------------------------------------------------------------------------------------------


def test_a_removed_liveness_pipe_is_found_by_renewals(folder: Path, neighbour: Remote) -> None:
    told: list[Any] = []
    with connect(folder) as locks:
        grant = locks.lock("book", ttl=1.5, on_lost=told.append).acquire()
        remove_from(folder, HERE)
        assert neighbour.do(TRY) is True  # for others it is dead: that can't be helped
        eventually(lambda: grant.lost, within=1.4)
        eventually(lambda: told)
        with pytest.raises(LockLost):
            grant.check()
        assert grant.release() is False
        assert neighbour.do("result = grant.held") is True


def test_a_removed_liveness_pipe_is_reported_by_the_next_step(folder: Path) -> None:
    with connect(folder) as locks:
        grant = locks.lock("book").acquire()  # its first renewal is due after 10 s
        remove_from(folder, HERE)
        until_not_trusted()
        with locks.lock("page") as other:
            eventually(lambda: grant.lost, within=SOON)
            assert other.held


def test_a_removed_liveness_pipe_cancels_the_body_of_a_task(folder: Path) -> None:
    async def main() -> None:
        async with interlock.aconnect(f"file://{folder}") as locks:
            with pytest.raises(LockLost):
                async with locks.lock("book", ttl=0.6):
                    remove_from(folder, HERE)
                    await asyncio.sleep(SOON)
            async with locks.lock("book") as grant:
                assert await grant.renew() is True

    asyncio.run(main())


def test_a_process_continues_with_a_new_liveness_pipe(folder: Path, neighbour: Remote) -> None:
    with connect(folder) as locks:
        with locks.lock("book"):
            pass  # the line and the text of its claims are known from now on
        (before,) = liveness_pipes_of(folder, HERE)
        remove_from(folder, HERE)
        until_not_trusted()
        with locks.lock("book") as grant:  # never renewed: most locks are held for a moment
            assert liveness_pipes_of(folder, HERE) not in ([], [before])
            assert neighbour.do(TRY) is False
            assert grant.renew() is True
        assert neighbour.do(TRY) is True


# -- waiters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["everything", "The liveness pipe", "the pipe"])
def test_a_waiter_whose_files_were_removed_still_gets_its_turn(folder: Path, neighbour: Remote, what: str) -> None:
    neighbour.do("grant = locks.lock('book').acquire()")
    got: list[Any] = []
    with connect(folder) as locks:
        thread = threading.Thread(target=lambda: got.append(locks.lock("book").acquire(timeout=20)))
        thread.start()
        until_waiting(folder, 1)
        before = [*liveness_pipes_of(folder, HERE), *pipes_of(folder, HERE)]
        for path in before:
            if what == "everything" or (path.suffix != "") == (what == "the pipe"):
                path.unlink()
        # At its next poll it makes a new pipe, and is in line again for other processes.
        eventually(
            lambda: (
                liveness_pipes_of(folder, HERE)
                and pipes_of(folder, HERE)
                and all(path.exists() for path in pipes_of(folder, HERE))
                and {*liveness_pipes_of(folder, HERE), *pipes_of(folder, HERE)} != {*before}
            ),
            within=SOON,
        )
        until_waiting(folder, 1)
        neighbour.do("grant.release()")
        thread.join(20)
        assert neighbour.do(TRY) is False
        assert got[0].renew() is True


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_pipe_proves_no_life(folder: Path, kind: str) -> None:
    with connect(folder) as locks, locks.lock("book"):
        pass
    other = folder / "alive" / "77-aabbccddeeff"
    if kind == "link":
        other.symlink_to(folder / "interlock")  # that one is locked
    else:
        other.write_text("")
    assert Liveness(folder / "alive").is_alive(other.name) is False


# -- the doctor -------------------------------------------------------------------------------------------


def test_the_doctor_reports_a_missing_liveness_pipe(folder: Path, neighbour: Remote) -> None:
    neighbour.do("grant = locks.lock('book').acquire()")
    with connect(folder) as locks:
        assert "liveness pipes" not in complaints(locks)
        remove_from(folder, neighbour.process.pid)
        told = complaints(locks)
        assert "liveness pipes" in told
        assert str(neighbour.process.pid) in told
        assert "Exclude the folder" in told
