"""The second seed's text on WATCH, MULTI, EXEC and UNWATCH: each of its statements, on real servers.

First the server itself, as in the text's two terminals; then what becomes of it with `transact`.
"""

from typing import Any

import pytest

from interlock.optimistic import Conflict, transact


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
