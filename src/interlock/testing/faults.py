"""Stores around a store that are slow, lose replies, fail or count: what goes wrong between a lock and its store.

A fault is written once: the queue of each colour asks it before and after each step.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from interlock.core.claims import SEPARATOR, Claim
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import BUSY, Store


class Around:
    """A store whose queues hand everything on; its methods are the places to interfere.

    Steps are called enter, leave, renew, look and evict.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.features, self.frees_at_death = store.features, store.frees_at_death
        self.in_process, self.now = store.in_process, store.now
        self.closed = False

    def queue(self) -> Any:
        """Return a queue for threads."""
        from interlock.testing._sync.faulty import FaultyQueue

        return FaultyQueue(self.inner.queue(), self)

    def aqueue(self) -> Any:
        """Return a queue for the tasks of the running loop."""
        from interlock.testing._async.faulty import AsyncFaultyQueue

        return AsyncFaultyQueue(self.inner.aqueue(), self)

    def before(self, step: str, args: Any) -> Any:
        """Return the arguments of a step, or raise instead of doing it."""
        return args

    def pause_before(self, step: str, args: Any) -> float | None:
        """Return how many seconds pass before a step; None: it is done at once."""

    def instead(self, step: str, args: Any) -> Any:
        """Return what is answered instead of doing a step; None: it is done."""

    def pause_after(self, step: str, args: Any) -> float | None:
        """Return how many seconds pass after a step; None: it answers at once."""

    def after(self, step: str, args: Any, answer: Any) -> Any:
        """Return the answer of a step, or raise though it was done."""
        return answer


class Slow(Around):
    """Does each of its steps at once, and answers late.

    Args:
        store: the real one.
        delay: seconds between the deed and the answer.
        steps: which steps are slow.

    Attributes:
        done: how many slow steps were done, each of which is answered after the delay.
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
    """Does a step and loses the answer: the caller gets UnknownOutcome.

    Args:
        store: the real one.
        losses: step -> how many of its next answers are lost; may be changed at any time.
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
    """Refuses steps without doing anything of them, as long as they are in `broken`.

    Args:
        store: the real one.
        broken: steps that fail; may be changed at any time.
        error: what they raise.
    """

    def __init__(self, store: Store, *broken: str, error: type[Exception] = StoreError) -> None:
        super().__init__(store)
        self.broken = set(broken)
        self.error = error
        self.refused: Counter[str] = Counter()

    def before(self, step: str, args: Any) -> Any:
        if step in self.broken:
            self.refused[step] += 1
            raise self.error(f"{step!r} failed, by order of the test")
        return args


class FailingLeave(Around):
    """Can't take the claims of some names out of their lines, as long as these are in `names`.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.names: set[str] = set()

    def before(self, step: str, args: Any) -> Any:
        if step == "leave" and _name(args[0]) in self.names:
            raise StoreError("'leave' failed for this name, by order of the test")
        return args


class Busy(Around):
    """Is too busy to be asked by those who stand in line already, as long as `busy` is true.

    Args:
        store: the real one.
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
    """Hangs in the renewal of some names, and of all that are asked for in the same request.

    Args:
        store: the real one.
        seconds: how long.
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
    """Can't be asked about the leases of some names; those of others it renews in the same request.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.names: set[str] = set()
        self.together = 0

    def before(self, step: str, args: Any) -> Any:
        if step != "renew":
            return args
        (claims,) = args
        asked = [claim for claim in claims if _name(claim) not in self.names]
        self.together += 0 < len(asked) < len(claims)
        return (_Asked(asked, claims),)

    def after(self, step: str, args: Any, answer: Any) -> Any:
        if step != "renew":
            return answer
        asked = args[0]
        answers = dict(zip((claim.id for claim in asked), answer, strict=True))
        return [answers.get(claim.id, StoreError("not this one, by order of the test")) for claim in asked.of]


class _Asked(list[Claim]):
    """The claims that are asked about, of all that were to be."""

    def __init__(self, asked: Sequence[Claim], of: Sequence[Claim]) -> None:
        super().__init__(asked)
        self.of = of


class Counting(Around):
    """Counts the steps that are asked of it.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.steps: Counter[str] = Counter()

    def before(self, step: str, args: Any) -> Any:
        self.steps[step] += 1
        return args


class Stepwise(Around):
    """Lets others run before and after every step, so that each is a place to switch or to be cancelled."""

    def pause_before(self, step: str, args: Any) -> float | None:
        return 0.0

    def pause_after(self, step: str, args: Any) -> float | None:
        return 0.0


def _name(claim: Claim) -> str:
    return claim.spec.key.partition(SEPARATOR)[2]
