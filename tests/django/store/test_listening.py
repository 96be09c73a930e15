"""Wake-ups between processes on PostgreSQL: who waits in another process is told, and who hears nothing polls."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections
from store.test_connections import ask, site  # noqa: F401
from store.test_processes import start

from interlock.django import listener as listening
from interlock.django import locks
from interlock.django.listener import NotificationListener
from interlock.django.models import Claim
from interlock.testing.waiting import eventually
from tests.servers import PgBouncer, Proxy, need

LISTENS = """
    FROM pg_stat_activity WHERE query LIKE 'LISTEN interlock_claim%'
    OR query LIKE 'NOTIFY interlock_claim, ''ping%' OR query LIKE 'SELECT pg_notify(''interlock_claim'', ''ping%'
"""


@contextmanager
def waiters(*rounds: int, work: str = "wait_deaf_to_time") -> Iterator[list[Any]]:
    """Processes that wait for the lock `held`, one behind the other, and hear of its release."""
    children: list[subprocess.Popen[str]] = []
    try:
        for each in rounds:
            children.append(start(work, each, stdin=subprocess.PIPE))
            assert said_by(children[-1]) == "hears"
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def said_by(child: Any, seconds: float = 60) -> str | None:
    """Return the next line that a process writes."""
    found: list[str] = []
    reading = threading.Thread(target=lambda: found.append(child.stdout.readline().strip()), daemon=True)
    reading.start()
    reading.join(seconds)
    return found[0] if found else None


def listeners() -> list[int]:
    """Return the sessions that listen."""
    return [pid for (pid,) in ask(f"SELECT pid {LISTENS}")]


def test_a_waiter_in_another_process_is_told_and_does_not_poll() -> None:
    with locks.lock("held") as grant, waiters(1) as (child,):
        assert grant.release()
        assert said_by(child) == "had"


def test_each_one_in_the_line_is_told_when_it_is_its_turn() -> None:
    with locks.lock("held") as grant, waiters(1, 1) as children:
        assert grant.release()
        for child in children:
            assert said_by(child) == "had"
            child.stdin.write("\n")
            child.stdin.flush()


def test_those_that_fit_together_are_told_one_by_the_other() -> None:
    with locks.rwlock("held").write() as grant, waiters(2, 2, 2) as children:
        assert grant.release()
        assert [said_by(child) for child in children] == ["had"] * 3


def test_an_evicted_waiter_is_told_and_stands_in_line_again() -> None:
    with locks.lock("held") as grant, waiters(1) as (child,):
        (waiting,) = [view for view in locks.claims() if view.state == "pending"]
        assert locks.evict("held", waiting.id) == 1
        eventually(lambda: [view.id for view in locks.claims() if view.state == "pending"] not in ([], [waiting.id]))
        assert grant.release()
        assert said_by(child) == "had"


def test_who_is_evicted_hands_over_to_a_waiter_in_another_process() -> None:
    grant = locks.lock("held").acquire()
    assert grant is not None
    with waiters(1) as (child,):
        assert locks.evict("held", grant.id) == 1
        assert said_by(child) == "had"
        assert not grant.release()


def test_nobody_is_told_anything_where_nobody_waits(site: Callable[..., None]) -> None:  # noqa: F811
    place = connections.settings["default"]
    with Proxy(place["HOST"], int(place["PORT"])) as proxy:
        site(HOST=proxy.host, PORT=str(proxy.port))
        for _ in range(3):
            with locks.lock("a"):
                pass
        assert b"interlock_claim_enter" in proxy.sent
        assert b"notify" not in proxy.sent.lower()
        assert b"LISTEN" not in proxy.sent
        assert listeners() == []


def in_a_thread(work: Callable[[], Any]) -> threading.Thread:
    """Run something beside."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@contextmanager
def a_waiter_here() -> Iterator[None]:
    """A thread of this process waits for `held`, which this one holds."""
    with locks.lock("held") as grant:
        waiting = in_a_thread(lambda: locks.lock("held").acquire(timeout=120))
        eventually(lambda: Claim.objects.filter(state__in=("pending", "queued")).exists())
        try:
            yield
        finally:
            grant.release()
            waiting.join(60)
            assert not waiting.is_alive()
    locks.evict("held")


def test_a_listener_that_was_cut_off_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "AGAIN", 0.0)
    mine = NotificationListener.of("default")
    with a_waiter_here():
        eventually(lambda: mine.hears)
        (first,) = listeners()
        ask(f"SELECT pg_terminate_backend({first})")
        eventually(lambda: mine.hears and listeners() not in ([], [first]))


def test_a_listener_that_hears_nothing_is_replaced(
    site: Callable[..., None],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in {"AGAIN": 0.0, "PING": 0.2, "DEAF": 0.5}.items():
        monkeypatch.setattr(listening, name, seconds)
    place = connections.settings["default"]
    with Proxy(place["HOST"], int(place["PORT"])) as proxy:
        site(HOST=proxy.host, PORT=str(proxy.port))
        mine = NotificationListener("claims")
        mine.join(proxy)
        try:
            eventually(lambda: (mine.need(), mine.hears)[1])
            thread = mine._thread
            proxy.forget()
            eventually(lambda: (mine.need(), mine._thread not in (thread, None) and mine.hears)[1])
        finally:
            mine.leave(proxy)
        assert mine._thread is None


def test_nobody_listens_when_the_last_store_is_closed() -> None:
    with a_waiter_here():
        eventually(lambda: NotificationListener.of("default").hears)
    assert listeners() != []
    locks.close()
    eventually(lambda: listeners() == [])


def test_a_connection_that_nobody_needs_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "IDLE", 0.3)
    monkeypatch.setattr(listening, "PING", 0.1)
    with a_waiter_here():
        eventually(lambda: listeners() != [])
    eventually(lambda: listeners() == [])


def test_behind_a_pooler_nobody_listens_and_waiters_poll(site: Callable[..., None]) -> None:  # noqa: F811
    need("pgbouncer")
    place = connections.settings["default"]
    with PgBouncer((place["HOST"], int(place["PORT"]), place["USER"])) as bouncer:
        site(HOST=bouncer.host, PORT=str(bouncer.port))
        with a_waiter_here():
            eventually(lambda: NotificationListener.of("claims")._not_before > 0)
            assert not NotificationListener.of("claims").hears
        locks.close()
