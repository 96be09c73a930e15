"""Servers that refuse, are full, or restart: nothing is written without a WATCH."""

from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.optimistic import CommandRefused, transact
from tests.servers import RedisServer
from tests.support.optimistic_functions import increment, write


def clerk(interface: Any, server: RedisServer, other: Any, *commands: str) -> Any:
    """The client of a user who may send these commands."""
    other.acl_setuser("clerk", enabled=True, passwords=["+secret"], keys=["*"], commands=commands)
    return interface.client(server.url, username="clerk", password="secret")


@pytest.mark.parametrize(
    ("command", "function", "message"),
    [
        ("watch", increment, "refused WATCH"),
        ("multi", increment, "refused MULTI"),
        ("exec", increment, "refused EXEC"),
        ("multi", write, "refused MULTI"),
        ("exec", write, "refused EXEC"),
        ("incrby", write, "refused INCRBY"),
    ],
)
def test_a_forbidden_command_is_named_and_nothing_is_changed(
    interface: Any, server: RedisServer, other: Any, command: str, function: Any, message: str
) -> None:
    client = clerk(interface, server, other, "+@all", f"-{command}")
    with pytest.raises(StoreError, match=f"{message}.*Nothing was changed"):
        interface.transact(client, function)
    assert other.get("number") is None


def test_ignoring_a_refused_watch_commits_nothing(interface: Any, server: RedisServer, other: Any) -> None:
    client = clerk(interface, server, other, "+@all", "-watch")

    async def function(tx: Any) -> None:
        with pytest.raises(StoreError, match="refused WATCH"):
            await tx.get("number")
        tx.set("number", 7)

    with pytest.raises(StoreError, match=r"refused WATCH.*Nothing was changed"):
        interface.transact(client, function)
    assert other.get("number") is None


def test_a_guard_that_is_forbidden_later_is_told_loudly(interface: Any, server: RedisServer, other: Any) -> None:
    client = clerk(interface, server, other, "+@all")
    interface.transact(client, write)
    other.acl_setuser("clerk", commands=["-multi"])
    with pytest.raises(StoreError, match=r"refused MULTI.*may have been done unguarded"):
        interface.transact(client, increment)
    with pytest.raises(StoreError, match=r"refused MULTI.*Nothing was changed"):
        interface.transact(client, increment)
    assert other.get("number") == "2"


def test_a_full_server_refuses_the_whole_transaction(interface: Any, own_server: RedisServer) -> None:
    client = interface.client(own_server.url)
    interface.transact(client, write)
    own_server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreError, match=r"refused SET.*maxmemory.*Nothing was changed"):
        interface.transact(client, increment)
    own_server.command("CONFIG", "SET", "maxmemory", "0")
    assert own_server.command("GET", "number") == "1"


def test_a_read_only_replica_refuses_the_whole_transaction(interface: Any, own_server: RedisServer) -> None:
    own_server.command("REPLICAOF", "127.0.0.1", "1")
    client = interface.client(own_server.url)
    with pytest.raises(StoreError, match="Nothing was changed"):
        interface.transact(client, write)


def test_a_wrong_password_is_told(interface: Any, server: RedisServer) -> None:
    client = interface.client(server.url, username="nobody", password="wrong")
    with pytest.raises(StoreError, match="is unreachable"):
        interface.transact(client, write)


def test_a_restart_between_watch_and_commit_changes_nothing(interface: Any, own_server: RedisServer) -> None:
    client = interface.client(own_server.url)

    async def function(tx: Any) -> None:
        await tx.get("number")
        own_server.restart()
        own_server.command("SET", "number", 5)
        tx.set("number", 1)

    for _ in range(2):  # also when the client is known to the server's access list
        with pytest.raises(StoreError):
            interface.transact(client, function)
        assert own_server.command("GET", "number") == "5"
        interface.transact(client, write)


def test_a_script_that_is_not_loaded_is_told_after_the_commit(server: RedisServer, other: Any) -> None:
    def function(tx: Any) -> Any:
        tx.incr("number")
        return tx.register_script("return 'done'")()

    with pytest.raises(CommandRefused, match=r"NOSCRIPT|No matching script"):
        transact(other, function)
    assert other.get("number") == "1"
    other.script_load("return 'done'")
    assert transact(other, function) == "done"
