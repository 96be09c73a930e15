"""The second seed's text on WATCH, MULTI, EXEC and UNWATCH: each of its statements, on real servers.

First the server itself, as in the text's two terminals; then what becomes of it with `transact`.
"""

from typing import Any

import pytest

from interlock.optimistic import Conflict, transact
from tests.servers import RedisServer, Wire


@pytest.fixture
def terminals(server: RedisServer) -> Any:
    """Two terminals, as the text has them, and a key `title` with "name" in it."""
    with server.wire() as first, server.wire() as second:
        first.ask("SET", "title", "name")
        yield first, second


def test_exec_is_nil_when_a_watched_key_was_changed(terminals: tuple[Wire, Wire]) -> None:
    first, second = terminals
    assert first.ask("GET", "title") == "name"
    assert first.ask("WATCH", "title") == "OK"
    assert first.ask("MULTI") == "OK"
    assert first.ask("SET", "title", "val") == "QUEUED"
    assert second.ask("GET", "title") == "name"
    assert second.ask("SET", "title", "111") == "OK"
    assert second.ask("GET", "title") == "111"
    assert first.ask("EXEC") is None
    assert first.ask("GET", "title") == "111"


def test_after_unwatch_a_change_does_not_matter(terminals: tuple[Wire, Wire]) -> None:
    first, second = terminals
    first.ask("WATCH", "title")
    second.ask("SET", "title", "111")
    assert first.ask("UNWATCH") == "OK"
    first.ask("MULTI")
    first.ask("SET", "title", "val")
    assert first.ask("EXEC") == ["OK"]
    assert first.ask("GET", "title") == "val"


@pytest.mark.parametrize("end", ["EXEC", "DISCARD"])
def test_exec_and_discard_unwatch_as_well(terminals: tuple[Wire, Wire], end: str) -> None:
    first, second = terminals
    first.ask("WATCH", "title")
    first.ask("MULTI")
    first.ask(end)
    second.ask("SET", "title", "111")
    first.ask("MULTI")
    first.ask("SET", "title", "val")
    assert first.ask("EXEC") == ["OK"]


def test_unwatch_within_the_transaction_has_no_effect(terminals: tuple[Wire, Wire]) -> None:
    first, second = terminals
    first.ask("WATCH", "title")
    first.ask("MULTI")
    assert first.ask("UNWATCH") == "QUEUED"
    first.ask("SET", "title", "val")
    second.ask("SET", "title", "111")
    assert first.ask("EXEC") is None


def test_a_key_that_expires_after_it_was_watched_has_changed(terminals: tuple[Wire, Wire]) -> None:
    first, second = terminals
    first.ask("WATCH", "title")
    second.ask("PEXPIRE", "title", 1)
    assert until_gone(second) == 0
    first.ask("MULTI")
    first.ask("SET", "title", "val")
    assert first.ask("EXEC") is None


def until_gone(wire: Wire) -> int:
    """Ask until the key has expired."""
    while (there := wire.ask("EXISTS", "title")) != 0:
        pass
    return int(there)


def test_transact_runs_again_what_the_text_lets_fail(colour: Any, client: Any, other: Any) -> None:
    """The text ends with "the execution fails": here the function sees the other's value and decides again."""
    other.set("title", "name")
    seen = []

    async def rename(tx: Any) -> None:
        seen.append(await tx.get("title"))
        tx.set("title", b"val after " + seen[-1])
        if tx.number == 1:
            other.set("title", "111")

    colour.transact(client, rename)
    assert seen == [b"name", b"111"]
    assert other.get("title") == "val after 111"


def test_transact_without_retries_fails_as_in_the_text(colour: Any, client: Any, other: Any) -> None:
    other.set("title", "name")

    async def rename(tx: Any) -> None:
        tx.set("title", "val")
        other.set("title", "111")

    with pytest.raises(Conflict):
        colour.transact(client, rename, "title", retries=0)
    assert other.get("title") == "111"


def test_the_identity_lock_is_released_by_its_owner_only_however_the_key_changes(other: Any) -> None:
    """The text's `release`: True if released or already free, False if it is another's; without its hidden error."""

    def release(tx: Any) -> bool:
        holder = tx.get("lock")
        if holder is None:
            return True
        if holder != "me":
            return False
        if tx.number == 1:
            interfere()
        tx.delete("lock")
        return True

    def interfere() -> None:
        other.delete("lock")  # it expired between the text's GET and its DEL ...
        other.set("lock", "you", nx=True)  # ... and somebody else got it

    other.set("lock", "me")
    assert transact(other, release) is False
    assert other.get("lock") == "you"
    other.delete("lock")
    assert transact(other, release) is True
