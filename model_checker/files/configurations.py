"""The worlds to explore: the callers, and the possible faults."""

from __future__ import annotations

from dataclasses import dataclass

from interlock.core.claims import WRITER_UNITS
from model_checker.files.client import Role

EXCLUSIVE = Role()
TRY = Role(wait=False)
TIMED = Role(times_out=True)
WRITER = Role(WRITER_UNITS, WRITER_UNITS)
READER = Role(1, WRITER_UNITS)


def permits(units: int, capacity: int) -> Role:
    """A caller that acquires `units` of `capacity` permits."""
    return Role(units, capacity)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One world to explore.

    Attributes:
        name: a description.
        roles: the callers.
        processes: the number of each caller's process; empty if each has its own.
        kills, lapses, evictions, cancels, interrupts: how often each may happen in one run.  A lapse is the end of a
            lease, for its owner or for the store; an interrupt ends a step between two writes while its process lives
            on.
        looks: waiters also poll, at any time; False if only wake-ups and deaths wake them.
        heartbeats: waiters also poll when the lease of a holder, or their own, has expired.
        deaf: no wake-up arrives.
        busy: any request for a step may find the guard taken.
        renews: holders renew their leases.
        tidies: a process may remove the files of a name without live claims.
        shrinks: the files are truncated whenever the line is empty.
        large, rare: explored only on request, or by the whole test suite only.
    """

    name: str
    roles: tuple[Role, ...]
    processes: tuple[int, ...] = ()
    kills: int = 0
    lapses: int = 0
    evictions: int = 0
    cancels: int = 0
    interrupts: int = 0
    looks: bool = False
    heartbeats: bool = False
    deaf: bool = False
    busy: bool = False
    renews: bool = False
    tidies: bool = False
    shrinks: bool = False
    large: bool = False
    rare: bool = False


_E, _X, _S = EXCLUSIVE, WRITER, READER
_ONE, _BOTH = permits(1, 2), permits(2, 2)

CONFIGURATIONS: tuple[Configuration, ...] = (
    # Only wake-ups and the deaths that they watch wake the waiters.
    Configuration("exclusive, N=2, 2 kills", (_E, _E), kills=2),
    Configuration("exclusive, N=3", (_E, _E, _E)),
    Configuration("exclusive, N=3, 1 kill, 1 cancelled", (_E, _E, _E), kills=1, cancels=1),
    Configuration("exclusive, N=3, 2 kills", (_E, _E, _E), kills=2),
    Configuration("exclusive, N=3, 1 kill, 1 eviction", (_E, _E, _E), kills=1, evictions=1, rare=True),
    Configuration("two threads and a process, 1 kill, 1 cancelled", (_E, _E, _E), (0, 0, 1), kills=1, cancels=1),
    Configuration("waits, tries, times out, 1 kill", (_E, TRY, TIMED), kills=1),
    Configuration("X S S, 1 kill", (_X, _S, _S), kills=1),
    Configuration("X S S, 1 kill, 1 cancelled", (_X, _S, _S), kills=1, cancels=1),
    Configuration("semaphore of 2, N=3, 2 kills", (_ONE, _ONE, _ONE), kills=2),
    Configuration("semaphore of 2, two at a time, 1 eviction", (_ONE, _BOTH, _ONE), evictions=1),
    Configuration("capacities that disagree: 1, 2, 3; 1 kill", (_E, permits(1, 2), permits(1, 3)), kills=1),
    Configuration("files cleaned up and cut, N=3, 1 kill", (_E, _E, _E), kills=1, tidies=True, shrinks=True),
    # Leases expire; waiters poll when the lease of a holder, or their own, has expired.
    Configuration("2 lapses, 1 kill, renewals, N=2", (_E, _E), kills=1, lapses=2, renews=True, heartbeats=True),
    Configuration("1 lapse, N=3", (_E, _E, _E), lapses=1, heartbeats=True),
    Configuration("1 lapse, X S S", (_X, _S, _S), lapses=1, heartbeats=True, rare=True),
    # Waiters also poll, at any moment.
    Configuration("1 lapse, 1 eviction, renewals, N=2", (_E, _E), lapses=1, evictions=1, renews=True, looks=True),
    Configuration(
        "2 lapses, 1 eviction, renewals, N=2", (_E, _E), lapses=2, evictions=1, renews=True, looks=True, rare=True
    ),
    Configuration("1 lapse, 1 kill, files cleaned up, N=2", (_E, _E), kills=1, lapses=1, tidies=True, looks=True),
    Configuration("the guard is taken, N=2, 1 kill", (_E, _E), kills=1, busy=True, looks=True),
    Configuration("no wake-up pipe is heard, N=3, 1 kill", (_E, _E, _E), kills=1, deaf=True, looks=True),
    Configuration("a step is interrupted, N=3", (_E, _E, _E), interrupts=1, looks=True),
    # Only on request.
    Configuration("X S S, 1 kill, 1 eviction", (_X, _S, _S), kills=1, evictions=1, large=True),
    Configuration("X X S S, 1 kill", (_X, _X, _S, _S), kills=1, large=True),
    Configuration("exclusive, N=4, 1 kill", (_E, _E, _E, _E), kills=1, large=True),
    Configuration("semaphore of 2, N=4, 2 kills", (_ONE,) * 4, kills=2, large=True),
    Configuration("1 lapse, X S S, at any moment", (_X, _S, _S), lapses=1, looks=True, large=True),
    Configuration("1 lapse, 1 kill, N=3, at any moment", (_E, _E, _E), kills=1, lapses=1, looks=True, large=True),
    Configuration(
        "1 kill, 1 eviction, N=3, at any moment", (_E, _E, _E), kills=1, evictions=1, looks=True, large=True
    ),
)
