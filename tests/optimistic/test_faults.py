"""Lost replies and connections: the error tells what is known; nothing is done twice or without a WATCH."""

from typing import Any

import pytest
import redis
import redis.cache

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.optimistic import transact
from interlock.testing.waiting import lasting
from tests.servers import Proxy, RedisServer
from tests.support.optimistic_functions import increment, write

EXEC = b"\r\nEXEC\r\n"


@pytest.mark.parametrize("function", [increment, write], ids=lambda function: function.__name__)
def test_a_lost_commit_reply_is_unknown_and_nothing_is_repeated(
    interface: Any, proxy: Proxy, other: Any, function: Any
) -> None:
    """redis-py's own `transaction()` treats it as a conflict, and increments twice."""
    client = interface.client(proxy.url)
    interface.transact(client, increment)
    proxy.cut_after_request(EXEC)
    with pytest.raises(UnknownOutcome, match=r"done completely or not at all.*Check the keys") as caught:
        interface.transact(client, function)
    assert type(caught.value.__cause__).__name__ == "ConnectionError"
    assert proxy.cuts == 1
    assert other.get("number") == "2"  # this time it was done, and once
    interface.transact(client, function)
    assert other.get("number") == "3"


def test_the_librarys_own_retries_do_not_repeat_a_commit(interface: Any, proxy: Proxy, other: Any) -> None:
    import redis.asyncio.retry
    import redis.backoff
    import redis.retry

    kind = redis.retry if interface.name == "threads" else redis.asyncio.retry
    retry = kind.Retry(redis.backoff.NoBackoff(), 5)
    client = interface.client(proxy.url, retry=retry, retry_on_error=[ConnectionError], retry_on_timeout=True)
    interface.transact(client, write)
    proxy.cut_after_request(EXEC)
    with pytest.raises(UnknownOutcome):
        interface.transact(client, write)
    assert other.get("number") == "2"


def test_a_connection_lost_before_the_commit_changes_nothing(interface: Any, proxy: Proxy, other: Any) -> None:
    client = interface.client(proxy.url)
    interface.transact(client, increment)
    proxy.cut_after_request(b"GET")
    with pytest.raises(StoreError, match=r"The connection failed.*Nothing was changed") as caught:
        interface.transact(client, increment, "number")  # whose WATCH has an answer
    assert not isinstance(caught.value, UnknownOutcome)
    assert other.get("number") == "1"
    interface.transact(client, increment)
    assert other.get("number") == "2"


def test_what_is_asked_at_once_is_never_repeated(interface: Any, proxy: Proxy, other: Any) -> None:
    client = interface.client(proxy.url)

    async def ask(tx: Any) -> None:
        await tx.ask("INCR", "number")

    interface.transact(client, ask)
    proxy.cut_after_request(b"INCR")
    with pytest.raises(UnknownOutcome, match="No reply to INCR came: it may have been done"):
        interface.transact(client, ask)
    assert other.get("number") == "2"


def test_a_connection_that_somebody_closed_does_not_commit(interface: Any, server: RedisServer, other: Any) -> None:
    """The library would silently reconnect; the new connection watches nothing, so EXEC would write.

    redis-py's own `transaction()` loses the other's update here.
    """
    client = interface.client(server.url)

    async def function(tx: Any) -> None:
        number = int(await tx.get("number") or 0)
        closing = client.connection_pool.disconnect()
        if closing is not None:
            await closing
        other.incr("number")
        tx.set("number", number + 1)

    interface.transact(client, write)
    with pytest.raises(StoreError):
        interface.transact(client, function)
    assert other.get("number") == "2"


def test_ignoring_a_lost_connection_commits_nothing(interface: Any, proxy: Proxy, other: Any) -> None:
    client = interface.client(proxy.url)
    interface.transact(client, write)

    async def function(tx: Any) -> None:
        await tx.watch("another")
        proxy.cut_after_request(b"GET")
        for _ in range(2):
            with pytest.raises(StoreError, match="The connection failed"):
                await tx.get("number")
        tx.set("number", 7)

    with pytest.raises(StoreError, match="Nothing was changed") as caught:
        interface.transact(client, function)
    assert not isinstance(caught.value, UnknownOutcome)
    assert other.get("number") == "1"


def test_a_server_that_is_down_is_told(interface: Any, proxy: Proxy) -> None:
    client = interface.client(proxy.url)
    proxy.refuse()
    with pytest.raises(StoreError, match=r"unreachable.*Nothing was changed") as caught:
        interface.transact(client, increment)
    assert caught.value.__cause__ is not None


def test_an_idle_connection_closed_by_the_server_is_replaced(interface: Any, server: RedisServer, other: Any) -> None:
    client = interface.client(server.url, client_name="idle")
    interface.transact(client, increment)
    other.client_kill_filter(_id=next(each["id"] for each in other.client_list() if each["name"] == "idle"))
    interface.transact(client, increment)
    assert other.get("number") == "2"


def test_the_time_out_also_bounds_a_server_that_does_not_answer(interface: Any, proxy: Proxy) -> None:
    client = interface.client(proxy.url)
    interface.transact(client, write)
    proxy.black_hole()
    with lasting(1.0, 4.0), pytest.raises(StoreError, match="Nothing was changed"):  # it may always take a second
        interface.transact(client, write, timeout=0.1)


def test_the_time_out_bounds_the_answer_to_the_commit(interface: Any, proxy: Proxy) -> None:
    client = interface.client(proxy.url)

    async def function(tx: Any) -> None:
        await increment(tx)
        proxy.black_hole()

    with pytest.raises(StoreError):
        interface.transact(client, function, timeout=0.1)
    proxy.restore()
    interface.transact(client, increment)
    with lasting(1.0, 4.0), pytest.raises(UnknownOutcome):
        interface.transact(client, function, timeout=0.1)


def test_the_clients_own_time_out_counts_if_it_is_shorter(interface: Any, proxy: Proxy) -> None:
    client = interface.client(proxy.url, socket_timeout=0.2)
    interface.transact(client, write)
    proxy.black_hole()
    with lasting(0.0, 5.0), pytest.raises(StoreError, match="Nothing was changed"):
        interface.transact(client, write, timeout=30)


def test_a_thread_interrupted_while_it_reads_leaves_nothing(server: RedisServer, other: Any) -> None:
    class Interrupted(redis.Connection):
        """A connection that does not wait for the first reply to GET."""

        interrupts = 1

        def pack_commands(self, commands: Any) -> Any:
            self.asked = list(commands)
            return super().pack_commands(self.asked)

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            if self.interrupts and b"GET" in getattr(self, "asked", [[]])[-1]:
                Interrupted.interrupts = 0
                raise KeyboardInterrupt
            return super().read_response(*args, **kwargs)

    pool = redis.ConnectionPool.from_url(server.url, connection_class=Interrupted, max_connections=1)
    with redis.Redis.from_pool(pool) as client:
        with pytest.raises(KeyboardInterrupt):
            transact(client, lambda tx: tx.get("number"))
        assert transact(client, lambda tx: tx.incr("number")) == 1


def test_a_pool_that_has_no_connection_left_is_told(interface: Any, server: RedisServer) -> None:
    client = interface.client(server.url, max_connections=1)

    async def nested(tx: Any) -> None:
        await tx.get("number")
        if interface.name == "threads":
            interface.transact(client, write)
        else:
            from interlock.optimistic import atransact

            await atransact(client, write)

    with pytest.raises(StoreError, match=r"unreachable.*[Tt]oo many connections|unreachable.*MaxConn"):
        interface.transact(client, nested)
    interface.transact(client, write)


def test_an_invalid_use_inside_does_not_spoil_the_connection(interface: Any, server: RedisServer, other: Any) -> None:
    client = interface.client(server.url, max_connections=1)

    async def function(tx: Any) -> None:
        await tx.get("number")
        tx.queue("MULTI")

    for _ in range(2):
        with pytest.raises(InvalidArgument):
            interface.transact(client, function)
    interface.transact(client, increment)
    assert other.get("number") == "1"


def test_the_clients_time_out_is_its_own_again_afterwards(server: RedisServer, proxy: Proxy) -> None:
    with redis.Redis.from_url(proxy.url, socket_timeout=3, single_connection_client=True) as client:
        transact(client, lambda tx: tx.incr("number"), timeout=0.5)
        proxy.delay(1.2)
        assert client.get("number") == b"1"
