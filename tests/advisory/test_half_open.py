"""A balancer forgets connections without a word: whoever waits for an answer that never comes takes new ones."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import interlock
from interlock.stores.advisory import mysql, postgres, room
from interlock.testing.waiting import eventually, moment, since
from tests.servers import MariaServer, PostgresServer, Proxy, need

PATIENCE = 0.4  # seconds for an answer; 5 unless a test says otherwise


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server."""
    need(request.param)
    kind: Callable[[], Any] = PostgresServer if request.param == "postgres" else MariaServer
    with kind() as server:
        yield server


@pytest.fixture
def forgetful(server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the server, and the URL of locks that leads through it."""
    for module in (mysql, postgres, room):
        monkeypatch.setattr(module, "IO_TIMEOUT", PATIENCE, raising=False)
    with Proxy(server.host, server.port) as proxy:
        scheme = server.url.partition(":")[0]
        yield proxy, f"{scheme}+advisory://{server.user}@{proxy.host}:{proxy.port}/{server.database}"


def test_who_holds_nothing_locks_again(forgetful: tuple[Proxy, str]) -> None:
    proxy, url = forgetful
    with interlock.connect(url) as locks:
        locks.lock("a").acquire().release()
        proxy.forget()
        eventually(lambda: gets(locks, "a"), 20)


def test_a_lock_whose_lease_ended_is_free_again(forgetful: tuple[Proxy, str]) -> None:
    proxy, url = forgetful
    with interlock.connect(url) as locks:
        held = locks.lock("a", ttl=0.5).acquire()
        proxy.forget()
        eventually(lambda: held.lost, 20)
        eventually(lambda: gets(locks, "a"), 20)


def test_a_wait_ends_in_its_time(forgetful: tuple[Proxy, str], server: Any) -> None:
    proxy, url = forgetful
    direct = server.url.replace(":", "+advisory:", 1)
    with interlock.connect(url) as locks, interlock.connect(direct) as others, others.lock("a"):
        found: list[object] = []
        waits = threading.Thread(target=lambda: found.append(locks.lock("a").acquire(timeout=1)))
        waits.start()
        eventually(lambda: in_line(locks))
        proxy.forget()
        started = moment()
        waits.join(20)
        assert found == [None]
        assert since(started) < 1 + 3 * PATIENCE + 1


def test_who_gets_it_untold_asks_again(forgetful: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, url = forgetful
    monkeypatch.setattr(room, "UNTOLD", 0.2, raising=False)
    with interlock.connect(url) as locks, interlock.connect(f"{url}?max_locks=999") as others:
        first = others.lock("a", ttl=0.5).acquire()
        found: list[Any] = []
        waits = threading.Thread(target=lambda: found.append(locks.lock("a").acquire(timeout=20)))
        waits.start()
        eventually(lambda: in_line(locks))
        proxy.forget()
        eventually(lambda: first.lost, 20)
        waits.join(20)
        assert found[0].release()


def gets(locks: Any, name: str) -> bool:
    """Tell whether a lock can be had now."""
    try:
        grant = locks.lock(name).acquire(timeout=0)
    except interlock.StoreError:
        return False
    return bool(grant and grant.release())


def in_line(locks: Any) -> bool:
    """Tell whether a session of this process stands in the server's line."""
    return any(session.waits_for is not None for session in locks._session.store._room.sessions)
