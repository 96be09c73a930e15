"""One subscription for all waiters: a background task receives and dispatches messages.

A store gives a function `subscribe(deadline)`, which connects and returns when the server has confirmed the
subscription (see `AsyncSubscription`).  After silence the listener pings the server.  A lost subscription is renewed
with growing pauses; then all waiters poll, because messages may have been missed.
"""

import copy
from collections.abc import Callable
from typing import Protocol

from interlock.core.errors import StoreError
from interlock.core.failures import NoAnswer, closed, no_answer
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.runtime.waiters import Waiters

SILENCE = 2.0  # seconds without a message while there are waiters; then the server is asked to confirm
IDLE_LIMIT = 60.0  # seconds without a waiter, after which the subscription ends
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two attempts to subscribe


class AsyncSubscription(Protocol):
    """A connection that receives messages; except for `close`, only one task uses it."""

    async def receive(self, deadline: float) -> list[str]:
        """Return the received messages for `Waiters.dispatch`; empty for a reply to `confirm`.

        Raises:
            NoAnswer: nothing came until the deadline; the call can be repeated.
            StoreError: the subscription ended.
        """

    async def confirm(self, deadline: float) -> None:
        """Request a reply, preferably by subscribing again, which repairs a forgotten subscription."""

    def close(self) -> None:
        """End the subscription, and a waiting `receive`; from any thread, without waiting."""


class AsyncListener:
    """The subscription of one process or event loop.

    Args:
        subscribe: connects and subscribes.
        waiters: the waiters to notify.
        where: the server, for messages.
        io_timeout: seconds to wait for a reply.

    Attributes:
        live: True while messages are received.
    """

    def __init__(
        self,
        subscribe: Callable[[float], rt.Result[AsyncSubscription]],
        waiters: Waiters,
        where: str,
        io_timeout: float,
    ) -> None:
        self._subscribe = subscribe
        self._waiters = waiters
        self._where = where
        self._io_timeout = io_timeout
        self._mutex = rt.Mutex()
        self._starting: list[rt.AsyncWaiter[StoreError]] = []
        self._runs = False
        self._subscription: AsyncSubscription | None = None
        self._used = 0.0
        self._closed = False
        self.live = False

    async def start(self, deadline: float) -> None:
        """Return when messages are received; a waiter registers before.

        Raises:
            StoreError: the subscription failed.
        """
        waiter: rt.AsyncWaiter[StoreError] = rt.AsyncWaiter()
        with self._mutex:
            if self._closed:
                raise closed()
            self._used = clock.now()
            if self.live:
                return
            self._starting.append(waiter)
            if not self._runs:
                self._runs = True
                if rt.start_background("interlock-listener", self._run) is None:
                    self._runs = False
                    raise StoreError("Cannot start a thread to wait for locks: the interpreter is exiting.")
        failure = await waiter.wait(deadline - clock.now())
        if failure is not None:
            raise copy.copy(failure) from failure.__cause__  # each caller raises its own copy
        if not self.live:
            raise closed() if self._closed else no_answer(self._where, self._io_timeout)

    async def _run(self) -> None:
        pause = SHORTEST_PAUSE
        try:
            while not (self._closed and self._has_ended()):
                began = clock.now()
                try:
                    await self._listen()
                    return
                except StoreError as error:
                    self._started(error)
                if self._has_ended():
                    return
                if clock.now() - began > SILENCE:
                    pause = SHORTEST_PAUSE
                await rt.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            self._started(closed())
        except BaseException:
            self._started(StoreError("The subscription was interrupted."))
            self._runs = False
            raise

    def _has_ended(self) -> bool:
        """Return True if the subscription is unused; the next waiter starts it again."""
        with self._mutex:
            # In this order, because a waiter registers first, and then reads the flag.
            live, self.live = self.live, False
            unused = not self._waiters and not self._starting and clock.now() - self._used >= IDLE_LIMIT
            if self._closed or unused:
                self._runs = False
                return True
            self.live = live
            return False

    def _started(self, error: StoreError | None = None) -> None:
        """Notify the callers of `start` of the subscription, or of its failure."""
        with self._mutex:
            self.live = error is None and not self._closed
            starting, self._starting = self._starting, []
        for each in starting:
            each.wake(error)

    async def _listen(self) -> None:
        """Subscribe, and receive until the subscription is unused.

        Raises:
            StoreError: the subscription ended early.
        """
        subscription = await self._subscribe(clock.now() + self._io_timeout)
        try:
            self._subscription = subscription
            self._started()
            self._waiters.wake_all()
            await self._receive(subscription)
        finally:
            self._subscription = None
            subscription.close()

    async def _receive(self, subscription: AsyncSubscription) -> None:
        asked = False
        while not (self._closed and self._has_ended()):
            try:
                messages = await subscription.receive(clock.now() + SILENCE)
            except NoAnswer:
                if asked:
                    raise
                if self._waiters:
                    asked = True
                    await subscription.confirm(clock.now() + self._io_timeout)
                elif self._has_ended():
                    return
                continue
            asked = False
            for message in messages:
                self._waiters.dispatch(message)

    def resubscribe(self) -> None:
        """Subscribe again, because another server may have replaced the present server."""
        self.live = False
        subscription = self._subscription
        if subscription is not None:
            subscription.close()

    def close(self) -> None:
        """End the subscription without waiting."""
        self._closed = True
        self.resubscribe()
