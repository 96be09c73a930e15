"""Faults between a lock and etcd, each on real servers."""

import asyncio
import gc
import json
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.etcd import still_held
from interlock.testing.store_fixture import THREADS
from interlock.testing.waiting import eventually, lasting
from tests.servers import EtcdCluster, EtcdServer, Proxy, TlsFiles, need
from tests.servers.etcd import coded
from tests.support.client_actors import Side, hand_over, side


def pair(one: Side, name: str, **how: Any) -> None:
    """Acquire and release."""
    assert one.do(one.take(name, **how).release) is True


def listeners(one: Side, sync_or_async: str) -> int:
    """Return how many threads of this process, or tasks of the loop, listen."""
    if sync_or_async == THREADS:
        return [each.name for each in threading.enumerate()].count("interlock-listener")
    return one.do(lambda: [each.get_name() for each in asyncio.all_tasks()].count("interlock-listener"))


def waits(locks: Any, name: str) -> Callable[[], bool]:
    """Return a function that tells whether a waiter is in line."""
    return lambda: any(view.state == "pending" for view in locks.claims(name))


def test_a_killed_and_restarted_server_has_forgotten_nothing(own: EtcdServer, sync_or_async: str) -> None:
    with side(sync_or_async, own.url) as one, side(sync_or_async, own.url) as other, other.beside() as waiter:
        grant = one.take("a")
        with interlock.connect(own.url) as eye:
            waiting = waiter.waits("a")
            eventually(waits(eye, "a"))
            own.kill()
            own.start()
            assert other.take("a", timeout=0.2) is None
            hand_over(one, grant, waiter, waiting, 30)


def test_an_acquire_waits_for_a_server_that_is_away(own: EtcdServer, sync_or_async: str) -> None:
    with side(sync_or_async, own.url) as one, one.beside() as waiter:
        pair(one, "a")
        own.kill()
        waiting = waiter.waits("a", timeout=30)
        with pytest.raises(StoreError, match=str(own.port)):
            one.take("b", blocking=False)
        own.start()
        assert waiting.result(30).held


def test_a_server_that_is_nowhere_is_an_error_soon(sync_or_async: str) -> None:
    with (
        lasting(0.0, 10.0),
        side(sync_or_async, "etcd://127.0.0.1:1") as one,
        pytest.raises(StoreError, match="Cannot connect to"),
    ):
        one.take("a")


@pytest.mark.parametrize("what", ["kill", "pause"])
def test_a_member_or_the_leader_may_fail(cluster: EtcdCluster, sync_or_async: str, what: str) -> None:
    with side(sync_or_async, cluster.url + "?timeout=6") as one, side(sync_or_async, cluster.url) as other:
        grant = one.take("a")
        waiting = other.waits("a")
        eventually(lambda: len(one.claims("a")) == 2)
        leader = cluster.leader()
        follower = next(member for member in cluster.members if member is not leader)
        for member in (follower, leader):
            getattr(member, what)()
            for _ in range(3):
                pair(one, "b", timeout=30)
            assert grant.held
            member.start() if what == "kill" else member.resume()
            cluster.until_there()
        assert not waiting.done()
        hand_over(one, grant, other, waiting, 30)


def test_without_a_majority_no_lock_is_granted_until_it_returns(cluster: EtcdCluster, sync_or_async: str) -> None:
    with side(sync_or_async, cluster.url + "?timeout=2", ttl=60) as one:
        grant = one.take("a")
        lost = cluster.members[1:]
        for member in lost:
            member.kill()
        with pytest.raises(StoreError):
            one.take("b", timeout=3)
        assert grant.held
        waiting = one.waits("c", timeout=60)
        for member in lost:
            member.start()
        cluster.until_there()
        assert waiting.result(60).held
        assert one.do(grant.renew) is True
        assert one.do(grant.release) is True
        assert one.claims("b") == []


def test_an_acquire_whose_answer_is_lost_leaves_nothing_behind(own: EtcdServer, sync_or_async: str) -> None:
    with Proxy(own.host, own.port) as proxy, interlock.connect(own.url) as eye:
        with side(sync_or_async, f"etcd://{proxy.host}:{proxy.port}") as one:
            pair(one, "a")
            proxy.cut_after_request(b"kv/txn")
            grant = one.take("a")
            assert [view.id for view in eye.claims("a")] == [grant.id]
            proxy.cut_after_request(b"kv/txn")
            assert one.do(grant.release) is True
            proxy.cut_after_request(b"kv/txn")
            assert one.take("b", timeout=5).held
            eventually(lambda: eye.claims("a") == [])


def test_a_request_that_comes_late_finds_no_lease(own: EtcdServer) -> None:
    with Proxy(own.host, own.port) as proxy, interlock.connect(own.url) as eye:
        with interlock.connect(f"etcd://{proxy.host}:{proxy.port}?timeout=1") as locks:
            locks.lock("a").acquire().release()
            proxy.hold()
            grant = locks.lock("a").acquire(timeout=30)  # the first request is kept back, and given up
            proxy.pass_on()
            assert locks.lock("b").acquire(timeout=5).held
            assert [view.id for view in eye.claims("a")] == [grant.id]


def test_a_silent_server_delays_nobody_beyond_two_time_outs(own: EtcdServer, sync_or_async: str) -> None:
    with side(sync_or_async, own.url + "?timeout=2") as one:
        pair(one, "a")
        own.pause()
        for how in ({"blocking": False}, {"timeout": 0.1}):
            with lasting(0.0, 2 * 2 + 0.5), pytest.raises(StoreError, match="No reply"):
                one.take("a", **how)
        own.resume()


def test_a_watch_that_is_cut_hears_what_happened_meanwhile(own: EtcdServer, sync_or_async: str) -> None:
    with Proxy(own.host, own.port) as proxy, interlock.connect(own.url) as eye:
        with side(sync_or_async, f"etcd://{proxy.host}:{proxy.port}") as one:
            grant = eye.lock("a").acquire()
            waiting = one.waits("a")
            eventually(waits(eye, "a"))
            proxy.refuse()
            grant.release()
            own.ask("kv/compaction", revision=str(int(own.ask("kv/range", key=coded("x"))["header"]["revision"])))
            proxy.restore()
            with lasting(0.0, 8.0):
                assert waiting.result(30).held


def test_closing_while_the_watch_opens_ends_the_watch(own: EtcdServer, sync_or_async: str) -> None:
    with interlock.connect(own.url) as eye:
        grant = eye.lock("a").acquire()
        for _ in range(10):
            with side(sync_or_async, own.url) as one, one.beside() as waiter:
                waiting = waiter.waits("a")
                eventually(waits(eye, "a"))
                one.do(one.locks.close)
                with pytest.raises(StoreError):
                    waiting.result(10)
                eventually(lambda one=one: listeners(one, sync_or_async) == 0, within=3)  # type: ignore[misc]
        assert grant.release() is True


def test_a_connection_that_opens_during_close_is_closed_too(sync_or_async: str) -> None:
    need("etcd")
    need("tls")
    with EtcdServer(tls=True) as server, Proxy(server.host, server.port) as proxy:
        url = server.url.replace(f":{server.port}", f":{proxy.port}")
        with side(sync_or_async, url) as one, one.beside() as other:
            proxy.delay(0.1)  # the handshake has several answers
            looking = other.start(one.locks.claims, "a")
            eventually(lambda: proxy.requests > 0)
            one.do(one.locks.close)
            assert looking.exception(10) is None or "closed" in str(looking.exception())
            del looking
        gc.collect()  # warns of connections that were left open


def test_a_waiter_reads_before_it_extends_its_lease(own: EtcdServer, sync_or_async: str) -> None:
    """A stuck leader extends leases that a new leader already manages, but answers no read (etcd#15247)."""
    with Proxy(own.host, own.port) as proxy, interlock.connect(own.url) as eye:
        with side(sync_or_async, f"etcd://{proxy.host}:{proxy.port}") as one:
            grant = eye.lock("a").acquire()
            waiting = one.waits("a")
            eventually(waits(eye, "a"))
            before = len(proxy.sent)
            proxy.cut()  # so that it looks
            eventually(lambda: b"lease/keepalive" in proxy.sent[before:])
            asked = proxy.sent[before:]
            assert b"kv/txn" in asked[: asked.index(b"lease/keepalive")]
            assert grant.release() is True
            assert waiting.result(30).held


def test_a_client_certificate_is_shown_and_wanted(sync_or_async: str, tmp_path: Path) -> None:
    need("etcd")
    need("tls")
    with EtcdServer(tls=True) as server:
        with side(sync_or_async, server.url) as one:
            pair(one, "a")
        without = f"etcds://{server.host}:{server.port}?ssl_ca={server.tls.authority}"
        stranger = f"{without}&ssl_cert={server.tls.certificate}&ssl_key={server.tls.key}".replace(
            str(server.tls.authority), str(TlsFiles(tmp_path / "other").authority)
        )
        # httpcore leaves a connection to the collector if its handshake is cancelled, as the end of a loop does here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for wrong in (without, stranger):
                with side(sync_or_async, wrong) as one, pytest.raises(StoreError, match=r"ssl_cert|TLS"):
                    one.take("a", timeout=5)
            gc.collect()


def test_a_user_logs_in_and_again_after_a_restart(sync_or_async: str) -> None:
    need("etcd")
    with EtcdServer(password="se:cr/et") as server:
        url = server.url.replace("se:cr/et", "se%3Acr%2Fet")
        with side(sync_or_async, url) as one:
            pair(one, "a")
            server.restart()
            pair(one, "a", timeout=20)
        for wrong in (url.replace("se%3A", "5ecret"), url.replace("root:se%3Acr%2Fet@", "")):
            with side(sync_or_async, wrong) as one, pytest.raises(StoreError, match="user") as caught:
                one.take("a", timeout=5)
            assert "5ecret" not in str(caught.value)


def test_what_a_url_does_not_say_is_refused() -> None:
    for wrong in (
        "etcd://", "etcd://host?tls=yes", "etcd://host#x", "etcd://host?ssl_ca=/x", "etcds://host?ssl_cert=/x",
        "etcd://host:99999", "etcd://:secret@host", "etcd://a,,b",
    ):  # fmt: skip
        with pytest.raises(InvalidArgument) as caught:
            interlock.connect(wrong)
        assert "secret" not in str(caught.value)
    with pytest.raises(StoreError, match="read"):
        interlock.connect("etcds://host?ssl_ca=/nowhere")


def test_a_users_transaction_writes_only_while_the_lock_is_held(own: EtcdServer) -> None:
    def write(grant: Any, value: str) -> bool:
        put = {"request_put": {"key": coded("book"), "value": coded(value)}}
        return "succeeded" in own.ask("kv/txn", compare=[still_held(grant)], success=[put])

    with interlock.connect(own.url, namespace="library") as locks:
        old = locks.lock("book").acquire()
        assert write(old, "1") is True
        locks.evict("book")
        new = locks.lock("book").acquire()
        assert write(old, "2") is False
        assert write(new, "3") is True
        assert json.dumps(still_held(new))
    with interlock.connect("memory://") as locks, pytest.raises(InvalidArgument):
        still_held(locks.lock("x").acquire())
