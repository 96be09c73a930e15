"""`interlock doctor --race`: a bucket with atomic conditional writes passes, one that lets two succeed does not."""

import json
import subprocess
import sys
from typing import Any

import pytest
from obstore.store import MemoryStore

from interlock.core.errors import StoreError
from interlock.stores.bucket.conditional_writes import race


class Careless:
    """A bucket that lets all clients write in the first of every ten rounds."""

    def __init__(self) -> None:
        self._store: Any = MemoryStore()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, path: str, body: bytes, mode: Any = "overwrite") -> Any:
        return self._store.put(path, body, mode="overwrite" if mode == "create" else mode)


def command(url: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "interlock", "doctor", "--race", "--store", url, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_of_many_wins_on_real_servers(url: str) -> None:
    done = command(url, "--clients", "16", "--rounds", "12", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["checks"][0]["status"]) == (0, "ok")
    assert "one winner in 12, none in 0, several in 0" in told["checks"][0]["detail"]


def test_a_bucket_that_lets_two_win_is_found_out() -> None:
    store = Careless()
    found = {check.name: check for check in race(lambda: store, "x", 8, 20)}
    assert found["race"].status == "fail"
    assert "several in 2" in found["race"].detail
    assert "Do not keep locks there" in found["race"].detail


def test_other_stores_say_that_it_is_not_for_them() -> None:
    done = command("memory://")
    assert done.returncode == 64
    assert "such as s3://" in done.stderr


def test_a_race_for_a_bucket_that_is_not_there_is_an_error(url: str) -> None:
    done = command(url.replace("@locks", "@nowhere"))
    assert done.returncode == 75
    assert StoreError.__name__ not in done.stderr


@pytest.mark.parametrize("wrong", ["1", "1000"])
def test_clients_are_a_sensible_number(wrong: str) -> None:
    assert command("memory://", "--clients", wrong).returncode == 64
