"""Commands, arguments and limits that a transaction accepts or refuses, in both colours."""

from typing import Any

import pytest

from interlock.core.errors import InvalidArgument
from tests.support.optimistic_functions import borrow


@pytest.mark.parametrize(
    "words", [("WATCH", "x"), ("unwatch",), ("MULTI",), ("EXEC",), ("SUBSCRIBE", "x"), ("CLIENT REPLY", "OFF")]
)
def test_what_would_disturb_the_connection_is_refused(interface: Any, client: Any, words: tuple[str, ...]) -> None:
    for way in ("queue", "ask", "execute_command"):

        async def function(tx: Any, way: str = way) -> None:
            await getattr(tx, way)(*words)

        with pytest.raises(InvalidArgument, match=f"{words[0]} is not allowed: the transaction"):
            interface.transact(client, function)
    assert interface.transact(client, borrow) is None


@pytest.mark.parametrize("words", [(), ("",), (None,), (7,)])
def test_a_command_begins_with_its_name(interface: Any, client: Any, words: tuple[Any, ...]) -> None:
    async def function(tx: Any) -> None:
        tx.queue(*words)

    with pytest.raises(InvalidArgument, match="A command must begin with its name"):
        interface.transact(client, function)


def test_an_argument_that_is_no_text_is_told_where_it_stands(interface: Any, client: Any, other: Any) -> None:
    import redis

    async def function(tx: Any) -> None:
        with pytest.raises(redis.DataError):
            tx.set("copies", object())

    interface.transact(client, function)
    assert other.get("copies") is None


def test_a_transaction_is_of_no_use_after_its_function(interface: Any, client: Any, other: Any) -> None:
    kept = []

    async def function(tx: Any) -> None:
        kept.append(tx)

    async def late(tx: Any) -> None:
        for way in (kept[0].get, kept[0].incr, kept[0].watch, kept[0].queue):
            with pytest.raises(InvalidArgument, match="This transaction has ended"):
                await way("copies")

    interface.transact(client, function)
    interface.transact(client, late)
    assert other.get("copies") is None


def test_a_transaction_has_only_the_commands_of_the_client(interface: Any, client: Any) -> None:
    async def function(tx: Any) -> None:
        for name in ("pipeline", "lock", "pubsub", "connection_pool", "_secret"):
            with pytest.raises(AttributeError, match=f"A transaction has no '{name}', only the client's commands"):
                getattr(tx, name)

    interface.transact(client, function)


@pytest.mark.parametrize("limits", [{"retries": -1}, {"retries": 1.5}, {"retries": False}, {"retries": "many"}])
def test_retries_are_a_whole_number_or_none(interface: Any, client: Any, limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="retries"):
        interface.transact(client, borrow, **limits)


@pytest.mark.parametrize("limits", [{"timeout": -2}, {"timeout": "soon"}, {"backoff": -1}, {"backoff": float("inf")},
                                    {"backoff": float("nan")}, {"backoff": None}, {"backoff": True}])  # fmt: skip
def test_times_are_numbers_of_seconds(interface: Any, client: Any, limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(limits))):
        interface.transact(client, borrow, **limits)


@pytest.mark.parametrize("where", [None, "redis://localhost", object(), {}])
def test_what_is_no_client_is_refused(interface: Any, where: Any) -> None:
    with pytest.raises(InvalidArgument, match="Pass a client of redis-py or valkey-py, or a backend"):
        interface.transact(where, borrow)


def test_a_script_is_queued(interface: Any, client: Any, other: Any) -> None:
    async def function(tx: Any) -> Any:
        script = "return redis.call('incrby', KEYS[1], ARGV[1])"
        return tx.eval(script, 1, "copies", 5)

    assert interface.transact(client, function) == 5
