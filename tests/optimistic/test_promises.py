"""What a transaction promises, in both colours."""

from typing import Any

import pytest

from interlock.core.errors import InvalidArgument, LockError, StoreError
from interlock.optimistic import CommandRefused, Conflict
from tests.servers import RedisServer
from tests.support.optimistic_functions import borrow
from tests.support.optimistic_interfaces import KINDS, Kind


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_works_with_every_kind_of_client(interface: Any, server: RedisServer, other: Any, kind: Kind) -> None:
    client = interface.client(server.url, kind)
    text = str if kind.decode else str.encode

    async def change(tx: Any) -> tuple[Any, Any]:
        if tx.number == 1:
            await tx.get("copies")
            other.incr("copies")
        tx.hset("book", mapping={"name": "Dune", "year": 1965})
        tx.incr("copies")
        return await tx.get("copies"), await tx.hgetall("book")

    other.set("copies", 3)
    assert interface.transact(client, change, "copies") == (text("4"), {})
    assert other.get("copies") == "5"
    assert other.hgetall("book") == {"name": "Dune", "year": "1965"}


def test_what_the_function_returns_comes_back(interface: Any, client: Any, other: Any) -> None:
    other.set("copies", 2)
    assert [interface.transact(client, borrow, "copies") for _ in range(3)] == [1, 0, None]
    assert other.get("copies") == "0"


def test_a_change_between_watch_and_commit_reruns_the_function(interface: Any, client: Any, other: Any) -> None:
    other.set("copies", 5)
    numbers = []

    async def function(tx: Any) -> int | None:
        numbers.append(tx.number)
        left = await borrow(tx)
        if tx.number < 4:
            other.incr("copies")
        return left

    assert interface.transact(client, function, "copies") == 7
    assert numbers == [1, 2, 3, 4]


def test_what_is_read_is_watched_without_being_named(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> None:
        names = await tx.lrange("names", 0, -1)
        if tx.number == 1:
            other.rpush("names", "Anna")
        tx.set("count", len(names))

    interface.transact(client, function)
    assert other.get("count") == "1"


def test_a_key_that_is_watched_but_not_read_counts(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> None:
        await tx.watch("epoch", "another")
        if tx.number == 1:
            other.incr("epoch")
        tx.incr("runs")
        tx.set("number", tx.number)

    interface.transact(client, function)
    assert other.mget("runs", "number") == ["1", "2"]


def test_the_same_value_written_again_is_a_change(interface: Any, client: Any, other: Any) -> None:
    other.set("copies", 1)

    async def function(tx: Any) -> None:
        await tx.get("copies")
        if tx.number == 1:
            other.set("copies", 1)
        tx.set("number", tx.number)

    interface.transact(client, function)
    assert other.get("number") == "2"


def test_ask_does_not_watch(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> Any:
        hint = await tx.ask("GET", "hint")
        other.incr("hint")
        tx.set("number", tx.number)
        return hint

    other.set("hint", 1)
    assert interface.transact(client, function) == b"1"
    assert other.get("number") == "1"


def test_reads_do_not_see_what_is_queued(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> Any:
        tx.set("copies", 2)
        assert other.get("copies") is None
        return await tx.get("copies")

    assert interface.transact(client, function) is None
    assert other.get("copies") == "2"


def test_a_function_that_only_reads_sees_one_consistent_picture(interface: Any, client: Any, other: Any) -> None:
    other.mset({"left": 5, "right": 5})

    async def function(tx: Any) -> int:
        left = int(await tx.get("left"))
        if tx.number == 1:
            other.mset({"left": 6, "right": 4})  # between the two reads
        return left + int(await tx.get("right"))

    assert interface.transact(client, function) == 10


def test_a_queued_command_that_is_returned_stands_for_its_reply(interface: Any, client: Any, other: Any) -> None:
    other.set("copies", 41)

    async def function(tx: Any) -> Any:
        return tx.incr("copies")

    assert interface.transact(client, function) == 42


@pytest.mark.parametrize("use", [bool, int, float, list, len, lambda queued: queued[0]])
def test_who_takes_a_queued_command_for_its_reply_is_told_so(
    interface: Any, client: Any, other: Any, use: Any
) -> None:
    async def function(tx: Any) -> None:
        use(await tx.incr("copies"))

    with pytest.raises(InvalidArgument, match=r"INCRBY is only queued, and has no reply before the commit.*tx\.ask"):
        interface.transact(client, function)
    assert other.get("copies") is None


def test_an_exception_in_the_function_commits_nothing(
    interface: Any, client: Any, other: Any, server: RedisServer
) -> None:
    async def function(tx: Any) -> None:
        await tx.get("copies")
        tx.set("copies", 1)
        raise KeyError("no such book")

    with pytest.raises(KeyError, match="no such book"):
        interface.transact(client, function, "another")
    assert other.get("copies") is None
    assert connections_that_watch(server) == 0

    async def fine(tx: Any) -> None:
        tx.set("copies", 2)

    other.incr("another")
    interface.transact(client, fine, retries=0)  # on the same connection
    assert other.get("copies") == "2"


def connections_that_watch(server: RedisServer) -> int:
    """How many connections watch something, as the server says where it does."""
    info = server.info("clients")
    return int(info.get("watching_clients", "0"))


def test_after_a_transaction_nothing_is_watched(interface: Any, client: Any, server: RedisServer) -> None:
    async def looks(tx: Any) -> None:
        await tx.get("copies")

    async def writes(tx: Any) -> None:
        await tx.get("copies")
        tx.set("copies", 1)

    for function in (looks, writes):
        interface.transact(client, function)
        assert connections_that_watch(server) == 0


def test_used_up_retries_raise_conflict_and_change_nothing(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> None:
        await tx.get("copies")
        other.incr("copies")
        tx.set("done", 1)

    with pytest.raises(
        Conflict, match=r"Others changed the data that was read \('copies'\) in each of 4 tries"
    ) as caught:
        interface.transact(client, function, retries=3, backoff=0)
    assert isinstance(caught.value, LockError)
    assert (caught.value.tries, caught.value.keys) == (4, ("copies",))
    assert other.get("done") is None
    assert other.get("copies") == "4"


def test_without_retries_there_is_one_try(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> None:
        other.incr("copies")
        tx.set("done", tx.number)

    with pytest.raises(Conflict, match="in the only try"):
        interface.transact(client, function, "copies", retries=0)
    assert other.mget("copies", "done") == ["1", None]


def test_the_time_out_ends_the_tries(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> None:
        other.incr("copies")

    with pytest.raises(Conflict) as caught:
        interface.transact(client, function, "copies", retries=None, timeout=1.0)
    assert 1.0 <= caught.value.seconds < 6
    assert caught.value.tries > 1


def test_a_command_refused_at_once_cancels_all_others(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> None:
        tx.set("copies", 1)
        tx.queue("NOSUCHCOMMAND", "x")

    with pytest.raises(StoreError, match=r"refused NOSUCHCOMMAND and thus the whole.*Nothing was changed") as caught:
        interface.transact(client, function)
    assert not isinstance(caught.value, CommandRefused)
    assert other.get("copies") is None


def test_a_command_that_fails_at_the_commit_gives_all_replies(interface: Any, client: Any, other: Any) -> None:
    other.set("text", "no number")
    handles = []

    async def function(tx: Any) -> None:
        handles.extend([tx.set("copies", 1), tx.incr("text"), tx.incr("copies")])

    with pytest.raises(CommandRefused, match=r"except for 1 of its 3 commands.*INCRBY: .*not an integer") as caught:
        interface.transact(client, function)
    assert caught.value.replies[0] is True
    assert isinstance(caught.value.replies[1], Exception)
    assert caught.value.replies[2] == 2
    assert handles[2].reply == 2
    assert other.get("copies") == "2"


def test_an_error_of_a_read_is_redis_pys_own_and_may_be_caught(interface: Any, client: Any, other: Any) -> None:
    import redis

    other.set("text", "no list")

    async def function(tx: Any) -> None:
        try:
            await tx.lrange("text", 0, -1)
        except redis.ResponseError:
            tx.delete("text")
            if tx.number == 1:
                other.set("text", "changed: it was watched all the same")
        else:
            raise AssertionError("no error")
        tx.set("number", tx.number)

    interface.transact(client, function)
    assert other.mget("text", "number") == [None, "2"]
