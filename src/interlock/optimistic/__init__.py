"""Optimistic transactions: watch, compute, commit only if nothing has changed, else do it again.

They need no lock and make nobody wait; where many change the same thing all the time, a lock does less work.
"""

from interlock.optimistic._async.backend import AsyncAttempt, AsyncBackend
from interlock.optimistic._async.running import atransact
from interlock.optimistic._sync.backend import Attempt, Backend
from interlock.optimistic._sync.running import transact
from interlock.optimistic.decorator import transactional
from interlock.optimistic.errors import CommandRefused, Conflict, TryAgain
from interlock.optimistic.queued import Queued

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
