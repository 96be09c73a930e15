"""Stores around a store that are slow, lose replies, fail or count: what goes wrong between a lock and its store.

They work on the protocol's requests, so they serve threads and asyncio tasks alike.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from interlock.core.claims import SEPARATOR, Check, Claim, ClaimView
from interlock.core.effects import Op, Sleep, TaskWakeup, ThreadWakeup
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import BUSY, EnterResult, Renewed
from interlock.core.oldstore import BaseStore, Store

T = TypeVar("T")


class Around(BaseStore):
    """A store that hands everything on; `_through` is the place to interfere.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.frees_at_death = store.frees_at_death

    def _through(self, step: str, op: Op[T]) -> Op[T]:
        """Perform `op`, the step of that name (enter, leave, renew, look or evict)."""
        return (yield from op)

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        return (yield from self._through("enter", self.inner.enter(claim, wakeup, wait, again)))

    def leave(self, claim: Claim) -> Op[bool]:
        return (yield from self._through("leave", self.inner.leave(claim)))

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        return (yield from self._through("renew", self.inner.renew(claims)))

    def look(self, key: str) -> Op[list[ClaimView]]:
        return (yield from self._through("look", self.inner.look(key)))

    def evict(self, key: str, id: str | None) -> Op[int]:
        return (yield from self._through("evict", self.inner.evict(key, id)))

    def thread_wakeup(self) -> ThreadWakeup:
        return self.inner.thread_wakeup()

    def task_wakeup(self) -> TaskWakeup:
        return self.inner.task_wakeup()

    def doctor(self) -> list[Check]:
        return self.inner.doctor()

    def close(self) -> None:
        self.inner.close()


class Slow(Around):
    """Does each of its steps at once, and answers late.

    Args:
        store: the real one.
        delay: seconds between the deed and the answer.
        steps: which steps are slow.
    """

    def __init__(self, store: Store, delay: float, steps: Sequence[str] = ("enter", "leave", "renew")) -> None:
        super().__init__(store)
        self.delay = delay
        self.steps = steps

    def _through(self, step: str, op: Op[T]) -> Op[T]:
        answer = yield from op
        if step in self.steps:
            yield Sleep(self.delay)
        return answer


class Lossy(Around):
    """Does a step and loses the answer: the caller gets UnknownOutcome.

    Args:
        store: the real one.
        losses: step -> how many of its next answers are lost; may be changed at any time.
    """

    def __init__(self, store: Store, **losses: int) -> None:
        super().__init__(store)
        self.losses = losses

    def _through(self, step: str, op: Op[T]) -> Op[T]:
        answer = yield from op
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

    def _through(self, step: str, op: Op[T]) -> Op[T]:
        if step in self.broken:
            self.refused[step] += 1
            op.close()
            raise self.error(f"{step!r} failed, by order of the test")
        return (yield from op)


class FailingLeave(Around):
    """Can't take the claims of some names out of their lines, as long as these are in `names`.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.names: set[str] = set()
        self.closed = False

    def leave(self, claim: Claim) -> Op[bool]:
        if _name(claim) in self.names:
            raise StoreError("'leave' failed for this name, by order of the test")
        return (yield from self.inner.leave(claim))

    def close(self) -> None:
        self.closed = True
        super().close()


class Busy(Around):
    """Is too busy to tell claims in line where they stand, and to extend their leases, as long as `busy` is true.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.busy = True
        self.times = 0

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        if again and self.busy:
            self.times += 1
            return BUSY
        return (yield from self.inner.enter(claim, wakeup, wait, again))


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

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        if any(_name(claim) in self.names for claim in claims):
            self.hangs += 1
            yield Sleep(self.seconds)
        return (yield from self.inner.renew(claims))


class Partial(Around):
    """Can't be asked about the leases of some names; those of others it renews in the same request.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.names: set[str] = set()
        self.together = 0

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        asked = [claim for claim in claims if _name(claim) not in self.names]
        self.together += 0 < len(asked) < len(claims)
        alive = yield from self.inner.renew(asked)
        answers = dict(zip((claim.id for claim in asked), alive, strict=True))
        return [answers.get(claim.id, StoreError("not this one, by order of the test")) for claim in claims]


def _name(claim: Claim) -> str:
    return claim.spec.key.partition(SEPARATOR)[2]


class Counting(Around):
    """Counts the steps that are asked of it.

    Args:
        store: the real one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.steps: Counter[str] = Counter()

    def _through(self, step: str, op: Op[T]) -> Op[T]:
        self.steps[step] += 1
        return (yield from op)


class Stepwise(Around):
    """Lets others run before and after every request, so that each is a place to switch or to be cancelled."""

    def _through(self, step: str, op: Op[T]) -> Op[T]:
        advance: Any = op.send
        value: Any = None
        while True:
            try:
                request = advance(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                yield Sleep(0)
                value = yield request
                yield Sleep(0)
                advance = op.send
            except GeneratorExit:
                op.close()
                raise
            except BaseException as error:
                advance, value = op.throw, error
