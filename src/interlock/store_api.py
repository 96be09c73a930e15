"""What a store of another package imports: base classes, the values that they pass, and helpers.

These names keep their meaning within a major version.  There are three ways to write a store, the easiest first:

- `StepStore`, in a `BlockingStore`: perform a function on the text of one line atomically.
- `SwapStore`, in `SwapSteps`, in a `BlockingStore`: load a text, and replace it if its version is unchanged.
- `Queue` and `AsyncQueue`, in a `Store`: all steps by the store's own protocol.
"""

from interlock.core._async.protocols import AsyncQueue, AsyncWaiting
from interlock.core._sync.protocols import Queue, Waiting
from interlock.core.claims import Check, Claim, ClaimView, LockSpec
from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome, Unsupported
from interlock.core.line import (
    Line,
    Origin,
    QueuedClaim,
    StepResult,
    StoreTime,
    Transition,
    complete,
    decode,
    encode,
    read_record,
)
from interlock.core.queue import ALL, EnterResult, Feature, Granted, Held, Outage, Renewed, Wakeable
from interlock.runtime import clock
from interlock.runtime.process import HOST, pid
from interlock.runtime.waiters import Notifier, Waiters
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import BlockingStore, Section
from interlock.storekit.compare_and_swap import SwapSteps, SwapStore
from interlock.storekit.store import Store

__all__ = [
    "ALL", "AsyncQueue", "AsyncWaiting", "BlockingStore", "Check", "Claim", "ClaimView", "EnterResult", "Feature",
    "Granted", "HOST", "Held", "InvalidArgument", "Line", "LockSpec", "Notifier", "Origin", "Outage", "Queue",
    "QueuedClaim", "Renewed", "Section", "StepResult", "StepStore", "Store", "StoreError", "StoreTime", "SwapSteps",
    "SwapStore", "Transition", "UnknownOutcome", "Unsupported", "Waiters", "Waiting", "Wakeable", "clock", "complete",
    "decode", "encode", "pid", "read_record",
]  # fmt: skip
