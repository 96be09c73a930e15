"""URLs: the store of a URL, and the errors for a URL without a store or a store that can't be used."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.testing.other_process import Remote, RemoteError

Connect = Callable[..., Any]
NOBODY = 65534


@pytest.fixture(params=[interlock.connect, interlock.aconnect])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Both ways to connect."""
    found: Connect = request.param
    return found


@pytest.mark.parametrize("url", ["", "nothing", "redis", "://", "/var/lib", 5, b"memory://", True, ["memory://"]])
def test_what_is_no_url_is_refused(connect: Connect, url: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    with pytest.raises(InvalidArgument, match=r"file://|scheme"):
        connect(url)


def test_an_unknown_scheme_is_refused_with_those_that_are_known(connect: Connect) -> None:
    with pytest.raises(InvalidArgument) as caught:
        connect("carrier-pigeon://loft")
    assert all(word in str(caught.value) for word in ("carrier-pigeon", "memory", "file"))


@pytest.mark.parametrize(
    "url", ["file://", "file://locks", "file://./locks", "file:///a?b", "file:///a#b", "file://host/a"]
)
def test_a_folder_that_is_not_absolute_is_refused(connect: Connect, url: str) -> None:
    with pytest.raises(InvalidArgument, match="file:///"):
        connect(url)


def test_a_folder_with_nul_is_refused(connect: Connect) -> None:
    with pytest.raises(InvalidArgument):
        connect("file:///tmp/a%00b")


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_file_in_place_of_the_folder_is_refused(connect: Connect, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("I am a file")
    with pytest.raises(StoreError, match="choose another"):
        connect(f"file://{tmp_path / path}")


def test_a_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    with interlock.connect(f"file://{tmp_path}/a/b/c%20d") as locks, locks.lock("x"):
        assert (tmp_path / "a" / "b" / "c d").is_dir()


@pytest.mark.parametrize("name", ["with space", "ünïcode", "100%25"])
def test_odd_folders_work(tmp_path: Path, name: str) -> None:
    with interlock.connect(f"file://{tmp_path}/{name}") as locks, locks.lock("x"):
        assert locks.lock("x").acquire(timeout=0) is None


ODD = ["with space", "100%25", "feature%2Flogin", "issue#7", "what?x=1", "a;b&c=d", "\udcff"]


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_the_path_of_a_folder_means_that_folder(tmp_path: Path, name: str) -> None:
    with interlock.connect(tmp_path / name) as locks, locks.lock("x"):
        assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_the_url_that_an_error_advises_means_that_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        interlock.connect(f"{tmp_path}/{name}")
    advised = str(caught.value).partition("Did you mean '")[2].partition("'")[0]
    with interlock.connect(advised) as locks, locks.lock("x"):
        assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[Remote]:
    """A process of a user without rights, which has loaded all modules before."""
    remote = Remote(f"file://{tmp_path}/before")
    remote.do("import os, logging, pathlib\nwith locks.lock('x', label='y'): pass\nlocks.close()")
    remote.do(f"if os.geteuid() == 0: os.setegid({NOBODY}); os.seteuid({NOBODY})")
    yield remote
    remote.close()


def test_a_folder_that_can_not_be_written_is_refused(nobody: Remote, tmp_path: Path) -> None:
    for part in [*reversed(tmp_path.parents[:3]), tmp_path]:
        part.chmod(0o755)
    locked = tmp_path / "locks"
    locked.mkdir()
    locked.chmod(0o555)
    for url in (f"file://{locked}", f"file://{locked}/below"):
        with pytest.raises(RemoteError, match="choose another folder") as caught:
            nobody.do(f"interlock.connect({url!r})")
        assert caught.value.kind == "StoreError"


def test_a_name_that_can_not_be_written_is_an_error_that_says_so(nobody: Remote, tmp_path: Path) -> None:
    for part in [*reversed(tmp_path.parents[:3]), tmp_path]:
        part.chmod(0o755)
    shared = tmp_path / "shared"
    with interlock.connect(f"file://{shared}") as mine:
        for path in (shared, *shared.iterdir()):
            path.chmod(0o777 if path.is_dir() else 0o666)
        with mine.lock("mine"):
            (shared / "lines" / "mine").chmod(0o600)
            with pytest.raises(RemoteError, match="mine") as caught:
                nobody.do(f"locks = interlock.connect('file://{shared}'); locks.lock('mine').acquire(timeout=1)")
            assert caught.value.kind == "StoreError"
            assert nobody.do("grant = locks.lock('other').acquire(timeout=1); result = grant.release()") is True


def test_the_environment_says_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERLOCK_URL", f"file://{tmp_path}/from-environment")
    with interlock.connect() as locks, locks.lock("x"):
        assert (tmp_path / "from-environment").is_dir()


@pytest.mark.parametrize("empty", ["", " "])
def test_an_environment_that_says_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, empty: str) -> None:
    monkeypatch.setenv("INTERLOCK_URL", empty)
    with pytest.raises(interlock.InvalidArgument, match="INTERLOCK_URL is empty"):
        interlock.connect()


def test_memory_spaces_are_separate(tmp_path: Path) -> None:
    one, other = interlock.connect(f"memory://{tmp_path.name}1"), interlock.connect(f"memory://{tmp_path.name}2")
    with one.lock("x"), other.lock("x"):
        assert one.lock("x").acquire(timeout=0) is None
