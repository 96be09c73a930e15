"""Functions that several tests give to a transaction, as coroutine functions; see optimistic_colours."""

from typing import Any


async def borrow(tx: Any) -> int | None:
    """The example of the documentation."""
    copies = int(await tx.get("copies") or 0)
    if not copies:
        return None
    tx.set("copies", copies - 1)
    return copies - 1


async def increment(tx: Any) -> None:
    """Read, and write one more."""
    tx.set("number", int(await tx.get("number") or 0) + 1)


async def write(tx: Any) -> None:
    """Write without reading."""
    tx.incr("number")
