"""The claims of one process: what each asks the server for, and where it stands."""

from collections.abc import Callable
from hashlib import blake2b
from time import monotonic, time
from typing import Any, Literal

from interlock.core.claims import WRITER_UNITS, Claim, LockSpec, kind_of
from interlock.core.errors import InvalidArgument
from interlock.stores.advisory.session import Session


class Place:
    """A claim of this process.

    Attributes:
        claim, wakeup: as given.
        key, shared: what the server is asked for.
        state: "trying", "pending" or "using".
        session: which has the lock or waits for it.
        until: when its lease ends.
        looks_at: when it is looked whether its session got what it waits for and did not say so.
        untold: True if it was so at the last look.
        doubt: what is told when it is lost.
    """

    __slots__ = (
        "claim", "doubt", "fence", "key", "looks_at", "session", "shared", "since", "state", "until", "untold",
        "wakeup",
    )  # fmt: skip

    def __init__(self, claim: Claim, shared: bool, wakeup: Any, doubt: Callable[[str], object]) -> None:
        self.claim = claim
        self.wakeup = wakeup
        self.doubt = doubt
        self.key = number_of(claim.spec.key)
        self.shared = shared
        self.state: Literal["trying", "pending", "using"] = "trying"
        self.session: Session | None = None
        self.fence = 0
        self.until = monotonic() + claim.spec.ttl
        self.looks_at = 0.0
        self.untold = False
        self.since = time()


def number_of(key: str) -> int:
    """Return the 64 bits that stand for a name, as the server takes them."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, person=b"interlock").digest(), "big", signed=True)


def is_shared(spec: LockSpec, mysql: bool) -> bool:
    """Tell whether it is a reader's.

    Raises:
        InvalidArgument: advisory locks have no such kind.
    """
    if spec.capacity == WRITER_UNITS and not mysql and spec.units in (1, WRITER_UNITS):
        return spec.units == 1
    if spec.capacity != 1:
        raise InvalidArgument(
            f"these locks are exclusive{'' if mysql else ' or reader/writer'}, there is no "
            f"{kind_of(spec.units, spec.capacity)}: use a store that has it, such as postgresql:// or redis://"
        )
    return False
