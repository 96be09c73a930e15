"""Coroutine functions that several tests run in a transaction; see optimistic_colours."""

from typing import Any


async def borrow(tx: Any) -> int | None:
    """The example of the documentation."""
    copies = int(await tx.get("copies") or 0)
    if not copies:
        return None
    tx.set("copies", copies - 1)
    return copies - 1


async def increment(tx: Any) -> None:
    """Read a number, and write it plus one."""
    tx.set("number", int(await tx.get("number") or 0) + 1)


async def write(tx: Any) -> None:
    """Write without reading."""
    tx.incr("number")
