"""The claims of one process: what each asks the server for, and where it stands."""

import threading
from collections.abc import Callable, Iterator
from hashlib import blake2b
from time import monotonic, time
from typing import Any, Literal

from interlock.core.claims import WRITER_UNITS, Claim, LockSpec, kind_of
from interlock.core.errors import InvalidArgument
from interlock.stores.advisory.session import AdvisorySession


class AdvisoryClaim:
    """A claim of this process.

    Attributes:
        claim, wakeup: as given.
        key, shared: what the server is asked for.
        state: "trying", "pending" or "using".
        session: which has the lock or waits for it.
        opens: True while one is being opened for it.
        until: when its lease ends.
        looks_at: when it is looked whether the server has its session in line.
        unheard: since when the server has not; None if it had, at the last look.
        doubt: what is told when it is lost.
    """

    __slots__ = (
        "claim", "doubt", "fence", "key", "looks_at", "opens", "session", "shared", "since", "state", "unheard",
        "until", "wakeup",
    )  # fmt: skip

    def __init__(self, claim: Claim, shared: bool, wakeup: Any, doubt: Callable[[str], object]) -> None:
        self.claim = claim
        self.wakeup = wakeup
        self.doubt = doubt
        self.key = number_of(claim.spec.key)
        self.shared = shared
        self.state: Literal["trying", "pending", "using"] = "trying"
        self.session: AdvisorySession | None = None
        self.opens = False
        self.fence = 0
        self.until = monotonic() + claim.spec.ttl
        self.looks_at = 0.0
        self.unheard: float | None = None
        self.since = time()


class AdvisoryClaims:
    """The claims of one process on one server, by their ids and by their names.

    Attributes:
        mutex: guards them; code that needs that of a session too takes the session's first.
    """

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self._by_id: dict[str, AdvisoryClaim] = {}
        self._lines: dict[int, list[AdvisoryClaim]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[AdvisoryClaim]:
        return iter(list(self._by_id.values()))

    def __contains__(self, place: AdvisoryClaim) -> bool:
        return self._by_id.get(place.claim.id) is place

    def get(self, id: str) -> AdvisoryClaim | None:
        """Return the claim with an id."""
        return self._by_id.get(id)

    def add(self, place: AdvisoryClaim) -> bool:
        """Enter a claim; tell whether nobody in here keeps the lock from it."""
        with self.mutex:
            line = self.line(place.key)
            free = all(each.shared and place.shared and each.state != "pending" for each in line)
            self._by_id[place.claim.id] = place
            self._lines[place.key] = [*line, place]
            return free

    def remove(self, place: AdvisoryClaim) -> bool:
        """Take a claim out; False if somebody else did."""
        with self.mutex:
            if place not in self:
                return False
            del self._by_id[place.claim.id]
            line = self.line(place.key)
            if line:
                self._lines[place.key] = line
            else:
                self._lines.pop(place.key, None)
            return True

    def clear(self) -> None:
        """Take all out."""
        with self.mutex:
            self._by_id.clear()
            self._lines.clear()

    def line(self, key: int) -> list[AdvisoryClaim]:
        """Return who has a name in here or waits for it; what an interrupt left behind in the line is nobody's."""
        return [each for each in self._lines.get(key, ()) if each in self]

    def head(self, key: int) -> AdvisoryClaim | None:
        """Return who is the next in here to stand in the line of the server."""
        return next((each for each in self.line(key) if each.state == "pending"), None)

    def head_without_session(self) -> AdvisoryClaim | None:
        """Return one who is the next for its name and has no session to wait on."""
        with self.mutex:
            heads = [self.head(key) for key in list(self._lines)]
            return next((each for each in heads if each is not None and each.session is None), None)


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
