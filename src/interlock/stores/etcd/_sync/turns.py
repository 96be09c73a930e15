# Generated from _async/turns.py by tools/unasync.py; change that one.
"""The waiters of this process, notified by one watch of all deletions.

Claims ahead of a waiter are only deleted, never added.  So after a deletion a name is read again only if, by its last
last known line without the deleted claims, a waiter may hold the lock now.  The linearizable read decides, not the
watch.
"""

from collections.abc import Callable

from interlock.core.claims import USING, Claim
from interlock.core.errors import StoreError
from interlock.core.line import EMPTY, Line, has_slots
from interlock.core.queue import Wakeable
from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.runtime.waiters import Waiters
from interlock.stores.etcd._sync.gateway import Gateway
from interlock.stores.etcd.wire import Found, line_of, watch, watch_changes

RETRY_PAUSE = 0.05  # seconds between two attempts to watch
IDLE_LIMIT = 60.0  # seconds without a waiter, after which the watch ends


class Turns:
    """The waiters.

    Args:
        gateway: the cluster.
        read: returns the claims of a key, by a linearizable read.
        prefix: the prefix of all keys.

    Attributes:
        waiters: the waiters, by the ids of their claims.
    """

    def __init__(self, gateway: Gateway, read: Callable[[str], rt.Result[Found]], prefix: str) -> None:
        self._gateway = gateway
        self._read = read
        self._prefix = prefix
        self.waiters = Waiters()
        self._keys: dict[str, str] = {}  # by the ids of the waiters
        self._known: dict[str, Line] = {}  # by key; only the watch uses it
        self._mutex = rt.Mutex()
        self._runs = False
        self._used = 0.0

    def add(self, claim: Claim, waiter: Wakeable) -> None:
        """Add a waiter, before the request that enters its claim, to miss no deletion."""
        self.waiters.add(claim.id, waiter)
        self._keys[claim.id] = claim.spec.key

    def remove(self, id: str) -> None:
        """Remove the waiter of a claim."""
        self._keys.pop(id, None)
        self.waiters.remove(id)

    def watch(self, revision: int) -> None:
        """Start to watch the deletions after a revision, unless the watch is running."""
        with self._mutex:
            self._used = clock.now()
            if not self._runs:  # stays False if no thread can start: then waiters poll
                self._runs = rt.start_background("interlock-listener", self._run, revision) is not None

    def _run(self, revision: int) -> None:
        self._revision = revision  # deletions up to it are known; 0 while none are
        try:
            while self._is_wanted():
                try:
                    self._gateway.listen(watch(self._prefix, self._revision), self._hear)
                except StoreError:
                    self._gateway.invalidate_connections()
                    self._revision = 0
                    rt.sleep(RETRY_PAUSE)
        finally:
            self._runs = False

    def _is_wanted(self) -> bool:
        with self._mutex:
            self._runs = not self._gateway.closed and (bool(self._keys) or clock.now() - self._used < IDLE_LIMIT)
            return self._runs

    def _hear(self, text: str) -> bool:
        """Handle a line of the watch; return False to end the watch."""
        gone, revision = watch_changes(self._prefix, text)
        keys = set(self._keys.copy().values())
        self._known = {key: line for key, line in self._known.items() if key in keys and self._revision}
        if not self._revision:  # the watch begins now, and earlier deletions were missed
            self.waiters.wake_all()
        if gone or not self._revision:
            self._revision = revision
        for key in keys.intersection(gone):
            self._look_at(key, gone[key])
        return self._is_wanted()

    def _look_at(self, key: str, gone: set[str]) -> None:
        """Notify the waiters of a key that now hold the lock, or whose claims are gone."""
        waiting = [id for id, each in self._keys.copy().items() if each == key]
        line = self._known[key] = line_of(
            place for place in self._known.get(key, EMPTY).places if place.id not in gone
        )
        if {place.id for place in line.places if place.state != USING}.issuperset(waiting):
            return
        found = self._read(key)
        self._known[key] = found.line
        for id in waiting:
            place = found.place(id)
            if place is None or (place.state == USING and (place.once or has_slots(place.units, place.capacity))):
                self.waiters.notify(id, 0)  # it is gone, or must look to get its slot or the record of a run
            elif place.state == USING:
                self.waiters.notify(id, place.fence)
                self.remove(id)
