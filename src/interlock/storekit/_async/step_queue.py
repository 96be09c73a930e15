"""The queue of a store that performs each step on a line atomically; `core.line` decides."""

import contextlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from interlock.core._async.protocols import AsyncQueue, AsyncWaiting
from interlock.core.claims import DONE, MICROS, SEPARATOR, USING, Check, Claim, ClaimView, keys_of, namespace_of
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.failures import Denied, TransientRefusal, Unreachable, outage
from interlock.core.line import (
    IS_DONE,
    RENEWAL_GONE,
    QueuedClaim,
    StepNow,
    StepResult,
    Transition,
    adopt,
    complete,
    delete_record,
    enter,
    evict,
    leave,
    look,
    read_record,
    renew,
    settle,
    unchecked,
)
from interlock.core.queue import (
    BUSY,
    CLAIM_GONE,
    OCCUPIED,
    POLLS_PER_SECOND,
    REFUSED,
    RUN_ALREADY_DONE,
    EnterResult,
    Held,
    Renewed,
    Wakeable,
)
from interlock.core.renewal import BUSY_WITHIN
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.runtime.waiters import Notifier

POLL_INTERVAL = 1.0  # seconds between two polls of a waiter; a safety net, because each hand-over is notified
SHORTEST_POLL = 0.001  # seconds
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.02  # seconds before a busy store is asked again
LIVES = "yes"  # the liveness token of a claim that ends with its process; the store replaces it
UNAVAILABLE_PAUSE = 0.25  # seconds until an unavailable store is asked again


class AsyncStepStore(Protocol):
    """A store that performs steps on lines; optional methods have defaults.

    Attributes:
        poll_after: seconds after which a waiter polls if it was not notified; more in a long line.
        never_blocks: True if no step ever blocks; otherwise asyncio performs each step in a worker thread.
    """

    poll_after: float
    never_blocks: bool = False

    @property
    @abstractmethod
    def notifier(self) -> Notifier:
        """The notifier of waiters."""

    @abstractmethod
    async def step(self, key: str, transition: Transition, *args: object) -> StepResult | None:
        """Perform `transition(line, clock, *args)` on the line of a key atomically; return None if the line is busy.

        If `complete` answers True, the store keeps its last argument with the line; if `read_record` answers True,
        the store replaces that answer by the kept value.
        """

    @abstractmethod
    async def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix` and may have claims."""

    @abstractmethod
    async def doctor(self) -> list[Check]:
        """Check whether this store keeps its guarantees."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections."""

    def abort(self) -> object:
        """Close all connections without waiting."""
        return None

    def step_now(self) -> StepNow | None:
        """Return a faster plain function that does the same as `step`; None if steps may block."""
        return None

    async def renew_many(self, ids_by_key: Mapping[str, Sequence[str]]) -> Mapping[str, StepResult]:
        """Renew the claims of many keys together; return the steps by key; the queue renews each missing key."""
        return {}

    def close_idle(self) -> object:
        """Close idle connections: no lock was held for a while."""
        return None


class AsyncStepQueue(AsyncQueue):
    """A queue on a step store.

    Args:
        steps: the store.

    Attributes:
        busy_limit: seconds for which a busy store is asked again; an acquire retries until its own time-out.
        busy_text: the message of the error after that.
    """

    busy_limit = 5.0  # seconds
    busy_text = "The store was busy for 5 s: another program holds the store's own lock. Nothing was done. Retry."

    def __init__(self, steps: AsyncStepStore) -> None:
        self._steps = steps
        self._step = steps.step
        self._step_now = steps.step_now()
        self._notifier = steps.notifier
        self._waiters = self._notifier.waiters
        self._forget = self._waiters.by_id.pop
        self._answered = False

    def subscribe(self) -> AsyncWaiting:
        return rt.AsyncWaiter()

    def close_idle(self) -> object:
        return self._steps.close_idle()

    async def doctor(self) -> list[Check]:
        return await self._steps.doctor()

    async def aclose(self) -> None:
        await self._steps.aclose()

    def abort(self) -> None:
        self._steps.abort()

    async def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        # async only
        if self._step_now is not None and rt.turn_is_over():  # steps that never wait would starve other tasks
            await rt.yield_to_loop()
        spec = claim.spec
        if waiter is not None:
            # Before the step, because another process may promote the claim directly after it.
            self._waiters.add(claim.id, waiter)
        args = spec.key, enter, claim, self._notifier.origin, waiter is not None and may_queue, already_queued
        try:
            step = await self._step(*args) if self._step_now is None else self._step_now(*args)
            if step is not None and step.promoted:
                await self._notify(spec.key, step)
        except StoreError as error:
            return on_unavailable(claim, error, may_queue, self._answered)
        except BaseException as error:
            await self._broken_off(spec.key, error)
            raise
        self._answered = True
        if step is None:
            return BUSY
        place = step.answer
        if place is not None and place is not IS_DONE and place.state != USING:
            pause = pause_before_look(self._steps.poll_after, step.look_in, step.places)
            return EnterResult("pending", poll_after=pause, lease_extended=step.line is not None)
        if waiter is not None:
            self._forget(claim.id, None)
        if place is None:
            return CLAIM_GONE if already_queued else OCCUPIED if may_queue else REFUSED
        if place is IS_DONE:
            return RUN_ALREADY_DONE
        # A call of the class takes twice as long.
        using: EnterResult = unchecked(EnterResult, ("using", place.fence, 0.0, True, None, place.slot, None))
        return using

    async def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        self._forget(claim.id, None)
        key = claim.spec.key
        args: Any = (
            (key, leave, claim.id)
            if not keep_for
            else (key, complete, claim.id, int(keep_for * MICROS), stored_result)
        )
        try:
            step = await self._step(*args) if self._step_now is None else self._step_now(*args)
            if step is None:
                step = await self._insist(*args)
            if step.promoted:
                await self._notify(key, step)
        except BaseException as error:
            await self._broken_off(key, error)
            raise
        return bool(step.answer)

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        by_key: dict[str, list[str]] = {}
        for claim in claims:
            by_key.setdefault(claim.spec.key, []).append(claim.id)
        answers: dict[str, Renewed] = {}
        steps: Mapping[str, StepResult] = {}
        if len(by_key) > 1:
            steps = await self._steps.renew_many(by_key)
        late = clock.now() + min([self.busy_limit, *(claim.spec.ttl * BUSY_WITHIN for claim in claims)])
        for until in (0.0, late):  # busy lines are renewed after the others, whose leases might expire
            for key, ids in list(by_key.items()):
                await rt.yield_to_loop()
                try:
                    step = steps.get(key) or await self._try_until(until, key, renew, ids)
                except StoreError as error:
                    answers |= dict.fromkeys(by_key.pop(key), error)
                    continue
                if step is not None:
                    answers |= zip(by_key.pop(key), step.answer, strict=True)
                    await self._notify(key, step)
        answers |= {id: StoreError(self.busy_text) for ids in by_key.values() for id in ids}
        return [answers.get(claim.id, RENEWAL_GONE) for claim in claims]

    async def run_result(self, key: str) -> str | None:
        answer = (await self._insist(key, read_record)).answer
        return None if answer is False else str(answer)

    async def delete_run_result(self, key: str) -> bool:
        return bool((await self._insist(key, delete_record)).answer)

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        origin = self._notifier.origin._replace(liveness_token="" if detached else LIVES)
        place = await self._change(key, adopt, id, claim, origin)
        return None if place is None else Held(claim, place.fence, 0.0, place.slot)

    async def evict(self, key: str, id: str | None) -> int:
        return int(await self._change(key, evict, id))

    async def look(self, key: str) -> list[ClaimView]:
        known = await self._steps.keys(key) if key.endswith(SEPARATOR) else [key]
        views = []
        for each in keys_of(key, known):
            step = await self._insist(each, look)
            views += [view_of(each, place, step.look_in) for place in step.answer]
        return views

    async def namespaces(self) -> list[str]:
        """List the namespaces with a holder or a waiter."""
        found = {namespace_of(each) for each in await self._steps.keys("")}
        return sorted([each for each in found if await self.look(each + SEPARATOR)])

    async def _change(self, key: str, transition: Transition, *args: object) -> Any:
        """Perform a step, and notify the promoted waiters; return the answer of the step."""
        try:
            step = await self._insist(key, transition, *args)
            await self._notify(key, step)
        except BaseException as error:
            await self._broken_off(key, error)
            raise
        return step.answer

    async def _broken_off(self, key: str, error: BaseException) -> None:
        """Notify the holders after an interrupt, which may have come between a step and its notifications."""
        # Not if the step itself failed, nor in a coroutine that is dropped: it cannot wait for anything.
        if not isinstance(error, (StoreError, GeneratorExit)) and not isinstance(error.__cause__, StoreError):
            await rt.finish(self._notify_holders, key)

    async def _notify_holders(self, key: str) -> None:
        with contextlib.suppress(StoreError):
            places = (await self._insist(key, look)).answer
            self._wake([place for place in places if place.state == USING])

    async def _insist(self, key: str, transition: Transition, *args: object) -> StepResult:
        """Perform a step; retry while the store is busy.

        Raises:
            StoreError: the store was busy for longer than `busy_limit`.
        """
        step = await self._try_until(clock.now() + self.busy_limit, key, transition, *args)
        if step is None:
            raise StoreError(self.busy_text)
        return step

    async def _try_until(self, until: float, key: str, transition: Transition, *args: object) -> StepResult | None:
        """Perform a step; retry a busy store until `until`, then return None."""
        pause = SHORTEST_PAUSE
        while (step := await self._step(key, transition, *args)) is None and clock.now() < until:
            await rt.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)
        return step

    async def _notify(self, key: str, step: StepResult) -> None:
        """Notify the promoted waiters; continue with `settle` if more remain."""
        while step.promoted:
            self._wake(step.promoted)
            if not step.more:
                return
            step = await self._insist(key, settle)

    def _wake(self, promoted: Sequence[QueuedClaim]) -> None:
        """Notify waiters of this process, and those of others: holders of their fence, pending claims to poll."""
        elsewhere = [
            place
            for place in promoted
            if not self._waiters.notify(place.id, place.fence if place.state == USING else 0, place.slot)
        ]
        if elsewhere:
            self._notifier.notify_others(elsewhere)


def pause_before_look(poll_after: float, look_in: int, places: int = 0) -> float:
    """Return the seconds until a waiter polls again, unless it is notified before.

    A poll reads the whole line, so all waiters of one line together poll at most `POLLS_PER_SECOND` times per
    second.

    Args:
        poll_after: the shortest pause in seconds, unless a lease ends earlier.
        look_in: microseconds until the end of a lease ahead of the waiter.
        places: the number of claims in the line.
    """
    return min(max(poll_after, places / POLLS_PER_SECOND), max(SHORTEST_POLL, look_in / MICROS))


def on_unavailable(claim: Claim, error: StoreError, may_queue: bool, answered: bool) -> EnterResult:
    """Return the result of an enter whose request failed: the caller retries while the store is unavailable.

    Args:
        claim: the claim that enters.
        error: the failure.
        may_queue: True if the caller wants to wait.
        answered: True if the store has answered any request of this queue.

    Raises:
        StoreError: `error`, if a retry will not help or the caller does not wait.
    """
    if (
        isinstance(error, Denied)
        or not isinstance(error, (TransientRefusal, Unreachable, UnknownOutcome))
        or not may_queue
    ):
        raise error
    return EnterResult(
        "indeterminate" if isinstance(error, UnknownOutcome) else "busy",
        poll_after=UNAVAILABLE_PAUSE,
        lease_extended=False,
        outage=outage(error, claim.spec.ttl, answered),
    )


def view_of(key: str, place: QueuedClaim, now: int) -> ClaimView:
    """Return the view of a claim for `locks.claims()`.

    Args:
        key: the key of the line.
        place: the claim.
        now: the time of the lease clock, in microseconds.
    """
    host, _, pid = place.process_name.rpartition(" ")
    return ClaimView(
        name=key.partition(SEPARATOR)[2],
        id=place.id,
        state=place.state,
        units=place.units,
        capacity=place.capacity,
        fence=place.fence if place.state == USING else None,
        host=host,
        pid=int(pid or 0),
        thread=place.who,
        label=place.label,
        since=None if place.state == DONE else place.since / MICROS,
        expires_in=max(0, place.until - now) / MICROS,
        held_since=place.held / MICROS if place.held else None,
    )
