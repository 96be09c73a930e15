"""Files: what a connection has open is closed in time, and never more than the process may have."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.runtime import _threads
from interlock.stores.files import liveness
from interlock.stores.files.liveness import Liveness
from interlock.testing.remote import Remote, RemoteError
from interlock.testing.waiting import eventually
from tests.support.files_folder import TRY, connect, descriptors, liveness_pipes_of

HERE = os.getpid()


@pytest.fixture
def remote(folder: Path) -> Iterator[Remote]:
    """Another process on the folder."""
    other = Remote(f"file://{folder}")
    yield other
    other.close()


def test_each_connection_of_a_process_closes_what_it_has_open_and_leaves_the_others_theirs(folder: Path) -> None:
    before = descriptors()
    first = connect(folder)
    grant = first.lock("book").acquire()
    assert grant is not None
    one = descriptors()
    many = [connect(folder) for _ in range(20)]
    for locks in many:
        assert locks.lock("book").acquire(timeout=0) is None
        locks.lock("shelf").acquire().release()  # type: ignore[union-attr]
    assert len(liveness_pipes_of(folder, HERE)) == 21
    for locks in many:
        locks.close()
    assert descriptors() == one
    assert grant.renew() is True
    assert grant.release() is True
    first.close()
    assert descriptors() <= before
    assert list((folder / "alive").iterdir()) == []


def test_connections_that_were_dropped_do_not_keep_the_last_one_from_closing(folder: Path) -> None:
    before = descriptors()
    for _ in range(50):
        connect(folder)
    gc.collect()
    with connect(folder) as locks:
        locks.lock("book").acquire()
    assert descriptors() <= before


def test_what_dropped_connections_had_open_is_closed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threads, "IDLE", 0.01)
    before = descriptors()
    for number in range(10):
        with connect(tmp_path / str(number)).lock("book", ttl=0.3):
            pass

    def closed() -> bool:
        gc.collect()
        connect(tmp_path / "last").close()
        return descriptors() <= before

    eventually(closed, within=5)


def test_a_folder_that_was_removed_is_not_made_again_to_close_it(folder: Path) -> None:
    with connect(folder) as locks:
        with locks.lock("book"):
            pass
        shutil.rmtree(folder)
    assert not folder.exists()


def test_a_grant_that_was_dropped_with_its_connection_keeps_its_lease(
    folder: Path, tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threads, "IDLE", 0.01)
    before = descriptors()

    def closed() -> bool:
        gc.collect()
        connect(tmp_path / "other").close()
        return descriptors() <= before

    started = time.monotonic()
    connect(folder).lock("book", ttl=1.5, renew=False).acquire()
    while remote.do(TRY) is False:
        assert closed() is False
    assert time.monotonic() - started > 1.4
    eventually(closed, within=5)  # its watchdog ended too


def test_a_folder_that_was_made_again_is_another_one(folder: Path) -> None:
    with connect(folder) as old:
        held = old.lock("book").acquire()
        folder.rename(folder.with_name("elsewhere"))
        with connect(folder) as new:
            assert new.lock("book").acquire(timeout=0) is not None
        assert held is not None


def test_a_forked_child_shares_nothing_with_its_parent(folder: Path, remote: Remote) -> None:
    remote.do("import os\nheld = locks.lock('book').acquire()\nreader, writer = os.pipe()\nchild = os.fork()\n"
        "if child == 0:\n"
        "    own = interlock.connect(url)\n"
        "    tried = own.lock('book').acquire(timeout=0), locks.lock('book').acquire(timeout=0)\n"
        "    grant = own.lock('shelf').acquire()\n"
        "    pids = {path.partition('-')[0] for path in os.listdir(url[7:] + '/alive')}\n"
        "    os.write(writer, f'{tried} {grant.held} {len(pids)}'.encode())\n"
        "    own.close(); locks.close(); os._exit(0)")  # fmt: skip
    told = remote.do("os.waitpid(child, 0)\nresult = os.read(reader, 100).decode()")
    assert told == "(None, None) True 2"
    assert remote.do("result = [held.renew(), held.release()]") == [True, True]


OPEN = """
import os
def opened():
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass  # the one that listed them
    here = url.removeprefix("file://") + "/"
    return sorted(path.removeprefix(here).partition("/")[0] for path in found if path.startswith(here))
"""


def test_a_forked_child_has_nothing_of_its_parents_open(folder: Path, remote: Remote) -> None:
    with connect(folder) as locks:
        grant = locks.lock("shelf").acquire()
        assert grant is not None
        remote.do(OPEN)
        # It holds, it has waited at a pipe, and it has looked whether others live.
        told = remote.do(
            "held = locks.lock('book').acquire()\n"
            "assert locks.lock('shelf').acquire(timeout=0.1) is None\n"
            "reader, writer = os.pipe()\n"
            "before = opened()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    os.write(writer, repr(opened()).encode()); os._exit(0)\n"
            "os.waitpid(child, 0)\n"
            "result = [before, os.read(reader, 1000).decode(), held.renew()]"
        )
    assert told[0].count("alive") >= 3  # its liveness pipe, its pipe, and the liveness pipe of the other
    assert {"interlock", "lines"} < set(told[0])
    assert told[1:] == ["[]", True]


def lit(folder: Path) -> Liveness:
    """Make a liveness pipe."""
    liveness = Liveness(folder / "alive")
    liveness.keep()
    return liveness


def test_a_liveness_pipe_has_its_name_only_when_it_is_locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "alive").mkdir(parents=True)
    other = lit(folder)
    flock, seen = liveness.flock, []

    def looks_before(fd: int, how: int) -> None:
        if how & liveness.LOCK_EX:
            seen.append([name for name in os.listdir(folder / "alive") if name[0] != "." and name != other.token])
        flock(fd, how)

    monkeypatch.setattr(liveness, "flock", looks_before)
    made = lit(folder)
    assert seen == [[]]
    assert other.is_alive(made.token)
    made.close()
    other.close()


def test_a_liveness_pipe_that_is_being_made_is_not_swept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "alive").mkdir(parents=True)
    other = lit(folder)
    rename, swept = os.rename, []

    def sweeps_before(path: Any, to: Any) -> None:
        swept.append(other.sweep())
        rename(path, to)

    monkeypatch.setattr(liveness.os, "rename", sweeps_before)
    made = lit(folder)
    assert swept == [0]
    assert other.is_alive(made.token)
    made.close()
    other.close()


@pytest.mark.parametrize("refuse", [FileNotFoundError, BlockingIOError])
def test_a_liveness_pipe_that_is_swept_while_it_is_made_costs_no_descriptor(
    folder: Path, monkeypatch: pytest.MonkeyPatch, refuse: type[OSError]
) -> None:
    (folder / "alive").mkdir(parents=True)
    rename, swept = os.rename, []

    def sometimes(path: Any, to: Any) -> None:
        if len(swept) < 5:
            swept.append(path)
            raise refuse
        rename(path, to)

    before = descriptors()
    monkeypatch.setattr(liveness.os, "rename", sometimes)
    made = lit(folder)
    assert len(descriptors() - before) == 1
    assert [path.name for path in (folder / "alive").iterdir()] == [made.token]
    made.close()
    assert descriptors() <= before


def test_a_liveness_pipe_that_is_always_swept_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(path: Any, to: Any) -> None:
        os.unlink(path)
        raise FileNotFoundError

    (folder / "alive").mkdir(parents=True)
    before = descriptors()
    monkeypatch.setattr(liveness.os, "rename", never)
    with pytest.raises(interlock.StoreError, match="swept all the time"):
        lit(folder)
    assert descriptors() <= before


FULL = """
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))
taken = []
try:
    while True: taken.append(os.dup(0))
except OSError: pass
"""
FREE = "for fd in taken: os.close(fd)\n"


@pytest.mark.parametrize(
    ("before", "work", "told"),
    [
        ("first = locks.lock('shelf').acquire()", "locks.lock('book').acquire()", "Too many open files"),
        ("locks.lock('book').acquire(timeout=0)", "locks.lock('book').acquire(timeout=1)", "ulimit -n"),
        ("locks.close()", "interlock.connect(url)", "Too many open files"),
    ],
    ids=["a line", "a pipe to wait at", "a liveness pipe"],
)
def test_a_process_at_its_file_limit_is_told_what_to_do(
    folder: Path, remote: Remote, before: str, work: str, told: str
) -> None:
    with connect(folder) as locks:
        grant = locks.lock("book").acquire()
        assert grant is not None
        remote.do(f"import os\n{before}\n{FULL}")
        with pytest.raises(RemoteError, match=told) as caught:
            remote.do(work)
        assert caught.value.kind == "StoreError"
        grant.release()
        remote.do(FREE)
        assert locks.claims("book") == []
        assert remote.do(f"locks = interlock.connect(url)\n{TRY}") is True
