"""The ORM store: the pending protocol on a table of Django's own database."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from django.conf import settings
from django.db import router

from interlock.core.claims import Check, Claim
from interlock.core.effects import Op
from interlock.core.errors import InvalidArgument, LockError, StoreError
from interlock.core.pending import Pending
from interlock.core.queue import BUSY, OCCUPIED, REFUSED, EnterResult
from interlock.django.conf import checked_most
from interlock.django.failures import NoConnection
from interlock.django.folding import Entered
from interlock.django.models import Claim as ClaimModel
from interlock.django.pool import MOST
from interlock.django.register import Lines, NotCreated, TableStep
from interlock.django.waiters import SHORTEST
from interlock.django.wrappers import make_wrapper
from interlock.runtime.aio import TaskEvent
from interlock.runtime.sync import ThreadEvent

WORKERS = 4  # threads that do the statements of asyncio tasks


class OrmStore(Pending):
    """Locks in the database that the project has, by Django's ORM; for threads and asyncio tasks.

    Args:
        alias: of the database in DATABASES; None for the one that the routers write claims to.
        max_connections: of this process to the database, besides those of the site.

    Raises:
        InvalidArgument: there is no such alias, or the number makes no sense.
    """

    register: Lines

    def __init__(self, alias: str | None = None, max_connections: int = MOST) -> None:
        self.alias = router.db_for_write(ClaimModel) if alias is None else alias
        if self.alias not in settings.DATABASES:
            raise InvalidArgument(f"DATABASES has no {self.alias!r}; it has: {', '.join(sorted(settings.DATABASES))}")
        checked_most(max_connections)
        self._server = StepServer()
        super().__init__(Lines(self.alias, self._server, max_connections))

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """Enter the line; a waiter that nobody tells looks again after a jittered, growing pause."""
        waiters = self.register.waiters
        unwritten = again and waiters.is_young(claim, time.monotonic())
        try:
            result = yield from super().enter(claim, wakeup, wait, again)
        except NotCreated:
            return BUSY
        except NoConnection:
            return EnterResult("pending", 0, SHORTEST, asked=False)  # it stands in line as it stood
        if result.state == "pending" and result.look_again == self.register.poll:
            result = result._replace(look_again=self.register.pause(claim))
        return result._replace(asked=False) if unwritten else result

    def _enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        if not again and self.register.enters_at_once:
            # A claim is not written before it has subscribed: it would not hear that it was promoted.
            entered = yield self.register.enter(claim, wakeup, wakeup is not None)
            if entered is not None:
                return _result(entered, wait)
        if again and self.register.waiters.was_woken(claim):
            fence = yield self.register.promote_if_free(claim)  # most likely it is its turn
            if fence is not None:
                return EnterResult("using", fence)
        return (yield from super()._enter(claim, wakeup, wait, again))

    def thread_wakeup(self) -> ThreadEvent:
        """Return a wake-up for the calling thread."""
        return ThreadEvent()

    def task_wakeup(self) -> TaskEvent:
        """Return a wake-up for the calling task."""
        return TaskEvent()

    def sweep(self, most: int) -> int:
        """Delete the records of claims that are over or whose leases ran out; return how many."""
        return self.register.sweep(most)

    def doctor(self) -> list[Check]:
        """Look at the settings, the table and the clock."""
        from interlock.django.checks import problems_of

        found = [Check("settings", "fail" if each.is_serious() else "warn", f"{each.msg} {each.hint or ''}".strip())
                 for each in problems_of(self.alias)]  # fmt: skip
        try:
            swept = self.register.sweep()
        except LockError as error:
            return [*found, Check("table", "fail", str(error))]
        vendor = make_wrapper(self.alias).vendor
        return [
            *found,
            Check("table", "ok", f"interlock_claim of {self.alias!r} ({vendor}); swept {swept} old records"),
        ]

    def close(self) -> None:
        """Close the connections and end the worker threads; safe to repeat."""
        self._server.close()
        self.register.close()

    async def aclose(self) -> None:
        """Close, without blocking the loop."""
        with ThreadPoolExecutor(1, "interlock-close") as one:
            try:
                closing = asyncio.get_running_loop().run_in_executor(one, self.close)
            except RuntimeError:  # the interpreter ends
                _without_loop(self.close)
            else:
                await closing


def _result(entered: Entered, wait: bool) -> EnterResult:
    if entered.state == "using":
        return EnterResult("using", entered.fence or 0)
    if entered.state == "pending":
        return EnterResult("pending", 0, Lines.poll)
    return OCCUPIED if wait else REFUSED


def _take(message: TableStep, future: "Future[Any]") -> None:
    """Take a step, unless that was called off."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = message.take()
    except BaseException as error:
        future.set_exception(error)
        del future  # the error holds this frame
    else:
        future.set_result(result)


def _without_loop(call: Callable[..., None], *args: Any) -> None:
    """Make a call in this thread, as if it had no event loop: Django does not ask a database where one runs."""
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        call(*args)
    finally:
        asyncio._set_running_loop(loop)


class StepServer:
    """Performs steps: in the calling thread, or for tasks in worker threads of its own."""

    def __init__(self) -> None:
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._workers: ThreadPoolExecutor | None = None
        self._mutex = threading.Lock()
        self._closed = False

    def ask(self, message: TableStep) -> Any:
        """Take the step here; Django does not ask a database in a thread with an event loop, so then in a worker."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return message.take()
        future: Future[Any] = Future()
        interrupt: BaseException | None = None
        try:
            self._submit(message, future)
        except StoreError:
            raise
        except BaseException as error:
            interrupt = error
            future.cancel()
        while not future.done():
            try:
                wait((future,))
            except BaseException as error:  # what is on its way must not come after the step that takes it back
                interrupt = error
                if not message.undoes:
                    future.cancel()  # unless it has begun
        if interrupt is not None:
            raise interrupt
        return future.result()

    async def aask(self, message: TableStep) -> Any:
        """Take the step in a worker; a cancelled caller waits until it is over, so that nothing comes after it."""
        future: Future[Any] = Future()
        self._submit(message, future)
        done = asyncio.wrap_future(future)
        cancelled: asyncio.CancelledError | None = None
        while not done.done():
            try:
                await asyncio.wait((done,))
            except asyncio.CancelledError as error:
                cancelled = error
                if not message.undoes:
                    future.cancel()  # unless it has begun
        if cancelled is not None:
            if not done.cancelled():
                done.exception()
            raise cancelled
        return done.result()

    def _submit(self, message: TableStep, future: "Future[Any]") -> None:
        try:
            self._executor().submit(_take, message, future)
        except RuntimeError as error:
            if "shutdown" in str(error):  # the interpreter ends: no thread can be had any more
                return _without_loop(_take, message, future)
            # The pool keeps it: if it comes to have a thread, this step is taken, and after it the one that takes
            # the claim out again.
            raise StoreError(f"no thread can be started to ask the database: {error}") from error

    def close(self) -> None:
        """End the workers after their last step."""
        with self._mutex:
            workers, self._workers, self._closed = self._workers, None, True
        if workers is not None and self._pid == os.getpid():
            workers.shutdown()

    def _executor(self) -> ThreadPoolExecutor:
        if self._pid != os.getpid():
            self._start_afresh()  # a forked child has none of its parent's threads
        workers = self._workers
        if workers is None:
            with self._mutex:
                if self._closed:
                    raise StoreError("this connection was closed: connect again")
                workers = self._workers = self._workers or ThreadPoolExecutor(WORKERS, "interlock-orm")
        return workers
