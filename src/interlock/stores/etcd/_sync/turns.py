# Generated from _async/turns.py by tools/unasync.py; change that one.
"""The waiters of this process or event loop, and whose turn it is: one watch of all deletions.

What stands before a waiter only gets less.  So a deletion is looked into only if it seems to be somebody's turn then,
by what the last look at that name told; what etcd says in that linearizable read counts, not what was heard.
"""

from collections.abc import Callable

from interlock.core.claims import USING, Claim
from interlock.core.errors import StoreError
from interlock.core.line import EMPTY, Line, numbered
from interlock.core.queue import Tells
from interlock.remote.waiters import Waiters
from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.stores.etcd._sync.gateway import Gateway
from interlock.stores.etcd.wire import Found, heard, line_of, watch

PAUSE = 0.05  # seconds between two attempts to watch
IDLE = 60.0  # seconds without a waiter, after which the watch ends


class Turns:
    """The waiters.

    Args:
        gateway: the cluster.
        read: tells what stands in the folder of a key, by a linearizable read.
        prefix: with which keys begin.

    Attributes:
        waiters: what wakes each.
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

    def add(self, claim: Claim, waiter: Tells) -> None:
        """Wait, before the request which puts the claim into the line: what is deleted from then on is heard."""
        self.waiters.add(claim.id, waiter)
        self._keys[claim.id] = claim.spec.key

    def remove(self, id: str) -> None:
        """Let a claim wait no more."""
        self._keys.pop(id, None)
        self.waiters.remove(id)

    def watch(self, revision: int) -> None:
        """Let what is deleted after a revision be heard, unless it is."""
        with self._mutex:
            self._used = clock.now()
            if not self._runs:  # nor if no thread can be started: then waiters poll
                self._runs = rt.spawn("interlock-listener", self._run, revision) is not None

    def _run(self, revision: int) -> None:
        self._revision = revision  # what was deleted until then is known; 0 while nothing is
        try:
            while self._is_wanted():
                try:
                    self._gateway.listen(watch(self._prefix, self._revision), self._hear)
                except StoreError:
                    self._gateway.distrust()
                    self._revision = 0
                    rt.sleep(PAUSE)
        finally:
            self._runs = False

    def _is_wanted(self) -> bool:
        with self._mutex:
            self._runs = not self._gateway.closed and (bool(self._keys) or clock.now() - self._used < IDLE)
            return self._runs

    def _hear(self, text: str) -> bool:
        """Take a line of the watch; False to hear no more."""
        gone, revision = heard(self._prefix, text)
        keys = set(self._keys.copy().values())
        self._known = {key: line for key, line in self._known.items() if key in keys and self._revision}
        if not self._revision:  # it begins now, and earlier deletions were missed
            self.waiters.wake_all()
        if gone or not self._revision:
            self._revision = revision
        for key in keys.intersection(gone):
            self._look_at(key, gone[key])
        return self._is_wanted()

    def _look_at(self, key: str, gone: set[str]) -> None:
        """Notify the waiters whose turn it is after deletions, and those whose claims are gone."""
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
            if place is None or (place.state == USING and (place.once or numbered(place.units, place.capacity))):
                self.waiters.notify(id, 0)  # it is gone, or more has to be done
            elif place.state == USING:
                self.waiters.notify(id, place.fence)
                self.remove(id)
