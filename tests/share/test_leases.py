"""Leases in a shared folder: other processes' claims are judged by watching, and the shortest lease has a limit."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

import interlock
from interlock.core.claims import MICROS, SEPARATOR
from interlock.core.errors import InvalidArgument
from interlock.core.line import EMPTY, Line, QueuedClaim, decode, encode
from interlock.stores.share.lines import ShareLines
from interlock.stores.share.system import System
from interlock.testing.other_process import Remote
from interlock.testing.waiting import eventually, throughout
from tests.docs.pages import ROOT
from tests.support.brief_share import connect

KEY = f"{SEPARATOR}book"
CLAIM = QueuedClaim(
    "1", "using", 1, 1, 0, MICROS // 2, 0, 1, 0, 0, 0, False, "", "", "another host 7", "", "another"
)  # fmt: skip


def lines(folder: Path, one_clock: bool = False) -> ShareLines:
    """The lines of another client."""
    return ShareLines(str(folder), one_clock, System())


def put(client: ShareLines, *claims: QueuedClaim) -> None:
    """Write a line with claims."""
    version, _, now = client.load(KEY)
    assert client.swap(KEY, version, encode(Line(claims, 1)), now) is not None


def left(client: ShareLines) -> float:
    """Return the seconds until the claim ends, as this client judges."""
    _, text, now = client.load(KEY)
    (place,) = decode(text).places
    return (place.until - now) / MICROS


def test_the_default_lease_is_a_minute_and_the_shortest_ten_seconds(url: str) -> None:
    with interlock.connect(url) as locks:
        grant = locks.lock("a").acquire()
        assert 55 < grant.expires_in <= 60
        for ttl in (9.9, 1):
            with pytest.raises(InvalidArgument, match=r"ttl must be between 10 and .* default of 60 s"):
                locks.lock("b", ttl=ttl)
        with pytest.raises(InvalidArgument, match="between 10"):
            locks.attach(grant.detach(), ttl=5)
        assert locks.lock("c", ttl=10).acquire().expires_in <= 10
    with pytest.raises(InvalidArgument, match="between 10"):
        interlock.connect(url, ttl=5)
    with interlock.connect(url, ttl=30) as locks:
        assert locks.lock("d").acquire().expires_in <= 30


@pytest.mark.parametrize("stored", [0, 2**60], ids=["long ago", "far in the future"])
def test_a_stored_end_of_another_process_does_not_count(folder: Path, stored: int) -> None:
    client = lines(folder)
    put(client, CLAIM._replace(until=stored))
    assert 0.4 < left(client) < 0.6
    time.sleep(0.5)
    assert left(client) < 0.1


def test_a_renewal_of_another_process_begins_the_lease_again(folder: Path) -> None:
    client, other = lines(folder), lines(folder)
    put(client, CLAIM)
    assert left(client) > 0.3
    time.sleep(0.4)
    assert left(client) < 0.2
    put(other, CLAIM._replace(renewal_count=1))
    assert left(client) > 0.3


def test_a_waiter_of_another_process_keeps_its_place_by_its_polls(url: str) -> None:
    waiter = Remote(None)
    waiter.do(f"from tests.support.brief_share import connect; locks = connect({url!r}, ttl=1.2)")
    with connect(url) as locks:
        grant = locks.lock("book").acquire()
        waiter.start("result = locks.lock('book').acquire().fence")
        eventually(lambda: len(locks.claims("book")) == 2)
        place = locks.claims("book")[1].id
        throughout(3.0, lambda: [view.id for view in locks.claims("book")] == [grant.id, place])
        assert grant.release() is True
        assert waiter.answer() > grant.fence
        assert [view.id for view in locks.claims("book")] == [place]
    waiter.close()


def test_a_write_of_this_process_is_no_renewal_of_others(folder: Path) -> None:
    client, other = lines(folder), lines(folder)
    put(client, CLAIM._replace(until=12345))
    version, text, now = other.load(KEY)
    assert other.swap(KEY, version, text, now) is not None  # with the end as it has judged it
    assert client.load(KEY)[0] != version
    assert f" {12345} " in next((folder / "=" / "=book").glob("d.*")).read_text()
    time.sleep(0.5)
    assert left(client) < 0.1


@pytest.mark.parametrize("one_clock", [False, True])
def test_the_age_of_a_line_counts_where_one_clock_stamps_files(folder: Path, one_clock: bool) -> None:
    put(lines(folder), CLAIM._replace(ttl=10 * MICROS))
    time.sleep(2.2)
    seen = left(lines(folder, one_clock))  # of a process that sees it first
    assert 8.3 < seen < 9.1 if one_clock else seen > 9.8


DIES = """
import os, sys
from tests.support.brief_share import connect
connect(sys.argv[1]).lock("book", ttl=2).acquire()
os._exit(9)
"""
TRIES = """
import sys
from tests.support.brief_share import connect
print(connect(sys.argv[1]).lock("book", ttl=2).acquire(timeout=0) is not None)
"""


def run(program: str, url: str) -> str:
    command = [sys.executable, "-c", program, url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout.strip()


def test_a_job_that_tries_once_gets_a_dead_holders_lock(url: str) -> None:
    url += "?one_clock=true"
    run(DIES, url)
    died = time.monotonic()
    assert run(TRIES, url) == "False"
    while run(TRIES, url) == "False":
        assert time.monotonic() - died < 30
    assert time.monotonic() - died > 2


@pytest.mark.rare
def test_a_killed_holders_lock_is_free_after_its_lease(url: str) -> None:
    remote = Remote(url)
    remote.do("grant = locks.lock('book', ttl=10).acquire()")
    remote.kill()
    killed = time.monotonic()
    with interlock.connect(url) as locks:
        assert locks.lock("book").acquire(timeout=5) is None
        assert locks.lock("book").acquire(timeout=20) is not None
    assert 9 < time.monotonic() - killed < 18
    remote.close()


def test_a_try_leaves_nothing_of_its_own(folder: Path) -> None:
    client = lines(folder)
    put(client, CLAIM)
    before = sorted((folder / "=" / "=book").iterdir())
    with interlock.connect(f"share://{folder}") as locks:
        assert locks.lock("book").acquire(timeout=0) is None
    assert sorted((folder / "=" / "=book").iterdir()) == before
    assert EMPTY.places == ()


def test_a_detached_lock_of_this_process_ends_while_others_poll(url: str) -> None:
    with connect(url) as locks, connect(url) as other, ThreadPoolExecutor() as pool:
        locks.lock("book", ttl=1.0).acquire().detach()
        began = time.monotonic()
        # Each poll renews its waiter, so each of the two connections reads what the other one has written.
        waiting = [pool.submit(each.lock("book", ttl=0.6).acquire, timeout=15) for each in (locks, other)]
        for grant in (each.result() for each in as_completed(waiting)):
            assert grant is not None
            assert grant.release() is True
        assert time.monotonic() - began < 6


def test_a_detached_lock_is_extended_by_its_token(url: str) -> None:
    with connect(url) as locks, connect(url) as other:
        token = locks.lock("book", ttl=1.0).acquire().detach()
        for _ in range(6):
            time.sleep(0.4)
            assert other.renew(token) is True
            assert locks.lock("book").acquire(timeout=0) is None
        assert locks.attach(token).release() is True
