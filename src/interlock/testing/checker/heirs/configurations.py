"""Which callers compete on a server, and what may befall them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """One world to explore.

    Attributes:
        name: what it is about.
        processes: the number of each caller's process.
        calls: how often each acquires.
        lapses, evictions, cancels, kills, losses: how often each may happen in one run.  A loss is that of a request,
            a reply or a word; a lapse the end of a lease.
        large: only explored when asked for.
    """

    name: str
    processes: tuple[int, ...]
    calls: int = 1
    lapses: int = 0
    evictions: int = 0
    cancels: int = 0
    kills: int = 0
    losses: int = 0
    large: bool = False


_ONE, _TWO, _MIXED = (0, 0, 0), (0, 0), (0, 0, 1)

CONFIGURATIONS = (
    Configuration("two of one process, three calls each", _TWO, calls=3),
    Configuration("three of one process", _ONE),
    Configuration("two of one process, one of another", _MIXED),
    Configuration("three of one process, one gives up", _ONE, cancels=1),
    Configuration("two and one, one gives up", _MIXED, cancels=1),
    Configuration("two, two calls each, a lease ends", _TWO, calls=2, lapses=1),
    Configuration("two and one, a lease ends", _MIXED, lapses=1),
    Configuration("two and one, an eviction", _MIXED, evictions=1),
    Configuration("two and one, a message is lost", _MIXED, losses=1),
    Configuration("three of one process, one gives up, a message is lost", _ONE, cancels=1, losses=1),
    Configuration("two and one, a process is killed", _MIXED, kills=1),
    Configuration("three of one process, two calls each", _ONE, calls=2, large=True),
    Configuration("three of one process, a lease ends", _ONE, lapses=1, large=True),
    Configuration("three and one", (0, 0, 0, 1), large=True),
    Configuration("two and one, a lease ends, a message is lost", _MIXED, lapses=1, losses=1, large=True),
    Configuration("two and one, one gives up, an eviction", _MIXED, cancels=1, evictions=1, large=True),
)
