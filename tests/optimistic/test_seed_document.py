"""The second seed's text on WATCH, MULTI, EXEC and UNWATCH: each of its statements, on real servers.

First with plain commands, as in the text's two terminals; then with `transact`.
"""

from typing import Any

from interlock.optimistic import transact


def test_only_its_owner_releases_the_identity_lock(other: Any) -> None:
    """The text's `release`, without its bug: True if released or already free, False if another client holds it."""

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
        other.set("lock", "you", nx=True)  # ... and another client acquired it

    other.set("lock", "me")
    assert transact(other, release) is False
    assert other.get("lock") == "you"
    other.delete("lock")
    assert transact(other, release) is True
