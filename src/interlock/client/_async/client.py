"""The connection of locks and grants: how it acquires, and how it closes."""

import atexit
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias
from weakref import ref

from interlock.client._async.grants import AsyncGrant
from interlock.client._async.watchdog import AsyncWatchdog
from interlock.client.arguments import TRY_LIMIT, AcquireOptions
from interlock.client.base_client import BaseClient
from interlock.client.base_grant import ReentryCount, refuse_own_wait
from interlock.client.cancel import Cancel, SupportsIsSet
from interlock.client.events import GLOBAL_LISTENERS
from interlock.client.messages import EXPIRED_OR_EVICTED, closed_meanwhile, time_is_over, too_many_wait
from interlock.core._async.acquire import acquire
from interlock.core._async.protocols import AsyncWaiting
from interlock.core.claims import (
    DONE,
    MAX_LABEL,
    USING,
    Claim,
    ClaimView,
    LockSpec,
    name_of,
    shown_text,
    with_instance,
)
from interlock.core.errors import LockError, LockTimeout, StoreError, UnknownOutcome
from interlock.core.failures import NoAnswer, Refused, Unreachable
from interlock.core.line import unchecked
from interlock.core.queue import AcquireCall, EnterResult, Held
from interlock.runtime import _aio as rt
from interlock.runtime import clock, log
from interlock.runtime.process import WeakRegistry, checked_pid, each_in_forked_child, running_loop
from interlock.storekit.store import Store

CLOSE_LIMIT = 2.0  # seconds that other calls have to leave the line
AT_EXIT_LIMIT = 1.0  # seconds
GIVEN_UP_LIMIT = 0.1  # seconds that the exit waits for threads whose calls it has ended
CLOSE_POLL_INTERVAL = 0.002  # seconds between two looks
CANCEL_LOOK = 0.1  # seconds between two looks at a foreign event
Entering: TypeAlias = tuple[Claim | AcquireCall[AsyncWaiting], rt.Caller]
"""A call of acquire in progress: its claim, and the calling thread or task."""


class AsyncState:
    """The state of a connection in one process or event loop.

    Attributes:
        here: the process or loop.
        queue: its queue of the store.
        mark: what its claims say before the name of the thread or task; "" without an instance.
        takes_over: True until the claims of earlier processes of the instance were removed.
        taking_over: the call that takes over has it.
        not_taken: the error of the last takeover that failed.
        watchdog: renews the held claims.
        entering: the calls of acquire in progress, by claim.
        leaving: the claims that are being released, and their owners; `close()` waits for them.
        holds: the holds of re-entrant locks, by name, owner and strand (`rt.strands`); a hold is found while one of
            its handles lives.
    """

    def __init__(self, client: "AsyncClient", here: rt.Here) -> None:
        self.here = here
        self.queue = client.store.aqueue()
        self.mark = client.mark()
        self.takes_over = client.takeover
        self.taking_over = rt.SignalSafeTurn()
        self.not_taken: StoreError | None = None
        self.watchdog = AsyncWatchdog(client, self.queue)
        self.entering: dict[str, Entering] = {}
        self.leaving: dict[str, tuple[Claim, rt.Caller]] = {}
        self.holds: dict[tuple[str, rt.Caller, object], tuple[ref[AsyncGrant], ReentryCount]] = {}

    def marked(self, who: str) -> str:
        """Return the name of a thread or task as its claims say it, with the instance."""
        return (self.mark + who)[:MAX_LABEL]


class AsyncClient(BaseClient):
    """A connection to a store.

    Args:
        store, namespace, ttl, instance, takeover: as for `BaseClient`.
    """

    def __init__(self, store: Store, namespace: str, ttl: float | None, instance: str | None, takeover: bool) -> None:
        super().__init__(store, namespace, ttl, instance, takeover)
        self._here = rt.here if store.in_process else rt.checked_here
        self._states: dict[rt.Here, AsyncState] = {}
        self._making = rt.Mutex()
        clients.add(self)

    def came_in_a_pickle(self) -> None:
        """Make claims that no process of another host takes over; call it before the first claim."""
        super().came_in_a_pickle()
        for state in self._states.values():
            state.mark = self.mark()

    def start_afresh(self) -> None:
        """Reset the connection in a forked child, which holds nothing."""
        self._states.clear()
        self._making = rt.Mutex()

    def state(self) -> AsyncState:
        """Return the state of this connection in the calling process or loop."""
        here = None if self._here is None else self._here()
        state = self._states.get(here)
        if state is None:
            with self._making:  # simultaneous threads share one state
                state = self._states.get(here)
                if state is None:
                    self.check_open()
                    self._forget_ended()
                    state = self._states[here] = AsyncState(self, here)
        return state

    def _forget_ended(self) -> None:
        """Close the states of loops that ended without `close()`."""
        # async only
        for state in self.states:
            if state.here.is_closed():
                self._forget(state)

    def _forget(self, state: AsyncState) -> None:
        self._part_from(state)
        state.queue.abort()

    def _part_from(self, state: AsyncState) -> None:
        """Stop all renewals; call it before closing the queue, which may release locks."""
        self._states.pop(state.here, None)
        state.entering.clear()  # first, so that an acquire that adds its grant later notices and fails
        state.watchdog.stop(frees=self.store.frees_at_death and not self.store.in_process)

    def drop(self) -> None:
        """Close all connections without waiting; the next call connects again.

        If the claims of the store end with their connection, the grants are lost now, and their holders are notified.
        Otherwise the claims end with their leases.
        """
        for state in self.states:
            self._forget(state)

    @property
    def states(self) -> list[AsyncState]:
        """The states of this connection in this process."""
        return list(self._states.values())

    async def acquire(
        self,
        spec: LockSpec,
        options: AcquireOptions,
        seconds: float | None,
        owner: rt.Caller,
        cancel: SupportsIsSet | None = None,
    ) -> AsyncGrant | None:
        """Acquire a lock; return None if it could not be acquired in time. After an error no claim is left behind.

        Args:
            spec, options: the parameters of the lock, and the options of the acquire.
            seconds: maximum wait; 0 for one try, None for no limit.
            owner: the caller.
            cancel: cancels the call; None if nothing can.

        Raises:
            Busy: `options.max_waiters` others wait.
        """
        state, who = self.state(), shown_text(owner.get_name())
        if state.mark:
            if state.takes_over:
                await self._take_over(state)
            who = state.marked(who)
        if options.max_waiters is not None:
            spec = spec._replace(waits_for_server=True)
        started = self.now()
        id, entering = rt.fresh_id(), state.entering
        claim: Claim = unchecked(Claim, (id, spec, who))
        call: AcquireCall[AsyncWaiting] | None = None
        grant = None
        # In this order, because `close` sets `closed` first, and then checks the entering calls.
        entering[id] = claim, owner
        if self.closed:
            entering.pop(id, None)
            self.check_open()
        try:
            try:
                first = await state.queue.enter(claim, None, seconds != 0, False)
            except UnknownOutcome:
                first = None  # the store is asked again
            if first is not None and first.state == "using" and self.now() < started + spec.ttl:
                held: Held | None = unchecked(Held, (claim, first.fence, started + spec.ttl, first.slot))
            else:
                call = self._call(state, claim, owner, seconds, started, first)
                call.max_waiters = options.max_waiters
                call.check_line = options.check_line
                if cancel is None:
                    held = await acquire(rt, state.queue, call)
                else:
                    held = await self._acquire_or_cancel(state, call, id, cancel)
                if held is None or call.queued is not None:
                    self._emit_waited(state, id, call, held)
            if held is None:
                if call is not None and call.full_line is not None:
                    raise too_many_wait(spec, seconds, call.full_line, call.max_waiters)
                return None
            grant = AsyncGrant(held, self, state.watchdog, owner, options)
            state.watchdog.add(grant)
            if self.closed or id not in entering:
                raise closed_meanwhile(spec)
            if self.listeners or GLOBAL_LISTENERS:
                grant._emit_acquired(started)
            entering.pop(id, None)
            return grant
        except GeneratorExit:  # a destroyed coroutine cannot await anything: its claim expires with the lease
            entering.pop(id, None)
            raise
        except BaseException as error:
            # A cancellation or KeyboardInterrupt may arrive at any wait: no claim must stay behind.
            known = call is None or not (first is None or call.in_line or call.uncertain)
            refused = known and isinstance(error, (Refused, Unreachable))  # nothing was done
            left = claim if call is None else call.claim if call.entered else None
            await self._take_back(state, id, None if refused else left, call, grant, error)
            raise

    def _call(
        self,
        state: AsyncState,
        claim: Claim,
        owner: rt.Caller,
        seconds: float | None,
        started: float,
        first: EnterResult | None,
    ) -> AcquireCall[AsyncWaiting]:
        """Return the call that waits for a busy lock, and register it for `close`.

        Args:
            state, claim, owner, seconds, started: the variables of the acquire.
            first: the reply of the store; None if no reply came, so that the claim may be in the line.
        """
        if seconds != 0 and not rt.IS_ASYNC and running_loop() is not None:
            refuse_own_wait(claim.spec, owner, seconds, state.watchdog.live())
        deadline = None if seconds is None else started + (seconds or TRY_LIMIT)
        call: AcquireCall[AsyncWaiting] = AcquireCall(claim, self.now, started, deadline, seconds != 0, first)
        call.entered = call.entered or first is None
        call.on_left = state.watchdog.take_out
        call.on_queued = self.queued if self.listeners or GLOBAL_LISTENERS else None
        state.entering[claim.id] = call, owner
        return call

    def _emit_waited(self, state: AsyncState, id: str, call: AcquireCall[AsyncWaiting], held: Held | None) -> None:
        """Notify the listeners of the end of a wait; after a time-out, the call is no longer in progress."""
        self.left_line(call)
        if held is None:
            state.entering.pop(id, None)
            if not call.done:
                reason = "" if call.full_line is None else f"max_waiters={call.max_waiters} others were waiting"
                self.emit("timed out", call.claim, started=call.started, reason=reason)
            call.queued = None

    async def _take_back(
        self,
        state: AsyncState,
        id: str,
        left: Claim | None,
        call: AcquireCall[AsyncWaiting] | None,
        grant: AsyncGrant | None,
        error: BaseException,
    ) -> None:
        """Withdraw the claim of an interrupted acquire, if `left` is one, and notify the listeners."""
        if grant is not None:
            grant._undo()
        try:
            if left is not None:
                await state.watchdog.leave(left)
        finally:
            state.entering.pop(id, None)
            if grant is not None and grant._acquired_at is not None:
                grant._emit("released", str(error))
            elif call is not None and call.queued is not None:
                self.emit("withdrawn", call.queued, started=call.started, reason=f"{type(error).__name__}: {error}")

    async def _acquire_or_cancel(
        self, state: AsyncState, call: AcquireCall[AsyncWaiting], id: str, cancel: SupportsIsSet
    ) -> Held | None:
        """Acquire, unless the call is cancelled."""
        ours = cancel if isinstance(cancel, Cancel) else Cancel()
        ours.join(call)
        if ours is not cancel:
            rt.start_background("interlock-cancel", self._watch, state, id, cancel, ours)
        try:
            return await acquire(rt, state.queue, call)
        finally:
            ours.leave(call)

    async def _watch(self, state: AsyncState, id: str, cancel: SupportsIsSet, ours: Cancel) -> None:
        """Poll a foreign event while an acquire is in progress."""
        while id in state.entering and not ours.is_set():
            if cancel.is_set():
                ours.set()
            await rt.sleep(CANCEL_LOOK)

    async def adopt(self, state: AsyncState, id: str, claim: Claim, detached: bool = False) -> Held | None:
        """Continue a held claim as `claim`; return None if it is gone.

        Args:
            state: the caller's state of this connection.
            id: the claim's previous id.
            claim: the claim with its new id and lease.
            detached: True if the claim outlives this process.

        Raises:
            StoreError: the store could not be asked; no claim is left behind.
        """
        try:
            return await state.queue.adopt(claim.spec.key, id, claim, detached)
        except (rt.CANCELLED, StoreError):
            # The request may have been performed, and only this call knows the new id.
            await state.watchdog.leave(claim)
            raise

    async def _take_over(self, state: AsyncState) -> None:
        """Remove the claims that earlier processes of this instance left, in this namespace.

        Simultaneous first calls wait for one of them, because a listing of many claims takes long, and share its
        failure.  Then the next acquire tries again.
        """
        before = state.not_taken
        async with state.taking_over:
            if not state.takes_over:
                return
            if state.not_taken is not None and state.not_taken is not before:
                raise state.not_taken
            try:
                await self._take_all_over(state)
            except StoreError as error:
                state.not_taken = error
                raise

    async def _take_all_over(self, state: AsyncState) -> None:
        from interlock.runtime.incarnation import author_of, this_process

        mine = this_process(self.instance or "", self.since)
        taken: list[str] = []
        try:
            for view in waiters_first(await state.queue.look(self.listed(None))):
                author = author_of(view)
                if author is not None and author.is_over(mine):
                    reason = f"left by process {view.pid} on {view.host}, an earlier {mine.instance}"
                    # A claim of a dead process keeps its id: nobody renames it.
                    if await self.evict(self.key(view.name), view.id, reason, [view]):
                        taken.append(f"{view.name!r} (process {view.pid} on {view.host})")
            state.takes_over = False
        finally:
            if taken:
                log.warn("Took over as %s, and removed the claims of: %s", mine.instance, ", ".join(taken))

    async def look(self, key: str) -> list[ClaimView]:
        """List the claims of a key, or of all keys of a namespace."""
        # async only
        await rt.yield_to_loop()
        return [with_instance(view) for view in await self.state().queue.look(key)]

    async def evict_instance(self, instance: str, name: str | None, id: str | None) -> int:
        """Remove the claims of an instance, also those of a living process; arguments as in `AsyncLocks.evict`."""
        self.need("waiters", "evict(instance=…)")
        removed = 0
        for view in waiters_first(await self.look(self.listed(name))):
            if view.instance == instance and id in (None, view.id):
                removed += await self.evict(self.key(view.name), view.id, seen=[view])
        return removed

    async def evict(self, key: str, id: str | None, reason: str = "", seen: Sequence[ClaimView] | None = None) -> int:
        """Remove a claim, or all claims of a name; notify holders and listeners here.

        Args:
            key, id: the key, and the id of the claim; None for all.
            reason: for the event.
            seen: the views of these claims, if the caller has just listed them; None to list the line.
        """
        if id == "":  # for some stores "" means all claims
            return 0
        here = self.state()
        held = [
            (state, grant)
            for each in clients
            for state in each.states
            for grant, claim in state.watchdog.pairs()
            if claim.spec.key == key and id in (None, claim.id)
        ]
        removed, seen = await self._remove(
            here.queue.evict, lambda view: view.state != DONE and id in (None, view.id), key, id, seen=seen
        )
        for state, grant in held if removed else ():
            if state is here:
                state.watchdog.lost(grant, EXPIRED_OR_EVICTED)
            else:  # another state may use another store, and its callbacks belong to another loop
                state.watchdog.verify_soon(grant.id)
        for view in seen[:removed]:
            self.emit("evicted", Claim(view.id, LockSpec(key, label=view.label)), fence=view.fence, reason=reason)
        return removed

    async def delete_run_result(self, key: str) -> bool:
        """Forget the record of a completed run; True if there was one."""
        return (await self._remove(self.state().queue.delete_run_result, lambda view: view.state == DONE, key))[0] > 0

    async def _remove(
        self,
        step: Callable[..., rt.Result[int]],
        concerns: Callable[[ClaimView], bool],
        key: str,
        *args: object,
        seen: Sequence[ClaimView] | None = None,
    ) -> tuple[int, Sequence[ClaimView]]:
        """Remove claims or a record; return their number and the views before.

        Args:
            step: a step of the queue.
            concerns: returns True for a view of a claim or record that the step removes.
            key, args: the arguments of the step.  If its reply is lost, the number is determined by a second look.
            seen: the views before; None to look.
        """
        if seen is None:
            seen = []
            with suppress(LockError):  # if the look fails, the step may still succeed
                seen = [view for view in await self.look(key) if concerns(view)]
        try:
            removed = await step(key, *args)
        except UnknownOutcome:  # if the step was performed, the second request does not count its claims
            removed = await step(key, *args)
            left = {view.id for view in await self.look(key)}
            removed = max(removed, sum(view.id not in left for view in seen))
        return removed, seen

    async def too_late(self, specs: Sequence[LockSpec], seconds: float | None, owner: rt.Caller) -> LockTimeout:
        """Return the error of a time-out; it names the holders if the store lists them."""
        holders: list[ClaimView] | None = None
        with suppress(LockError):
            views = [view for spec in specs for view in await self.look(spec.key)]
            holders = [view for view in views if view.state == USING]
        mine = {grant.id for grant in self.state().watchdog.live() if grant._owner is owner}
        name = ", ".join(name_of(spec.key) for spec in specs)
        return time_is_over(name, seconds, holders, any(view.id in mine for view in holders or ()))

    # -- the end -----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End all waits, release all locks, and close; only the first call has an effect.

        Raises:
            LockError: a lock could not be released; all others were.
        """
        if self.closed:
            return
        with self._making:  # a state created now is seen
            self.closed = True
        await rt.finish(self._close)

    async def _close(self) -> None:
        mine = self._states.get(None if self._here is None else self._here())
        failure = None if mine is None else await self._close_state(mine)
        # async only
        await rt.close_elsewhere([(state.here, self._close_state, state) for state in self.states])
        self._forget_ended()
        if failure is not None:
            raise failure

    async def _close_state(self, state: AsyncState) -> BaseException | None:
        """Close the state of one process or loop; return the first failure."""
        try:
            return await self._end(state, CLOSE_LIMIT, state.watchdog.live())
        finally:  # also after a Ctrl-C: `close` works only once
            self._part_from(state)
            await state.queue.aclose()

    async def _end(self, state: AsyncState, limit: float, grants: Sequence[AsyncGrant]) -> BaseException | None:
        """End all waits, withdraw the remaining claims, and release the held ones.

        A server that did not reply is not asked again, which could take long: its leases expire.

        Args:
            state: the state to close.
            limit: seconds to wait for the calls of other threads or tasks.
            grants: the grants to release, the last one first.

        Returns:
            The first failure; everything else was done.
        """
        await self._until(state.entering, limit)
        rest = [each.claim if isinstance(each, AcquireCall) else each for each, _ in list(state.entering.values())]
        state.entering.clear()
        dropped = [claim for claim, until in list(state.watchdog.dropped) if self.now() < until]
        stale = [claim for claim, until in list(state.watchdog.stale) if self.now() < until]
        failure: BaseException | None = None
        away: dict[object, BaseException] = {}
        ending: list[AsyncGrant | Claim] = [*rest, *reversed(grants), *dropped, *stale]
        for each in ending:
            node = state.watchdog.node_of(each if isinstance(each, Claim) else each._claim)
            try:
                if node not in away:
                    await (state.queue.leave(each) if isinstance(each, Claim) else each.release())
            except LockError as error:
                failure = failure or (None if each in stale else error)
                if isinstance(error, (NoAnswer, Unreachable)):
                    away[node] = error
        await self._until(state.leaving, limit)
        return failure

    async def _until(self, calls: Mapping[str, Entering], limit: float) -> None:
        """Cancel the waiting calls, and wait until the active calls of others have ended."""
        deadline = clock.now() + limit
        while True:
            for call, _ in list(calls.values()):
                if isinstance(call, AcquireCall):
                    call.call_off()
            if not any(rt.is_active(owner) for _, owner in list(calls.values())) or clock.now() >= deadline:
                return
            await rt.sleep(CLOSE_POLL_INTERVAL)

    async def at_exit(self) -> None:
        """Leave no claim at exit, and hand nothing over while a thread may still work.

        The connection stays open, because other exit functions may lock.
        """
        for state in self.states:
            waited = dict(state.entering)
            held = [] if self.store.frees_at_death else state.watchdog.live()
            at_work = [grant for grant in held if rt.is_active(grant._owner)]
            error = await self._end(state, AT_EXIT_LIMIT, [grant for grant in held if grant not in at_work])
            # Wait for these threads: Python aborts if a thread writes to stderr during its exit.
            await self._until(waited, GIVEN_UP_LIMIT)
            if error is not None:
                log.warn("Could not release at exit; the leases will expire: %s", error)
            if at_work:
                log.warn(
                    "%d lock(s) were not released, because their daemon threads (%s) were still running at exit. "
                    "Their leases will expire.",
                    len(at_work),
                    ", ".join(shown_text(grant._owner.get_name()) for grant in at_work),
                )


clients: WeakRegistry[AsyncClient] = WeakRegistry()


async def _at_exit() -> None:
    checked_pid()  # a child forked without Python's hooks does not release its parent's locks
    for client in clients:
        if not client.closed:
            try:
                await client.at_exit()
            except Exception as error:
                log.warn("Could not release at exit: %s", error)


each_in_forked_child(clients, AsyncClient.start_afresh)
if not rt.IS_ASYNC:  # no loop runs at exit: leases expire
    atexit.register(_at_exit)


def waiters_first(views: Sequence[ClaimView]) -> list[ClaimView]:
    """Return claims in the order of their eviction: an evicted holder would let in a waiter that is evicted next."""
    return sorted(views, key=lambda view: view.state == USING)
