"""The contract without the modules of POSIX; `test_without_posix` runs it in a separate process."""

import os

import pytest

import interlock
from interlock.api.connect import open_store
from interlock.cli import main
from interlock.testing.contract import *  # noqa: F403
from interlock.testing.contract import StoreFixture

URLS = os.environ["URLS"].split()


@pytest.fixture(params=URLS, ids=lambda url: url.partition(":")[0])
def place(request: pytest.FixtureRequest) -> StoreFixture:
    url: str = request.param
    return StoreFixture(open=lambda: open_store(url), open_for_tasks=lambda: open_store(url, tasks=True), url=url)


def test_nothing_is_left_of_posix() -> None:
    assert not hasattr(os, "fork")
    with pytest.raises(ModuleNotFoundError):
        import fcntl  # noqa: F401


@pytest.mark.parametrize("url", ["postgresql+advisory://here/x", "mariadb+advisory://here/x"])
def test_advisory_locks_say_what_they_need(url: str) -> None:
    with pytest.raises(interlock.StoreError, match="POSIX system"):
        interlock.connect(url)


def test_the_command_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with interlock.connect(URLS[-1]).lock("book"):
        assert main(["ls", "--store", URLS[-1]]) == 0
    assert " book " in capsys.readouterr().out
