"""Which callers compete, and what may befall them."""

from __future__ import annotations

from dataclasses import dataclass

from interlock.claims import WRITER_UNITS
from interlock.testing.checker.files.client import Role

EXCLUSIVE = Role()
TRY = Role(wait=False)
TIMED = Role(times_out=True)
WRITER = Role(WRITER_UNITS, WRITER_UNITS)
READER = Role(1, WRITER_UNITS)


def permits(units: int, capacity: int) -> Role:
    """A caller that asks for `units` of `capacity` permits."""
    return Role(units, capacity)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One world to explore.

    Attributes:
        name: what it is about.
        roles: the callers.
        processes: the number of each caller's process; empty: each has its own.
        kills, lapses, evictions, cancels, interrupts: how often each may happen in one run.  A lapse is the end of
            a lease, whether its owner or the store sees it; an interrupt breaks a step off between two writes
            while its process lives on.
        looks: waiters also look again by themselves, at any time; False: only bells and deaths wake them.
        heartbeats: waiters also look again when the lease of a holder, or their own, has ended.
        deaf: no bell is ever heard.
        busy: whoever asks for a step may find the guard taken.
        renews: holders renew their leases.
        tidies: a process may remove the files of a name without living claims.
        shrinks: the files are cut whenever nobody is in line.
        large: only explored when asked for.
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
