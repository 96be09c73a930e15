"""Optimistic transactions: watch, compute, commit only if nothing has changed, else do it again.

They need no lock and make nobody wait; where many change the same thing all the time, a lock does less work.
"""

from interlock.optimistic.backend import AsyncAttempt, AsyncBackend, Attempt, Backend, Queued
from interlock.optimistic.errors import CommandRefused, Conflict, TryAgain
from interlock.optimistic.running import atransact, transact, transactional

__all__ = [
    "AsyncAttempt",
    "AsyncBackend",
    "Attempt",
    "Backend",
    "CommandRefused",
    "Conflict",
    "Queued",
    "TryAgain",
    "atransact",
    "transact",
    "transactional",
]
