"""Faulty stores around a real one: slow, losing replies, failing, busy; and a store that counts steps.

A fault is written once: the queues for threads and for tasks call its methods before and after each step.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from interlock.core.claims import SEPARATOR, Claim
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import BUSY
from interlock.storekit.store import Store
from interlock.testing._async.faulty import AsyncFaultyQueue
from interlock.testing._sync.faulty import FaultyQueue
from interlock.testing.fault import Fault


class Around(Fault, Store):
    """A store whose queues pass each step to a real store; subclasses override methods to add a fault.

    The steps are "enter", "leave", "renew", "adopt", "look", "evict" and "delete_run_result".

    Args:
        store: the real store.
    """

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.features, self.frees_at_death = store.features, store.frees_at_death
        self.in_process, self.now = store.in_process, store.now
        self.shortest_ttl, self.default_ttl = store.shortest_ttl, store.default_ttl

    def queue(self) -> FaultyQueue:
        """Return a queue for threads."""
        return FaultyQueue(self.inner.queue(), self)

    def aqueue(self) -> AsyncFaultyQueue:
        """Return a queue for the tasks of the running loop."""
        return AsyncFaultyQueue(self.inner.aqueue(), self)


class Slow(Around):
    """Performs steps immediately, and answers late.

    Args:
        store: the real store.
        delay: seconds between the step and its answer.
        steps: the slow steps.

    Attributes:
        done: the number of slow steps that were performed; their answers follow after the delay.
    """

    def __init__(self, store: Store, delay: float, steps: Sequence[str] = ("enter", "leave", "renew")) -> None:
        super().__init__(store)
        self.delay = delay
        self.steps = steps
        self.done = 0

    def pause_after(self, step: str, args: Any) -> float | None:
        self.done += step in self.steps
        return self.delay if step in self.steps else None


class Lossy(Around):
    """Performs a step and loses the answer: the caller gets UnknownOutcome.

    Args:
        store: the real store.
        losses: the number of next answers to lose, by step; may be changed at any time.
    """

    def __init__(self, store: Store, **losses: int) -> None:
        super().__init__(store)
        self.losses = losses

    def after(self, step: str, args: Any, answer: Any) -> Any:
        if self.losses.get(step, 0) > 0:
            self.losses[step] -= 1
            raise UnknownOutcome(f"the reply to {step!r} was lost, by order of the test")
        return answer


class Failing(Around):
    """Raises an error instead of performing steps, as long as they are in `broken`.

    Args:
        store: the real store.
        broken: the steps that fail; may be changed at any time.
        error: the error to raise.

    Attributes:
        names: only the releases of these names fail, if it is not empty.
    """

    def __init__(self, store: Store, *broken: str, error: type[Exception] = StoreError) -> None:
        super().__init__(store)
        self.broken = set(broken)
        self.error = error
        self.refused: Counter[str] = Counter()
        self.names: set[str] = set()

    def before(self, step: str, args: Any) -> Any:
        if step in self.broken and not (self.names and _name(args[0]) not in self.names):
            self.refused[step] += 1
            raise self.error(f"{step!r} failed, by order of the test")
        return args


class Busy(Around):
    """Answers "busy" to the polls of waiters, as long as `busy` is true.

    Args:
        store: the real store.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.busy = True
        self.times = 0

    def instead(self, step: str, args: Any) -> Any:
        if step == "enter" and args[3] and self.busy:
            self.times += 1
            return BUSY
        return None


class Stuck(Around):
    """Hangs in a request that renews some names, together with all others in that request.

    Args:
        store: the real store.
        seconds: how long a request hangs.
    """

    def __init__(self, store: Store, seconds: float = 20.0) -> None:
        super().__init__(store)
        self.seconds = seconds
        self.names: set[str] = set()
        self.hangs = 0

    def pause_before(self, step: str, args: Any) -> float | None:
        if step == "renew" and any(_name(claim) in self.names for claim in args[0]):
            self.hangs += 1
            return self.seconds
        return None


class Partial(Around):
    """Answers that the leases of some names were not renewed, and other leases in the same request were.

    Args:
        store: the real store.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.names: set[str] = set()
        self.together = 0

    def after(self, step: str, args: Any, answer: Any) -> Any:
        if step != "renew":
            return answer
        bad = [_name(claim) in self.names for claim in args[0]]
        self.together += 0 < sum(bad) < len(bad)
        error = StoreError("not this one, by order of the test")
        return [error if is_bad else each for is_bad, each in zip(bad, answer, strict=True)]


class Counting(Around):
    """Counts the steps.

    Args:
        store: the real store.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.steps: Counter[str] = Counter()

    def before(self, step: str, args: Any) -> Any:
        self.steps[step] += 1
        return args


class Stepwise(Around):
    """Lets other threads or tasks run before and after each step: a point to switch, or to be cancelled."""

    def pause_before(self, step: str, args: Any) -> float | None:
        return 0.0

    def pause_after(self, step: str, args: Any) -> float | None:
        return 0.0


def _name(claim: Claim) -> str:
    return claim.spec.key.partition(SEPARATOR)[2]
