"""What a store of another package imports: base classes, the values that they pass, failures and helpers.

These names keep their meaning within a major version.  There are two ways to write a store, the easier first:

- `StepStore`, in a `BlockingStore`: perform a function on the text of one line atomically.
- `SwapStore`, in `SwapSteps`, in a `BlockingStore`: load a text, and replace it if its version is unchanged.
"""

from interlock.core.claims import Check
from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome, Unsupported
from interlock.core.failures import Denied, NoAnswer, TransientRefusal, Unreachable
from interlock.core.line import (
    Line,
    Origin,
    QueuedClaim,
    StepNow,
    StepResult,
    StoreTime,
    Transition,
    complete,
    decode,
    encode,
    read_record,
)
from interlock.core.queue import ALL, Feature
from interlock.runtime import clock
from interlock.runtime.process import HOST, each_in_forked_child, pid
from interlock.runtime.waiters import Notifier, Waiters
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import BlockingStore, Section
from interlock.storekit.compare_and_swap import SwapSteps, SwapStore
from interlock.storekit.store import Store

__all__ = [
    "ALL", "BlockingStore", "Check", "Denied", "Feature", "HOST", "InvalidArgument", "Line", "NoAnswer", "Notifier",
    "Origin", "QueuedClaim", "Section", "StepNow", "StepResult", "StepStore", "Store", "StoreError", "StoreTime",
    "SwapSteps", "SwapStore", "Transition", "TransientRefusal", "UnknownOutcome", "Unreachable", "Unsupported",
    "Waiters", "clock", "complete", "decode", "each_in_forked_child", "encode", "pid", "read_record",
]  # fmt: skip
