"""The proxy does to connections exactly what it is told."""

import gc
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress

import pytest

from interlock.testing.waiting import eventually
from tests.servers import NotStarted, Proxy, RedisServer, Wire, need
from tests.servers.home import PORTS, Port


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server behind the proxies."""
    need("valkey")
    with RedisServer("valkey") as server:
        yield server


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    """A proxy that behaves, before a server without data."""
    server.command("FLUSHALL")
    with Proxy(server.host, server.port) as proxy:
        yield proxy


def through(proxy: Proxy, timeout: float = 10.0) -> Wire:
    """Connect through a proxy."""
    return Wire((proxy.host, proxy.port), timeout=timeout)


def test_what_behaves_passes_everything(proxy: Proxy) -> None:
    with through(proxy) as wire:
        value = "x" * 1_000_000
        assert wire.ask("SET", "key", value) == "OK"
        assert wire.ask("GET", "key") == value
    assert b"GET" in proxy.sent
    assert proxy.requests > 2


def test_a_reply_is_cut_after_the_request_was_done(proxy: Proxy, server: RedisServer) -> None:
    proxy.cut_after_request(b"INCR", times=2)
    with through(proxy) as wire:
        assert wire.ask("PING") == "PONG"
        with pytest.raises(OSError):
            wire.ask("INCR", "count")
    assert server.command("GET", "count") == "1"
    with through(proxy) as wire, pytest.raises(OSError):
        wire.ask("INCR", "count")
    with through(proxy) as wire:
        assert wire.ask("INCR", "count") == 3
    assert proxy.cuts == 2


def test_the_next_reply_is_dropped(proxy: Proxy, server: RedisServer) -> None:
    proxy.drop_next_reply()
    with through(proxy) as wire, pytest.raises(OSError):
        wire.ask("SET", "key", "done")
    assert server.command("GET", "key") == "done"


def test_cut_closes_what_is_open_and_accepts_what_is_new(proxy: Proxy) -> None:
    with through(proxy) as wire:
        wire.ask("PING")
        proxy.cut()
        with pytest.raises(OSError):
            wire.ask("PING")
    with through(proxy) as wire:
        assert wire.ask("PING") == "PONG"


def test_replies_are_delayed(proxy: Proxy) -> None:
    with through(proxy) as wire:
        proxy.delay(0.2)
        began = time.monotonic()
        wire.ask("PING")
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("passes_requests", [False, True])
def test_a_black_hole_keeps_connections_and_swallows(
    proxy: Proxy, server: RedisServer, passes_requests: bool
) -> None:
    with through(proxy, timeout=0.1) as old:
        old.ask("PING")
        proxy.black_hole(passes_requests)
        with pytest.raises(TimeoutError):
            old.ask("SET", "old", "1")
        with through(proxy, timeout=0.1) as new, pytest.raises(TimeoutError):
            new.ask("SET", "new", "1")
        if passes_requests:
            eventually(lambda: server.command("MGET", "old", "new") == ["1", "1"])
        else:
            eventually(lambda: proxy.requests == 3)
            assert server.command("MGET", "old", "new") == [None, None]


def test_who_subscribed_before_a_black_hole_hears_again_after_it(proxy: Proxy, server: RedisServer) -> None:
    with through(proxy) as wire:
        wire.ask("SUBSCRIBE", "news")
        proxy.black_hole(passes_requests=True)
        server.command("PUBLISH", "news", "swallowed")
        # The next message is published only after the first went through the proxy: a request of ours shows that.
        with through(proxy, timeout=0.2) as other, pytest.raises(TimeoutError):
            other.ask("PING")
        proxy.restore()
        heard: list[object] = []
        reader = threading.Thread(target=lambda: heard.append(wire.read()))
        reader.start()
        server.command("PUBLISH", "news", "passed")
        reader.join(10)
        assert heard == [["message", "news", "passed"]]


def test_refused_until_restored(proxy: Proxy) -> None:
    port = proxy.port
    with through(proxy) as wire:
        wire.ask("PING")
        proxy.refuse()
        with pytest.raises(OSError):
            wire.ask("PING")
    with pytest.raises(ConnectionRefusedError):
        through(proxy)
    proxy.restore()
    assert proxy.port == port
    with through(proxy) as wire:
        assert wire.ask("PING") == "PONG"


def test_nobody_is_given_the_port_while_it_refuses(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(NotStarted, match="is taken"):
        Port(proxy.port)
    assert proxy.port in PORTS  # which systems hand out to nobody


def test_clients_of_a_server_that_is_down_see_their_connection_closed() -> None:
    need("valkey")
    with RedisServer("valkey") as server, Proxy(server.host, server.port) as proxy:
        server.kill()
        with pytest.raises(OSError), through(proxy) as wire:
            wire.ask("PING")
        server.start()
        with through(proxy) as wire:
            assert wire.ask("PING") == "PONG"


def test_a_connection_that_has_just_come_is_closed_as_well(server: RedisServer) -> None:
    """What stays open is told by Python when its garbage is collected."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(100):
            with Proxy(server.host, server.port) as proxy:
                client = socket.create_connection((proxy.host, proxy.port), 10.0)
            with client, suppress(ConnectionResetError):
                assert client.recv(1) == b""
        gc.collect()
    assert not told
