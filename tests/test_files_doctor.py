"""The refusals of the file store, the findings of its doctor, and its log messages."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import InvalidArgument, StoreError
from interlock.core.claims import Check
from interlock.runtime import log
from interlock.stores.files import FileStore, _posix, folder, line_file, machine
from interlock.stores.files._sync import queue


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The folder."""
    return tmp_path / "locks"


@pytest.fixture
def store(path: Path) -> Iterator[interlock.Locks]:
    """A client that has the folder open."""
    with interlock.connect(f"file://{path}") as locks:
        with locks.lock("first"):
            pass
        yield locks


def finding(store: interlock.Locks, name: str) -> Check:
    return next(check for check in store.doctor() if check.name == name)


def test_the_longest_head_is_seen_and_nothing_foreign(tmp_path: Path) -> None:
    """JSON writes a control character as six bytes: a name and a namespace of them make the longest head."""
    name, namespace = "\x01" * 1000, "\x02" * 1000
    with interlock.connect(f"file://{tmp_path}/locks", namespace=namespace) as locks:
        grant = locks.lock(name).acquire()
        assert grant is not None
        assert [view.id for view in locks.claims(name)] == [grant.id]
        assert [each.name for each in locks.claims()] == [name]
        assert {check.status for check in locks.doctor()} == {"ok"}


def test_a_sound_folder_is_ok_in_every_point(store: interlock.Locks) -> None:
    assert {check.status for check in store.doctor()} == {"ok"}


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "mount_of", lambda path: machine.Mount("/", "/", "nfs4"))
    with pytest.raises(StoreError, match="local folder"):
        FileStore(str(tmp_path / "other"))


def test_the_file_system_of_a_chroot_is_asked_for_its_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine.check_of(tmp_path)
    mounts = tmp_path / "mountinfo"
    mounts.write_text("25 30 0:23 / /proc rw - proc proc rw\n")  # in a chroot, no line is about its root
    monkeypatch.setattr(_posix, "MOUNTS", mounts)
    assert machine.mount_of(tmp_path).kind in _posix.LOCAL
    assert machine.check_of(tmp_path).status == before.status == "ok"
    assert machine.check_of(tmp_path / "not yet" / "locks.db").status == "ok"


def test_missing_permissions_are_found(store: interlock.Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert finding(store, "permissions").status == "fail"


def test_a_folder_that_everybody_may_write_is_found(store: interlock.Locks, path: Path) -> None:
    path.chmod(0o777)
    assert finding(store, "permissions").status == "warn"


def refuse(number: int) -> Callable[..., Any]:
    def call(*args: object, **how: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_folder_without_os_locks_is_refused(
    store: interlock.Locks, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(line_file, "flock", refuse(number))
    monkeypatch.setattr(queue, "native", None)
    with pytest.raises(StoreError, match="local disk"):
        store.lock("another").acquire()


def test_another_machine_is_refused(store: interlock.Locks, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "boot_id", lambda: "another")
    with pytest.raises(StoreError, match="another machine"):
        FileStore(str(path))


def test_what_does_not_belong_here_is_found(store: interlock.Locks, path: Path) -> None:
    for number in range(7):
        (path / "lines" / f"foreign{number}").write_text("not a line of claims")
    (path / "lines" / "folder").mkdir()
    (path / "notes.txt").write_text("")
    found = finding(store, "contents")
    assert found.status == "warn"
    assert found.detail.startswith("9 files")


def test_a_damaged_claim_is_found(store: interlock.Locks, path: Path) -> None:
    grant = store.lock("book").acquire()
    assert grant is not None
    with open(path / "lines" / "book", "ab") as line:
        line.write(b"#" * 512)
    assert "lines/book" in finding(store, "contents").detail


def test_a_host_in_the_url_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="three slashes"):
        interlock.connect("file://server/folder")


def test_the_log_goes_to_logging_or_where_it_is_diverted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "interlock"):
        log.warn("%d leases", 2)
        log.exception("on_lost of %s", "it")
    assert caplog.messages == ["2 leases", "on_lost of it"]
    lines: list[str] = []
    log.sink = lines.append
    try:
        log.warn("%d leases", 3)
        log.exception("gone")
    finally:
        log.sink = None
    assert lines == ["3 leases", "gone"]
