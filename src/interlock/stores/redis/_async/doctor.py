"""doctor: is this server fit to keep locks?"""

from typing import Any

from interlock.core.claims import Check


async def examine(queue: Any) -> list[Check]:
    """Look at a server's version, round trip, clock, memory policy, persistence, replicas and rights."""
    return []
