"""Messages to users: of time-outs, of paths that are no URLs, of a grant that nobody kept, of copies."""

import copy
import os
from pathlib import Path

import pytest

import interlock
from tests.environments.conftest import EVERYWHERE, Run
from tests.support.stores import Row

WITH_PERMITS = [row for row in EVERYWHERE if "advisory" not in row.name]


@pytest.fixture(params=WITH_PERMITS, ids=lambda row: row.name)
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place of each store that has semaphores."""
    row: Row = request.param
    return row.place(tmp_path).url or "memory://words"


def told(lock: interlock.Lock) -> str:
    with pytest.raises(interlock.LockTimeout) as raised:
        with lock:
            pass
    return str(raised.value)


def test_a_time_out_gives_the_advice_of_its_kind(any_url: str) -> None:
    with interlock.connect(any_url) as locks:
        with locks.lock("book"), locks.semaphore("desk", 1 + 1, units=2), locks.rwlock("shelf").read():
            own = told(locks.lock("book", timeout=0.1))
            semaphore = told(locks.semaphore("desk", 2, timeout=0.1))
            writer = told(locks.rwlock("shelf", timeout=0).write())
    assert "rlock()" in own
    assert "rlock()" not in semaphore + writer
    assert "wait longer" not in writer


def test_a_time_out_with_nobody_there_does_not_speak_of_a_holder(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with interlock.connect(any_url) as locks:
        grant = locks.lock("book").acquire()
        monkeypatch.setattr("interlock.client._sync.client.USING", "nobody is")
        text = told(locks.lock("book", timeout=0.1))
        grant.release()
    assert "has no holder" in text
    assert "grace" in text
    assert "another caller holds it" not in text


def test_a_folder_may_be_a_path(tmp_path: Path) -> None:
    odd = tmp_path / "a b#?%41"
    latin = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9"))
    for folder in (odd, latin):
        with interlock.connect(folder) as locks, interlock.connect(folder) as same, locks.lock("book"):
            assert same.lock("book").acquire(timeout=0) is None
        assert folder.is_dir()


def test_a_relative_path_is_refused_with_the_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = f"file://{tmp_path}/locks"
    for wrong in ("./locks", "file://locks"):
        with pytest.raises(interlock.InvalidArgument, match=f"[Dd]id you mean '?{here}'?"):
            interlock.connect(wrong)
    with pytest.raises(interlock.InvalidArgument, match="absolute"):
        interlock.connect(Path("locks"))
    with pytest.raises(interlock.InvalidArgument, match="file:///var/lib/locks"):
        interlock.connect("file://var/lib/locks")
    assert list(tmp_path.iterdir()) == []


def test_a_grant_that_nobody_keeps_is_told_in_the_log(url: str, run: Run) -> None:
    program = """
import subprocess, sys, interlock
if __name__ == "__main__" and sys.argv[2:]:
    locks = interlock.connect(sys.argv[1])
    if not locks.lock("single").acquire(timeout=0):
        sys.exit("another one runs")
    sys.exit()
done = subprocess.run([sys.executable, __file__, sys.argv[1], "child"], capture_output=True, text=True)
print(done.stderr.count("never released"), done.returncode)
"""
    assert run(program, url) == "1 0"


def test_a_copy_of_a_lock_is_the_lock(any_url: str) -> None:
    with interlock.connect(any_url) as locks:
        for lock in (locks.lock("a"), locks.rlock("a"), locks.semaphore("b", 2), locks.all("a", "b")):
            with lock:
                assert copy.deepcopy({"lock": lock})["lock"].owned()
                assert copy.copy(lock).owned()
        assert copy.deepcopy(locks) is locks
