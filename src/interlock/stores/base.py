"""What those who write a store need; the definitions are in `interlock.core`."""

from interlock.core.claims import PENDING, USING, Check, Claim, ClaimView, keys_of
from interlock.core.effects import Call, Op
from interlock.core.pending import Pending, Record
from interlock.core.queue import EnterResult, Outage, Queue
from interlock.core.oldstore import AsyncStore, BaseStore, Store, SyncStore

__all__ = [
    "PENDING",
    "USING",
    "AsyncStore",
    "BaseStore",
    "Call",
    "Check",
    "Claim",
    "ClaimView",
    "EnterResult",
    "Op",
    "Outage",
    "Pending",
    "Queue",
    "Record",
    "Store",
    "SyncStore",
    "keys_of",
]
