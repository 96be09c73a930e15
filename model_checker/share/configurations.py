"""The worlds to explore: how often each client swaps, and how many faults the network has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """One world to explore.

    Attributes:
        name: a description.
        swaps: how often each client swaps the line; a client may stop for ever at any point.
        losses: how many renames have a lost reply, are sent twice, arrive late, or find a stale cache.
        stale: True if a listing may be any former one.
        large, rare: explored only on request, or by the whole test suite only.
    """

    name: str
    swaps: tuple[int, ...]
    losses: int
    stale: bool = True
    large: bool = False
    rare: bool = False


CONFIGURATIONS = (
    Configuration("two clients, one swap each, three losses", (1, 1), 3),
    Configuration("two clients, two swaps and one, a loss", (2, 1), 1),
    Configuration("two clients, two swaps each, no loss", (2, 2), 0),
    Configuration("three clients, one swap each, a loss, fresh listings", (1, 1, 1), 1, stale=False, rare=True),
    Configuration("two clients, two swaps each, a loss, fresh listings", (2, 2), 1, stale=False, rare=True),
    Configuration("three clients, one swap each, a loss", (1, 1, 1), 1, large=True),
    Configuration("two clients, two swaps each, two losses", (2, 2), 2, large=True),
)
