"""The worlds to explore: the callers on a server, and the possible faults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """One world to explore.

    Attributes:
        name: a description.
        processes: the number of each caller's process.
        calls: how often each caller acquires.
        plain: the numbers of callers whose claims can't have a successor: readers, if writers become readers.
        runs: True if each caller is a run of `once`, which completes or fails.
        reorders: True if the requests of one claim may overtake each other, as on two connections.
        renewals, detaches: how often a holder may renew its lease, and detach.  A token is attached by another
            call, or released.
        downgrades: how often a writer may become a reader.
        releases: how often a used token is released again by the process that detached it.
        lapses, evictions, cancels, kills, losses, forgets: how often each may happen in one run.  A loss is a lost
            request, reply or message; a lapse is the end of a lease; a server that forgets loses the whole line, like
            one that was flushed, or restarted without its data.
        large, rare: explored only on request, or by the whole test suite only.
    """

    name: str
    processes: tuple[int, ...]
    calls: int = 1
    lapses: int = 0
    evictions: int = 0
    cancels: int = 0
    kills: int = 0
    losses: int = 0
    forgets: int = 0
    large: bool = False
    rare: bool = False
    plain: tuple[int, ...] = ()
    runs: bool = False
    reorders: bool = False
    renewals: int = 0
    detaches: int = 0
    downgrades: int = 0
    releases: int = 0


_ONE, _TWO, _MIXED, _APART = (0, 0, 0), (0, 0), (0, 0, 1), (0, 1, 2)

CONFIGURATIONS = (
    Configuration("two of one process, three calls each", _TWO, calls=3),
    Configuration("three of one process", _ONE),
    Configuration("two of one process, one of another", _MIXED),
    Configuration("three processes", _APART),
    Configuration("two processes, two calls each", (0, 1), calls=2),
    Configuration(
        "three processes, the second is no successor, two calls each", _APART, calls=2, plain=(1,), large=True
    ),
    Configuration("two and one, the one is no successor, two calls each", (1, 0, 0), calls=2, plain=(0,), large=True),
    Configuration("three processes, one is no successor", _APART, plain=(1,)),
    Configuration("three of one process, one gives up", _ONE, cancels=1),
    Configuration("two and one, one gives up", _MIXED, cancels=1),
    Configuration("three processes, one gives up", _APART, cancels=1),
    Configuration("two, two calls each, a lease ends", _TWO, calls=2, lapses=1),
    Configuration("two and one, a lease ends", _MIXED, lapses=1),
    Configuration("two and one, an eviction", _MIXED, evictions=1, rare=True),
    Configuration("two and one, a message is lost", _MIXED, losses=1),
    Configuration("three of one process, one gives up, a message is lost", _ONE, cancels=1, losses=1, rare=True),
    Configuration("two and one, a process is killed", _MIXED, kills=1),
    Configuration("three of one process, the server forgets", _ONE, forgets=1),
    Configuration("two and one, the server forgets", _MIXED, forgets=1),
    Configuration("two of one process, two calls each, the server forgets", _TWO, calls=2, forgets=1),
    Configuration("two of one process, runs of once, a renewal", _TWO, runs=True, renewals=1, reorders=True),
    Configuration("two of one process, runs of once, a message is lost", _TWO, runs=True, losses=1),
    Configuration("two of one process, runs of once, a lease ends", _TWO, runs=True, lapses=1),
    Configuration("three of one process, runs of once", _ONE, runs=True),
    Configuration("three of one process, runs of once, one gives up", _ONE, runs=True, cancels=1),
    Configuration("two and one, runs of once", _MIXED, runs=True),
    Configuration(
        "two of one process, a token, used twice, a renewal", _TWO, renewals=1, detaches=1, releases=1, reorders=True
    ),
    Configuration("two and one, a token, used twice", _MIXED, detaches=1, releases=1),
    Configuration("two writers and a reader of one process, a downgrade", _ONE, plain=(1,), downgrades=1),
    Configuration("a writer and a reader, a writer of another, a downgrade", _MIXED, plain=(1,), downgrades=1),
    Configuration(
        "two writers of one process, two calls each, a downgrade, a renewal",
        _TWO,
        calls=2,
        downgrades=1,
        renewals=1,
        reorders=True,
        rare=True,
    ),
    Configuration(
        "a writer and a reader of one process, two calls each, a downgrade, a message is lost",
        _TWO,
        calls=2,
        plain=(1,),
        downgrades=1,
        losses=1,
        rare=True,
    ),
    Configuration(
        "two and one, a token, used twice, an eviction", _MIXED, detaches=1, releases=1, evictions=1, large=True
    ),
    Configuration("three of one process, two renewals", _ONE, renewals=2, reorders=True, large=True),
    Configuration("three of one process, two calls each", _ONE, calls=2, large=True),
    Configuration("three of one process, a lease ends", _ONE, lapses=1, large=True),
    Configuration("two processes, two calls each, a lease ends", (0, 1), calls=2, lapses=1, large=True),
    Configuration("three processes, a lease ends", _APART, lapses=1, large=True),
    Configuration("three processes, one is killed", _APART, kills=1, large=True),
    Configuration("three processes, one gives up, a message is lost", _APART, cancels=1, losses=1, large=True),
    Configuration("three and one", (0, 0, 0, 1), large=True),
    Configuration("two and one, a lease ends, a message is lost", _MIXED, lapses=1, losses=1, large=True),
    Configuration("two and one, one gives up, an eviction", _MIXED, cancels=1, evictions=1, large=True),
)
