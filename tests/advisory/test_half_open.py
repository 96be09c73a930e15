"""A balancer forgets connections without a word: whoever waits for an answer that never comes takes new ones."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import interlock
from interlock.stores.advisory import base, mysql, postgres, room
from interlock.testing.waiting import eventually, moment, since, throughout
from tests.servers import MariaServer, PostgresServer, Proxy, need
from tests.support.crowd import nobody_waits_for_the_others

ANSWER = 1.0  # seconds for an answer; 5 unless a test says otherwise


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
    for module in (base, mysql, postgres, room):
        monkeypatch.setattr(module, "IO_TIMEOUT", ANSWER)
    monkeypatch.setattr(room, "UNHEARD", ANSWER)
    with Proxy(server.host, server.port) as proxy:
        scheme = server.url.partition(":")[0]
        yield proxy, f"{scheme}+advisory://{server.user}@{proxy.host}:{proxy.port}/{server.database}"


def test_a_crowd_of_tasks_waits_for_a_silent_server_no_longer_than_one(server: Any) -> None:
    """They share a few threads; the time in line for one counts."""

    async def play() -> None:
        with Proxy(server.host, server.port) as proxy:
            scheme = server.url.partition(":")[0]
            url = f"{scheme}+advisory://{server.user}@{proxy.host}:{proxy.port}/{server.database}"
            async with interlock.aconnect(url) as locks:
                await (await locks.lock("a").acquire()).release()
                proxy.black_hole()
                try:
                    await nobody_waits_for_the_others(locks)
                finally:
                    await asyncio.to_thread(proxy.cut)
                    proxy.restore()

    asyncio.run(play())


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


@pytest.fixture
def waiting(forgetful: tuple[Proxy, str], server: Any) -> Iterator[tuple[Any, Any, threading.Thread, list[Any]]]:
    """Locks of which one waits on a connection that is forgotten by now, its holder, and how it ends."""
    proxy, url = forgetful
    direct = server.url.replace(":", "+advisory:", 1)
    with interlock.connect(url) as locks, interlock.connect(direct) as others:
        holder = others.lock("a").acquire()
        found: list[Any] = []
        waits = threading.Thread(target=lambda: found.append(locks.lock("a").acquire(timeout=60)))
        waits.start()
        sessions = locks._session.store._room.sessions
        eventually(lambda: any(session.waits_for is not None for session in sessions))
        proxy.forget()
        yield locks, holder, waits, found
        waits.join(30)
        assert found[0].release()


def test_a_wait_can_be_ended(waiting: tuple[Any, Any, threading.Thread, list[Any]]) -> None:
    locks, holder, _, _ = waiting
    evicts = threading.Thread(target=lambda: locks.evict("a"))
    evicts.start()
    evicts.join(20)
    assert not evicts.is_alive()
    holder.release()


def test_who_gets_it_untold_asks_again(waiting: tuple[Any, Any, threading.Thread, list[Any]]) -> None:
    _, holder, waits, found = waiting
    holder.release()
    waits.join(30)
    assert found[0].held


def test_who_waits_goes_to_a_new_connection_when_another_gives_no_answer(
    waiting: tuple[Any, Any, threading.Thread, list[Any]],
) -> None:
    locks, holder, _, _ = waiting
    sessions = locks._session.store._room.sessions
    (forgotten,) = sessions.apart
    eventually(lambda: gets(locks, "b"), 20)
    eventually(lambda: [each for each in sessions if each is not forgotten and each.waits_for is not None])
    assert forgotten not in sessions.apart
    holder.release()


def test_a_lock_goes_on_though_the_server_hears_no_end_of_a_forgotten_connection(
    forgetful: tuple[Proxy, str], server: Any
) -> None:
    """What a balancer forgot it forgets wholly: neither the end of a connection nor a reset comes through."""
    proxy, url = forgetful
    direct = server.url.replace(":", "+advisory:", 1)
    with interlock.connect(url) as locks, interlock.connect(direct) as others, ThreadPoolExecutor(1) as threads:
        holder = others.lock("a").acquire()
        waits = begin_to_wait(threads, locks)
        proxy.forget(wholly=True)
        holder.release()
        assert waits.result(30).release()
        eventually(lambda: gets(others, "a"), 20)


def test_a_wait_that_began_after_a_session_fell_silent_is_left_alone(
    forgetful: tuple[Proxy, str], server: Any
) -> None:
    """The silent session carries a long lease, so it stays: it says nothing of waits that are newer."""
    proxy, url = forgetful
    direct = server.url.replace(":", "+advisory:", 1)
    with interlock.connect(url) as locks, interlock.connect(direct) as others, ThreadPoolExecutor(1) as threads:
        holder = others.lock("a").acquire()
        other = locks.lock("b", ttl=600).acquire()
        waits = begin_to_wait(threads, locks)
        sessions = locks._session.store._room.sessions
        forgotten = {*sessions}
        proxy.forget()
        assert not gets(locks, "c")
        eventually(lambda: any(each.waits_for is not None and each not in forgotten for each in sessions), 20)
        (waiting,) = [each for each in sessions if each.waits_for is not None]
        throughout(2 * ANSWER, lambda: waiting.waits_for is not None)
        assert other.held == (server.url.startswith("postgres"))
        holder.release()
        assert waits.result(30).release()
        with suppress(interlock.StoreError):  # nobody hears it
            other.release()


@pytest.fixture
def looked_at(forgetful: tuple[Proxy, str], server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A wait at which is looked often; its session, the answers of the server, how it ends, and the holder."""
    monkeypatch.setattr(room, "UNHEARD", 0.05)
    monkeypatch.setattr(room, "TWICE", 0.05)
    url, direct = forgetful[1], server.url.replace(":", "+advisory:", 1)
    with interlock.connect(url) as locks, interlock.connect(direct) as others, ThreadPoolExecutor(1) as threads:
        holder = others.lock("a").acquire()
        waits = begin_to_wait(threads, locks)
        sessions = locks._session.store._room.sessions
        (waiting,) = sessions.apart
        yield waiting, sessions, waits, holder
        holder.release()
        assert waits.result(30).release()


@pytest.mark.parametrize("answer", ["waits", "holds", "unknown"])
def test_a_wait_that_may_be_answered_soon_is_left_alone(
    looked_at: Any, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    waiting, sessions, _, _ = looked_at
    asked: list[Any] = []

    def standing(*about: Any) -> str:
        asked.append(about)
        return answer

    monkeypatch.setattr(type(waiting), "standing", standing)
    eventually(lambda: len(asked) > 3)
    assert sessions.apart == [waiting]


@pytest.mark.parametrize("answer", ["holds", "gone"])
def test_a_wait_that_is_not_answered_is_asked_for_again(
    looked_at: Any, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    waiting, sessions, _, _ = looked_at
    monkeypatch.setattr(room, "UNTOLD", 0.1)
    monkeypatch.setattr(type(waiting), "standing", lambda _, asked, key: answer if asked is waiting else "waits")
    eventually(lambda: sessions.apart and waiting not in sessions.apart)


def test_a_waiter_goes_on_while_no_session_can_be_opened(looked_at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, sessions, waits, _ = looked_at
    refusals: list[None] = []

    def refuse() -> Any:
        refusals.append(None)
        raise interlock.StoreError("too many clients already")

    opens = sessions.open_apart
    monkeypatch.setattr(sessions, "open_apart", refuse)
    waiting.fail()
    eventually(lambda: len(refusals) > 2)
    assert not waits.done()
    monkeypatch.setattr(sessions, "open_apart", opens)


def test_what_a_session_gave_that_has_ended_meanwhile_is_not_had(forgetful: tuple[Proxy, str]) -> None:
    with interlock.connect(forgetful[1]) as locks, ThreadPoolExecutor(1) as threads:
        assert gets(locks, "a")
        ours = locks._session.store._room
        session = ours.sessions.main
        attempt = session.attempt

        def ends_then(key: int, shared: bool) -> int | None:
            with session.mutex:
                fence: int | None = attempt(key, shared)
                threads.submit(ours.lost, session).result(10)
            return fence

        session.attempt = ends_then
        grant = locks.lock("a").acquire(timeout=5)
        assert [each.session is session for each in ours.places] == [False]
        assert grant.release()


def test_a_session_that_ends_while_somebody_talks_to_it_is_closed_after_that(forgetful: tuple[Proxy, str]) -> None:
    """To close it at once would free what the client library is reading just then."""
    with interlock.connect(forgetful[1]) as locks, ThreadPoolExecutor(1) as threads:
        assert gets(locks, "a")
        sessions = locks._session.store._room.sessions
        session = sessions.main
        closed: list[None] = []
        close = session._close
        session._close = lambda: closed.append(close())
        with session.mutex:
            threads.submit(locks._session.store._room.lost, session).result(10)
            eventually(lambda: session in sessions.ended)
            assert not closed
        eventually(lambda: closed and not sessions.ended)
        assert gets(locks, "a")


def test_a_wait_that_the_server_never_heard_of_is_asked_for_again(
    forgetful: tuple[Proxy, str], server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, url = forgetful
    begin, asked = room.Room._begin, list[Any]()

    def forgotten(self: Any, session: Any, place: Any) -> None:
        if not asked:
            proxy.forget()
        asked.append(session)
        begin(self, session, place)

    monkeypatch.setattr(room.Room, "_begin", forgotten)
    with interlock.connect(url) as locks, interlock.connect(server.url.replace(":", "+advisory:", 1)) as others:
        holder = others.lock("a").acquire()
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(locks.lock("a").acquire, timeout=60)
            eventually(lambda: asked)
            holder.release()
            assert waits.result(30).held


def test_who_waits_again_does_so_on_a_session_that_is_heard(forgetful: tuple[Proxy, str], server: Any) -> None:
    proxy, url = forgetful
    with interlock.connect(url) as locks, interlock.connect(server.url.replace(":", "+advisory:", 1)) as others:
        sessions = locks._session.store._room.sessions
        wait_for(locks, others, sessions)
        idle = list(sessions.apart)
        assert idle
        proxy.forget()
        eventually(lambda: gets(locks, "b"), 20)  # the other session is a new one
        wait_for(locks, others, sessions)
        assert not {*idle} & {*sessions.apart}


def begin_to_wait(threads: ThreadPoolExecutor, locks: Any) -> Any:
    """Let a thread wait for the lock that others hold."""
    waits = threads.submit(locks.lock("a").acquire, timeout=60)
    eventually(lambda: any(session.waits_for is not None for session in locks._session.store._room.sessions))
    return waits


def wait_for(locks: Any, others: Any, sessions: Any) -> None:
    """Wait for a lock that others hold, until they release it."""
    holder = others.lock("a").acquire()
    with ThreadPoolExecutor(1) as threads:
        waits = begin_to_wait(threads, locks)
        holder.release()
        assert waits.result(30).release()


def test_those_who_wait_for_a_session_wait_for_one_attempt_to_open_it(forgetful: tuple[Proxy, str]) -> None:
    proxy, url = forgetful
    url += "?connect_timeout=2" if url.startswith("postgresql") else ""
    proxy.black_hole()
    with interlock.connect(url) as locks, ThreadPoolExecutor(6) as threads:
        started = moment()
        assert not any(threads.map(lambda number: gets(locks, f"a{number}"), range(6)))
        assert since(started) < 10  # one after another they would need 12 s


def gets(locks: Any, name: str) -> bool:
    """Tell whether a lock can be had now."""
    try:
        grant = locks.lock(name).acquire(timeout=0)
    except interlock.StoreError:
        return False
    return bool(grant and grant.release())
