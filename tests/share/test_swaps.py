"""The swap of a line: exactly one writer wins, whatever the file server, the network and other clients do."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from interlock.core.claims import SEPARATOR
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.line import EMPTY, decode, encode
from interlock.runtime import clock
from interlock.storekit import compare_and_swap
from interlock.stores.share import lines as module
from interlock.stores.share.lines import ShareLines
from interlock.stores.share.system import System
from tests.docs.pages import ROOT
from tests.support.brief_share import Counted, Failed, Rough, Sleeper, files_of

KEY = f"{SEPARATOR}book"
T = TypeVar("T")


def lines(folder: Path, system: System | None = None) -> ShareLines:
    """The lines of another client."""
    return ShareLines(str(folder), False, system or System())


def text(number: int) -> str:
    return encode(EMPTY._replace(max_fence=number))


def number_in(found: str) -> int:
    return decode(found).max_fence if found else 0


def swap(client: ShareLines, key: str = KEY) -> int | None:
    """Add one to the number in a line; return the new number, or None if another client was first."""
    version, found, now = client.load(key)
    new = number_in(found) + 1
    return None if client.swap(key, version, text(new), now) is None else new


def present(folder: Path) -> int:
    """The number in the line, as a new client reads it."""
    return number_in(lines(folder).load(KEY)[1])


def test_a_name_has_two_files_and_a_swap_few_calls(folder: Path) -> None:
    system = Counted()
    client = lines(folder, system)
    assert [swap(client) for _ in range(3)] == [1, 2, 3]
    assert files_of(folder, "book") == ["d.3", "t.3"]
    system.calls.clear()
    assert swap(client) == 4
    assert system.calls == ["listdir", "open", "flush", "fsync", "rename", "unlink"]


def test_a_swap_of_an_old_version_writes_nothing(folder: Path) -> None:
    ann, bob = lines(folder), lines(folder)
    assert swap(ann) == 1
    version, _, now = ann.load(KEY)
    assert swap(bob) == 2
    assert ann.swap(KEY, version, text(7), now) is None
    assert present(folder) == 2
    assert files_of(folder, "book") == ["d.2", "t.2"]


def test_one_of_many_births_of_a_name_wins(folder: Path) -> None:
    clients, start = [lines(folder) for _ in range(6)], threading.Barrier(6)

    def born(client: ShareLines, key: str) -> bool:
        version, found, now = client.load(key)
        assert (version, found) == (None, "")
        start.wait(30)
        return client.swap(key, None, text(1), now) is not None

    with ThreadPoolExecutor(6) as pool:
        for turn in range(20):
            assert sum(pool.map(born, clients, [f"{KEY}{turn}"] * 6)) == 1
    assert not list((folder / "=").glob(".new-*"))


def test_a_sleeper_that_publishes_after_many_swaps_is_refused(folder: Path) -> None:
    system = Sleeper()
    slow, quick = lines(folder, system), lines(folder)
    assert swap(slow) == 1
    system.armed = True
    with ThreadPoolExecutor() as pool:
        late = pool.submit(swap, slow)
        assert system.sleeps.wait(30)
        for _ in range(20):
            assert swap(quick)
        system.go.set()
        with pytest.raises(UnknownOutcome):  # its line lists fewer former versions
            late.result(30)
    assert present(folder) == 21


def test_the_line_of_a_sleeper_is_not_swept_before_it_publishes(folder: Path) -> None:
    system = Sleeper()
    slow = lines(folder, system)
    assert swap(slow) == 1
    system.armed = True
    with ThreadPoolExecutor() as pool:
        late = pool.submit(swap, slow)
        assert system.sleeps.wait(30)
        assert present(folder) == 1  # this reads the folder, and removes what nobody can publish any more
        system.go.set()
        assert late.result(30) == 2
    assert present(folder) == 2


def test_a_late_birth_is_refused(folder: Path) -> None:
    system = Sleeper()
    slow, quick = lines(folder, system), lines(folder)
    slow.load(KEY)  # its first use of the folder renames, too
    system.armed = True
    with ThreadPoolExecutor() as pool:
        late = pool.submit(swap, slow)
        assert system.sleeps.wait(30)
        assert swap(quick) == 1
        assert swap(quick) == 2
        system.go.set()
        assert late.result(30) is None
    assert present(folder) == 2


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("error", [errno.ENOENT, errno.ESTALE], ids=["ENOENT", "ESTALE"])
def test_a_missing_source_is_no_answer(folder: Path, error: int, done: bool) -> None:
    client = lines(folder)
    assert swap(client) == 1
    calls = Counted()
    counting = lines(folder, calls)
    assert swap(counting) == 2
    at = len(calls.calls) - 2
    assert calls.calls[at] == "rename"
    assert swap(lines(folder, Failed(at, error, done))) == 3  # found out, or done again
    assert present(folder) == 3


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_a_rename_without_a_reply_has_an_unknown_outcome(folder: Path, done: bool) -> None:
    calls = Counted()
    assert swap(lines(folder, calls)) == 1
    last = len(calls.calls) - 1
    assert calls.calls[last] == "rename"
    shutil.rmtree(folder / "=")
    with pytest.raises(UnknownOutcome):
        swap(lines(folder, Failed(last, errno.EIO, done)))
    assert present(folder) == int(done)
    assert swap(lines(folder)) == 1 + done


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("exists", [False, True], ids=["birth", "swap"])
def test_a_call_that_fails_leaves_a_line_that_all_can_read(folder: Path, error: int, exists: bool) -> None:
    if exists:
        assert swap(lines(folder)) == 1
    counting = Counted()
    lines(folder, counting).load(KEY)
    first = len(counting.calls)
    assert swap(lines(folder, counting)) == 1 + exists
    for at in range(first, len(counting.calls)):
        shutil.rmtree(folder / "=")
        before = 0
        if exists:
            before = swap(lines(folder)) or 0
        outcome: int | None | str
        try:
            client = lines(folder, Failed(at, error))
            outcome = swap(client)
        except UnknownOutcome:
            outcome = "unknown"
        except StoreError:
            outcome = "refused"
        after = present(folder)
        assert after == before + 1 if outcome == before + 1 else after in (before, before + (outcome == "unknown"))
        assert swap(lines(folder)) == after + 1


ROUNDS = 40


@pytest.mark.parametrize("seed", range(3))
def test_no_update_is_lost_on_a_rough_network(folder: Path, seed: int) -> None:
    told: Counter[str] = Counter()
    won: list[int] = []

    def work(client: ShareLines) -> None:
        for _ in range(ROUNDS):
            try:
                new = swap(client)
            except UnknownOutcome:
                told["unknown"] += 1
                continue
            if new is not None:
                won.append(new)

    systems = [Rough(10 * seed + number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [lines(folder, system) for system in systems]))
    assert len(won) == len(set(won)), "two were told that they wrote the same version"
    assert len(won) <= present(folder) <= len(won) + told["unknown"]
    assert sum((system.faults for system in systems), Counter()).keys() > {"stale", "late", "no reply", "sent again"}
    assert [name[0] for name in files_of(folder, "book")].count("t") == 1


KILLS = """
import os, sys
from pathlib import Path
from interlock import Locks
from tests.support.brief_share import BriefShareStore, Counted, Killed
folder = sys.argv[1]
def story(system):
    locks = Locks(BriefShareStore(folder, system=system))
    for _ in range(2):
        grant = locks.lock("book", ttl=0.2).acquire(timeout=20)
        grant.renew()
        grant.release()
counted = Counted()
story(counted)
for at in range(len(counted.calls)):
    for after in (False, True):
        if os.fork() == 0:
            story(Killed(at, after))
            os._exit(0)
        print(at, counted.calls[at], os.wait()[1], flush=True)
        locks = Locks(BriefShareStore(folder))
        grant = locks.lock("book", ttl=0.2).acquire(timeout=20)
        print("next", grant.fence, grant.release(), flush=True)
"""


def test_after_a_kill_at_any_call_the_next_process_goes_on(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row.split() for row in done.stdout.splitlines()]
    killed = [row for row in rows if row[0] != "next"]
    assert len(killed) > 40
    assert {row[2] for row in killed} <= {str(int(signal.SIGKILL)), "0"}
    assert {"rename", "fsync", "unlink", "mkdir", "open"} <= {row[1] for row in killed if row[2] != "0"}
    fences = [int(row[1]) for row in rows if row[0] == "next"]
    assert len(fences) == len(killed)
    assert fences == sorted(set(fences))
    assert [row[2] for row in rows if row[0] == "next"] == ["True"] * len(fences)
    assert [name[0] for name in files_of(folder, "book")] == ["d", "t"]


def test_a_line_put_back_to_an_older_copy_is_accepted_and_told(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLES", 1.0)
    client = lines(folder)
    assert swap(client) == 1
    shutil.copytree(folder, tmp_path / "copy")
    assert swap(client) == 2
    shutil.rmtree(folder / "=")
    shutil.copytree(tmp_path / "copy", folder, dirs_exist_ok=True)
    began = clock.now()
    assert number_in(client.load(KEY)[1]) == 1
    assert clock.now() - began > 1.0  # first it takes the listing for an old one
    assert swap(client) == 2
    assert "lost confirmed writes" in caplog.text
    assert os.listdir(folder) == ["="]


def test_foreign_files_are_neither_read_nor_removed(folder: Path) -> None:
    assert swap(lines(folder)) == 1
    foreign = ["desktop.ini", "d", "p.x", "t.9.short", ".nfs0001", "d.0.not-ours"]
    for name in foreign:
        (folder / "=" / "=book" / name).touch()
    (folder / "README").touch()
    client = lines(folder)
    assert [swap(client), swap(lines(folder))] == [2, 3]
    assert {*foreign} < {each.name for each in (folder / "=" / "=book").iterdir()}
    assert client.keys("") == [KEY]


def test_a_folder_without_a_token_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLES", 1.0)
    client = lines(folder)
    assert swap(client) == 1
    (token,) = (folder / "=" / "=book").glob("t.*")
    token.unlink()
    with pytest.raises(StoreError, match=r"=book cannot be used: its listing shows no current version\. Retry"):
        lines(folder).load(KEY)


def test_a_client_forgets_the_names_it_used_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_and_swap, "REMEMBERED", 2)
    system = Counted()
    client = lines(folder, system)
    keys = [f"{SEPARATOR}{name}" for name in ("a", "b", "c")]
    version, _, now = client.load(keys[0])
    version = client.swap(keys[0], version, text(1), now)
    assert [swap(client, key) for key in keys[1:]] == [1, 1]
    assert client.swap(keys[0], version, text(2), now) is None  # nothing is known of that version any more
    system.calls.clear()
    assert client.load(keys[2])[1] == text(1)
    listed = len(system.calls)
    assert number_in(client.load(keys[0])[1]) == 1
    assert len(system.calls) > 2 * listed  # its line was read, too
    assert [swap(client, key) for key in keys] == [2, 2, 2]


class StaleOnce(Counted):
    """Lets the first fsync fail as NFS does if another client has removed the file."""

    def perform(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        if call is os.fsync and "fsync" not in self.calls:
            self.calls.append("fsync")
            raise OSError(errno.ESTALE, "stale file handle")
        return super().perform(call, *args, **how)


def test_a_line_that_is_removed_while_it_is_written_is_a_lost_swap(folder: Path) -> None:
    assert swap(lines(folder)) == 1
    client = lines(folder, StaleOnce())
    assert swap(client) is None
    assert swap(client) == 2
    assert files_of(folder, "book") == ["d.2", "t.2"]


class Rival(Counted):
    """Lets another client swap between the listing of a name's folder and the read of its line."""

    def perform(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        found = super().perform(call, *args, **how)
        if call is os.listdir and "~" in args[0] and self.at < 0:
            self.at = 0
            folder = Path(args[0]).parent.parent
            assert swap(lines(folder), LONG) == 2
        return found


LONG = f"{SEPARATOR}{'B' * 50}"


def test_a_swap_during_a_list_of_names_hides_none(folder: Path) -> None:
    keys = [LONG, *(f"{SEPARATOR}{letter}" for letter in "abcdefgh")]
    assert [swap(lines(folder), key) for key in keys] == [1] * len(keys)
    assert lines(folder, Rival()).keys(SEPARATOR) == sorted(keys)
