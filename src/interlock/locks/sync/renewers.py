"""The threads that renew leases: one for each node of the store, and more where a request hangs."""

import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from interlock.core.claims import Claim
from interlock.locks.grants import BaseGrant
from interlock.locks.leases import LONGEST_SLEEP
from interlock.locks.watchdog import by_node, portions
from interlock.runtime import log

G = TypeVar("G", bound=BaseGrant)
HANGS = 0.25  # seconds; a request that takes longer holds back nobody who is due meanwhile
MOST_THERE = 4  # threads that ask the same node
AT_ONCE = 1000  # leases; their answers are noted before the next ones are asked for
FREE = object()


class Renewers(Generic[G]):
    """Threads that renew what is due; they come and go with the work.

    A node that is dead or slow keeps at most `MOST_THERE` of them, and none that others need.

    Args:
        node_of: as in `stores.base.BaseStore`.
        renew: asks the store; never fails.
        done: called after each request.
        wanted: False when no thread is to stay any more.
    """

    def __init__(
        self,
        node_of: Callable[[Claim], object] | None,
        renew: Callable[[list[G]], None],
        done: Callable[[], None],
        wanted: Callable[[], bool],
    ) -> None:
        self._node_of = node_of
        self._renew = renew
        self._done = done
        self._wanted = wanted
        self._changed = threading.Condition()
        self._due: dict[object, list[G]] = {}
        self._threads: dict[threading.Thread, tuple[object, float]] = {}  # where each is at work, and since when

    @property
    def behind(self) -> bool:
        """True while something is due that nobody asks for yet."""
        return bool(self._due)

    def hand_over(self, due: Sequence[G]) -> None:
        """Have leases renewed."""
        groups = by_node(self._node_of, due) if due else {}
        with self._changed:
            for node, grants in groups.items():
                self._due.setdefault(node, []).extend(grants)
            for each in [each for each in self._threads if not each.is_alive()]:
                del self._threads[each]
            late = time.monotonic() - HANGS
            work = sum(self._needs_one_more(node, late) for node in self._due)
            free = sum(node is FREE for node, _ in self._threads.values())
            self._changed.notify(work)
            for _ in range(work - free):
                thread = started(self._run, "interlock-renewer")
                if thread is not None:
                    self._threads[thread] = FREE, math.inf

    def _needs_one_more(self, node: Hashable, late: float) -> bool:
        """Tell whether what is due at a node is not for one that will have time for it in a moment."""
        there = [since for its, since in self._threads.values() if its == node]
        return len(there) < MOST_THERE and not any(since > late for since in there)

    def wake_all(self) -> None:
        """Let those that have nothing to do see whether they are wanted."""
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        me = threading.current_thread()
        try:
            while (grants := self._next(me)) is not None:
                self._renew(grants)
                del grants  # whoever drops one meanwhile is not to find it kept here
                self._done()
        finally:
            with self._changed:
                self._threads.pop(me, None)
            self._done()

    def _next(self, me: threading.Thread) -> list[G] | None:
        """Wait for something to do; None when this thread is not needed any more."""
        with self._changed:
            while True:
                self._threads[me] = FREE, math.inf
                if (node := self._where_least_are()) is not FREE:
                    self._threads[me] = node, time.monotonic()
                    return self._take(node)
                free = sum(node is FREE for node, _ in self._threads.values())
                if free > 1 or not self._wanted():
                    del self._threads[me]  # at once: nobody is to count on it
                    return None
                self._changed.wait(LONGEST_SLEEP)

    def _where_least_are(self) -> object:
        """Return a node where something is due; FREE if there is none, or too many ask there already."""
        there = dict.fromkeys(self._due, 0)
        for node, _ in self._threads.values():
            if node in there:
                there[node] += 1
        node = min(there, key=lambda node: there[node], default=FREE)
        return node if there.get(node, MOST_THERE) < MOST_THERE else FREE

    def _take(self, node: object) -> list[G]:
        first, *rest = portions(self._due.pop(node), AT_ONCE)
        if rest:
            self._due[node] = [grant for portion in rest for grant in portion]  # behind the other nodes
        return first


def started(work: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a thread; None if the interpreter is shutting down."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        log.warn("no thread to renew leases with: %s; they end after their ttl", error)
        return None
    return thread
