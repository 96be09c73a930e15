"""Files: a folder that is moved or emptied during use; no connection goes on with the old folder."""

from __future__ import annotations

import shutil
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.testing.other_process import Remote
from tests.support.files_folder import connect, until_not_trusted, until_waiting

TRY = "result = locks.lock('book').acquire(timeout=0) is not None"


def held(locks: interlock.Locks, within: float = 5) -> interlock.Grant:
    """Obtain the lock."""
    grant = locks.lock("book").acquire(timeout=within)
    assert grant is not None
    return grant


def excludes_others(locks: interlock.Locks, folder: Path) -> bool:
    """Tell whether a holder on that connection excludes another process that uses that folder."""
    with closing(Remote(f"file://{folder}")) as other:
        with locks.lock("book", timeout=5):
            refused = other.do(TRY) is False
        return refused and other.do(TRY) is True


# -- moved ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noticed", [False, True])
def test_who_connects_to_where_a_folder_was_moved_is_there(
    line: interlock.Locks, folder: Path, noticed: bool
) -> None:
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    if noticed:
        until_not_trusted()
        held(line).release()  # the folder is made again
    with connect(elsewhere) as locks:
        assert excludes_others(locks, elsewhere)
        until_not_trusted()
        with locks.lock("book"):
            assert excludes_others(line, folder)


@pytest.mark.parametrize("noticed", [False, True])
def test_who_connects_to_where_a_link_led_before_is_there(tmp_path: Path, noticed: bool) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
    current = tmp_path / "current"
    current.symlink_to("v1")
    with connect(current / "locks") as followed:
        held(followed).release()
        early = connect(tmp_path / "v1" / "locks")
        (tmp_path / "new").symlink_to("v2")
        (tmp_path / "new").rename(current)
        if noticed:
            until_not_trusted()
            held(followed).release()
        with early, connect(tmp_path / "v1" / "locks") as late:
            until_not_trusted()
            assert excludes_others(early, tmp_path / "v1" / "locks")
            assert excludes_others(late, tmp_path / "v1" / "locks")
            assert excludes_others(followed, tmp_path / "v2" / "locks")


# -- subfolders that were removed ---------------------------------------------------------------------------

ROOMS = ["lines", "alive"]


def handed_over(locks: interlock.Locks, folder: Path) -> bool:
    """Tell whether a lock is handed over to another process that waits for it."""
    with closing(Remote(f"file://{folder}")) as other:
        with locks.lock("book", timeout=5):
            other.start("result = locks.lock('book').acquire(timeout=15) is not None")
            until_waiting(folder, 1)
        return bool(other.answer())


@pytest.mark.parametrize("room", ROOMS)
def test_a_subfolder_that_was_removed_is_made_again(line: interlock.Locks, folder: Path, room: str) -> None:
    shutil.rmtree(folder / room)
    until_not_trusted()
    threads: list[Any] = []
    with line.lock("book", timeout=5):
        waiter = threading.Thread(target=lambda: threads.append(line.lock("book").acquire(timeout=5)))
        waiter.start()
        until_waiting(folder, 1)
    waiter.join()
    assert threads[0].release()
    assert handed_over(line, folder)
    for each in ROOMS:
        assert stat.S_IMODE((folder / each).stat().st_mode) == stat.S_IMODE(folder.stat().st_mode)


def test_who_holds_learns_at_once_that_alive_was_removed(line: interlock.Locks, folder: Path) -> None:
    grants = [line.lock(name).acquire() for name in ("shelf", "desk")]
    shutil.rmtree(folder / "alive")
    assert [grant.renew() for grant in grants if grant] == [False, False]
    assert held(line).renew() is True
