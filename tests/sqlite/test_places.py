"""On which file systems the file may lie, and that it has a rollback journal, never WAL."""

import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

import interlock
from interlock.core.errors import StoreError
from interlock.stores.sqlite import opening
from interlock.stores.sqlite.options import Options
from interlock.testing.remote import Remote, RemoteError
from interlock.testing.waiting import eventually

ROLLBACK = b"\1\1"  # of the header: the versions of the format that who writes and who reads must know; 2 is WAL


def journal_of(path: str) -> tuple[bytes, set[str]]:
    """Return what the header says, and which files lie beside it.

    Another process reads it: when a descriptor is closed, the process loses the locks that SQLite has.
    """
    header = subprocess.run(["head", "-c", "20", path], capture_output=True, check=True).stdout
    folder, name = os.path.split(path)
    return header[18:20], {each.removeprefix(name) for each in os.listdir(folder) if each.startswith(name)}


def test_the_file_has_a_rollback_journal_whoever_writes_to_it(
    options: Options, locks: Any, remote: Callable[[], Remote]
) -> None:
    """Threads and processes at once, waiters too."""
    others = [remote(), remote()]
    for other in others:
        other.start("for _ in range(100):\n    with locks.lock('a', timeout=20): pass")
    for _ in range(20):
        with locks.lock("a", timeout=20):
            assert journal_of(options.file) == (ROLLBACK, {"", "-journal"})
    for other in others:
        other.answer()
    assert journal_of(options.file) == (ROLLBACK, {"", "-journal"})


def test_the_file_beside_a_database_in_wal_mode_is_not_in_it(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode = wal").scalar() == "wal"
        with interlock.connect(engine) as locks, locks.lock("a"):
            (path,) = tmp_path.glob("app.db.locks-????????????")
            assert journal_of(str(path)) == (ROLLBACK, {"", "-journal"})
    engine.dispose()


def test_a_file_that_somebody_has_turned_to_wal_lets_nobody_in_and_is_turned_back(options: Options, url: str) -> None:
    """Who has it open goes on; who comes waits until it can be turned back, which needs the file for itself."""
    newcomer = Remote(None)
    with interlock.connect(url) as locks:
        grant = locks.lock("a").acquire()
        other = sqlite3.connect(options.file, isolation_level=None)
        eventually(lambda: turned(other))
        other.close()
        assert grant.renew()
        assert locks.lock("a").acquire(timeout=0) is None
        with pytest.raises(RemoteError, match="another program keeps it locked"):
            newcomer.do(f"interlock.connect('{url}?timeout=0.3')")
        assert grant.release() is True
    newcomer.do(f"locks = interlock.connect({url!r})\nwith locks.lock('a', timeout=0): pass")
    assert journal_of(options.file) == (ROLLBACK, {"", "-journal"})
    newcomer.close()


def turned(other: sqlite3.Connection) -> bool:
    """Turn a file to WAL, which fails while others are at a step."""
    try:
        return bool(other.execute("PRAGMA journal_mode = wal").fetchone() == ("wal",))
    except sqlite3.OperationalError:
        return False


def status_on(kind: str, url: str, monkeypatch: pytest.MonkeyPatch, allow: str = "") -> str:
    """Return what becomes of a file on that file system."""
    monkeypatch.setattr(opening, "file_system", lambda path: kind)
    try:
        with interlock.connect(f"{url}?allow={allow}" if allow else url) as locks:
            locks.lock("a").acquire(timeout=0).release()
    except StoreError as error:
        return "network" if "network file system" in str(error) else "allow" if f"?allow={kind}" in str(error) else ""
    return "used"


@pytest.mark.parametrize(
    ("kind", "allow", "status"),
    [
        *((kind, "", "used") for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse.fuse-overlayfs")),
        *(
            (kind, "", "network")
            for kind in ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "glusterfs", "lustre")
        ),
        *((kind, "", "allow") for kind in ("fuse.whatever", "fuseblk", "virtiofs", "vboxsf", "vmhgfs", "prl_fs")),
        ("virtiofs", "virtiofs", "used"),
        ("fuse.rclone", "virtiofs", "allow"),
        ("nfs4", "virtiofs", "network"),
        ("ext4", "virtiofs", "used"),
    ],
)
def test_network_file_systems_are_refused(
    url: str, options: Options, monkeypatch: pytest.MonkeyPatch, kind: str, allow: str, status: str
) -> None:
    assert status_on(kind, url, monkeypatch, allow) == status
    assert os.path.exists(options.file) == (status == "used"), "nothing is made where it is refused"
