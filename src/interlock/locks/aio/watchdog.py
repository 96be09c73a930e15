"""Renewal of leases for asyncio tasks: a timer on the loop keeps time and tells losses, tasks ask the store.

No request stands before a deadline: a loss is told then, whatever a renewal waits for.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from interlock.core.claims import Claim
from interlock.core.errors import LockError
from interlock.core.oldstore import AsyncStore
from interlock.locks.grants import BaseGrant
from interlock.locks.leases import LONGEST_SLEEP, Tell
from interlock.locks.watchdog import BaseWatchdog, by_node, portions
from interlock.runtime import log
from interlock.runtime.aio import arun
from interlock.runtime.process import in_forked_child

G = TypeVar("G", bound=BaseGrant)
AT_ONCE = 100  # leases whose request is made in one turn of the loop
MOST_THERE = 4  # requests to one node at the same time
_kept: "set[LoopWatchdog[Any]]" = set()


class LoopWatchdog(BaseWatchdog[G]):
    """Renews the grants of one connection on one event loop; no task while nothing is due.

    Args:
        queue: the store.
        tell_lost: called once, on the loop, for each grant that is lost; never fails.
        tell: called with grants, what happened to them, and why, if anybody listens; never fails.
        release: gives a grant back whose `async with` block was left without it.
        keeper: the connection, which is kept as long as there is something to watch, so that the exit finds it.
    """

    def __init__(
        self,
        queue: AsyncStore,
        tell_lost: Callable[[G], None],
        tell: Tell[G],
        release: Callable[[G], Awaitable[object]],
        keeper: Any,
    ) -> None:
        super().__init__(queue, tell_lost, tell, release, keeper)
        self._node_of = queue.node_of
        self.loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf
        self._tasks: set[asyncio.Task[None]] = set()
        self.end: object = None  # what is done when the loop ends
        for each in list(_kept):
            if each.loop.is_closed() and not each.needed:
                _kept.discard(each)

    @property
    def needed(self) -> bool:
        """True while the store may have claims that the exit could take out of their lines."""
        return bool(self.entries or self._keeper.entering)

    @property
    def runs(self) -> bool:
        """True while its loop runs, so that its grants are renewed and somebody may work under them."""
        return self.loop.is_running()

    def add(self, grant: G) -> None:
        """Watch over `grant` from now on."""
        self._table.add(grant)
        if grant._due < self._wakes_at:
            self._schedule(grant._due)

    def release_later(self, grant: G) -> None:
        """Take the claim of `grant` out of the line at the end of its `at_least`; until then it stays."""
        self._table.stay(grant)
        if grant._free_at < self._wakes_at:
            self._schedule(grant._free_at)

    def doubt(self, id: str) -> None:
        """Ask the store at once about a claim that it may not have any more."""
        if self._table.doubt(id):
            self._schedule(0.0)

    def stop(self) -> None:
        """Cancel what is scheduled."""
        self._stopped = True
        _kept.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.loop.is_closed():
            for task in self._tasks:
                task.cancel()

    def _schedule(self, moment: float) -> None:
        if self._stopped or self.loop.is_closed():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = moment
        _kept.add(self)
        delay = min(LONGEST_SLEEP, max(0.0, moment - time.monotonic()))
        self._timer = self.loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._wakes_at = math.inf
        try:
            now = time.monotonic()
            over = self._table.over(now)
            if over:
                task = self.loop.create_task(self._leave(over), name="interlock-at-least")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            due = self._table.look(now)
            for grants in by_node(self._node_of, due).values() if due else ():
                task = self.loop.create_task(self._renew(grants), name="interlock-watchdog")
                self._tasks.add(task)
                task.add_done_callback(partial(self._ended, grants))
        except BaseException:  # even SystemExit: the leases of all others hang on this timer
            log.exception("unexpected error in the watchdog, which goes on")
        finally:
            self._rest()

    def _rest(self) -> None:
        upcoming = self._table.next_due()
        if upcoming < self._wakes_at:
            self._schedule(upcoming)
        elif self._timer is None and not self._keeper.entering:
            _kept.discard(self)

    async def _renew(self, grants: list[G]) -> None:
        """Renew leases at one node."""
        for grant in self._table.take_abandoned(grants):
            await self._give_back(grant)
        todo = portions(grants, AT_ONCE)
        await asyncio.gather(
            *[self._renew_portions(todo) for _ in range(min(MOST_THERE, 1 + len(grants) // AT_ONCE))]
        )

    async def _renew_portions(self, todo: Iterator[list[G]]) -> None:
        for grants in todo:
            grants = [grant for grant in grants if grant.id in self._watched]  # the others have ended meanwhile
            if not grants:
                continue
            try:
                sent = time.monotonic()
                answers = await arun(self._queue.renew([grant._claim for grant in grants]))
                self._table.answered(grants, answers, sent)
            except Exception as error:
                self._table.failed(grants, error, time.monotonic())
                if not isinstance(error, (LockError, TimeoutError)):
                    log.exception("unexpected error while renewing")

    def _ended(self, grants: list[G], task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._stopped:
            return
        if task.cancelled() or task.exception() is not None:
            # Whoever cancelled it, asyncio.run perhaps, means no lease: they are renewed by the next one.
            self._table.again(grants, time.monotonic())
        self._rest()

    async def _leave(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            try:
                await arun(self._queue.leave(claim))
            except LockError as error:
                self._warn_of_stay(claim, error)

    async def _give_back(self, grant: G) -> None:
        try:
            await self._release(grant)
        except LockError as error:
            log.warn("could not release %r, whose `async with` was left; its lease ends: %s", grant.name, error)


in_forked_child(_kept.clear)
