"""A store that performs each step on a line atomically: production's queue of such stores, with `core.line`."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getsource
from typing import Any

from interlock.core.claims import USING, Claim, LockSpec
from interlock.core.line import Line, Origin, QueuedClaim, StepResult, StoreTime
from interlock.core.queue import GIVEN_UP, EnterResult
from interlock.storekit._async import step_queue as queues
from model_checker import runtime
from model_checker.changes import executed
from model_checker.pending.options import Fence, Options
from model_checker.pending.register import Ask
from model_checker.pending.store import Effect, Row, Store
from model_checker.runtime import effect

NOW = StoreTime(1, 1)
OVER, AHEAD = 0, 2


class Waiters:
    """As `remote.waiters.Waiters`; the world knows the waiters, and notifies them."""

    __slots__ = ()
    by_id: dict[str, Any] = {}

    def add(self, id: str, waiter: Any) -> None:
        """Do nothing."""

    def notify(self, id: str, fence: int, slot: int) -> bool:
        """Do nothing: the world has recorded the promoted claims."""
        return True


class Steps:
    """A step store whose steps are requests to the world."""

    __slots__ = ()
    origin = Origin()
    poll_after = 1.0
    waiters = Waiters()

    @property
    def notifier(self) -> Steps:
        """Return this object: the world itself notifies waiters."""
        return self

    def step_now(self) -> None:
        """Return None: the world may take other steps before it answers."""

    async def step(self, key: str, transition: Any, *args: Any) -> Any:
        """Ask the world for a step."""
        if transition.__name__ == "enter":
            claim, _, wait, again = args
            request = Ask("enter", claim.id, (claim.spec.units, claim.spec.capacity, wait, again))
        elif transition.__name__ == "leave":
            request = Ask("leave", args[0])
        elif transition.__name__ == "look":
            return StepResult(None, ())  # nobody misses a notification of the world
        else:
            ((id,),) = args
            request = Ask("extend", id)
        return await effect(request)


def step_queue() -> Any:
    """Return production's queue on such a store."""
    module: Any = executed(queues, getsource(queues))
    module.rt, module.clock = runtime, runtime.StoppedClock
    return module.AsyncStepQueue(Steps())


class GivesUp:
    """A queue that gives up a new claim whose request had no reply, as `remote._async.server_queue` does.

    Args:
        queue: the queue.
    """

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self.subscribe, self.leave, self.renew = queue.subscribe, queue.leave, queue.renew

    async def enter(self, claim: Claim, waiter: Any, may_queue: bool, already_queued: bool) -> EnterResult:
        """As `AsyncQueue.enter`."""
        result: EnterResult = await self.queue.enter(claim, waiter, may_queue, already_queued)
        return GIVEN_UP if result.state == "indeterminate" and not already_queued else result


def do(options: Options, store: Store, request: Ask, lease: int) -> Iterator[Effect]:
    """Yield the possible effects of a step on the line.

    Args:
        options: the store's behaviour.
        store: the store before the step.
        request: the step.
        lease: the moment from which a lease counts that this step begins or extends.
    """
    line = Line(tuple(map(_place, store.rows)), store.issued)
    match request.verb:
        case "enter":
            units, capacity, wait, again = request.args
            claim = Claim(request.id, LockSpec("", units, capacity))
            step = options.steps.enter(line, NOW, claim, Steps.origin, wait, again)
        case "leave":
            step = options.steps.leave(line, NOW, request.id)
        case _:
            step = options.steps.renew(line, NOW, [request.id])
            step = step._replace(answer=tuple(step.answer))
    after = line if step.line is None else step.line
    leases = {row.id: row.lease for row in store.rows}
    if request.verb != "leave":
        leases[request.id] = lease
    counts = options.fence is not Fence.NONE
    rows = tuple(_row(place, leases[place.id], counts) for place in after.places)
    told = {(place.id, place.fence if counts else 1, place.slot) for place in step.promoted}
    owners = {id[0].upper() for id, *_ in told}  # a waiter keeps only its last message
    kept = [word for word in store.words if word[0][0].upper() not in owners]
    words = tuple(sorted([*kept, *told]))
    promoted = tuple(_plain(place, counts) for place in step.promoted)
    answer = step.answer
    if request.verb == "enter" and answer is not None:
        answer = _plain(answer, counts)
    step = StepResult(None, answer, promoted, 0, step.more)
    yield Effect(_shown(request, step), step, Store(rows, after.max_fence if counts else 0, words))


def _shown(request: Ask, step: StepResult) -> str:
    answer = getattr(step.answer, "state", step.answer)
    told = ", ".join(f"{place.id} is promoted" for place in step.promoted)
    asks = "asks again" if request.args and request.args[-1] else f"does {request.verb}"
    return f"{asks}: {answer}" + (f"; {told}" if told else "")


def _place(row: Row) -> QueuedClaim:
    until = OVER if row.expired else AHEAD
    return QueuedClaim(
        row.id, "using" if row.state == USING else "pending", row.units, row.capacity, until, 1, 0, row.fence, 1, 0,
        row.slot, False, "", "", "", "", "",
    )  # fmt: skip


def _row(place: QueuedClaim, lease: int, counts: bool) -> Row:
    fence = place.fence if counts else 1
    return Row(place.id, place.units, place.capacity, place.state, fence, place.until <= NOW.lease, lease, place.slot)


def _plain(place: QueuedClaim, counts: bool) -> QueuedClaim:
    """A place without the facts that are never compared."""
    return place._replace(until=0, ttl=0, renewal_count=0, since=0, held=0, fence=place.fence if counts else 1)
