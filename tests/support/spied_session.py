"""A connection's session of either colour, whose store answers as a test says."""

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from interlock.client._sync.grants import Grant
from interlock.client.base import AcquireOptions
from interlock.client.events import Event
from interlock.core.acquire import AcquireCall
from interlock.core.claims import Claim, LockSpec
from interlock.core.queue import EnterResult
from interlock.locks.aio import session as of_tasks
from interlock.locks.sync import session as of_threads
from tests.support.spied_store import SpiedStore

NOW = 1e9
SPEC = LockSpec("\0door", ttl=30.0)
USING = EnterResult("using", 7)
WAITS = EnterResult("pending", 0, 1.0)


async def nothing(*_: object) -> None:
    """Take the end of a loop."""


class Colour:
    """A connection of threads or of tasks, with what it was asked and what it told.

    Attributes:
        entered: what `enter_now` was called with, after the claim.
        calls: of `acquire` for those who wait.
        answer: what that returns, or raises.
    """

    def __init__(self, tasks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks = tasks
        self.module: Any = of_tasks if tasks else of_threads
        self.store = SpiedStore()
        self.loop = asyncio.new_event_loop()
        if tasks:
            self.session: Any = of_tasks.Session("AsyncLocks", self.store, "", 30.0, nothing)
        else:
            self.session = of_threads.Session("Locks", self.store, "", 30.0, Grant)
        self.entered: list[tuple[Any, ...]] = []
        self.result: EnterResult | BaseException = USING
        self.calls: list[AcquireCall] = []
        self.answer: Any = None
        self.meanwhile: Callable[[Any], object] = lambda call: None
        self.told: list[str] = []
        self.now = NOW
        self.session.look_at_log = math.inf
        self.session.enter_now = self._enter_now
        monkeypatch.setattr(self.module, "acquire", self._acquire)
        monkeypatch.setattr(self.module, "monotonic", lambda: self.now)

    def _enter_now(self, claim: Claim, *how: Any) -> EnterResult:
        self.entered.append(how)
        assert list(self.session.entering) == [claim.id], "whoever closes must find it"
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def _acquire(self, store: Any, call: AcquireCall) -> Any:
        self.calls.append(call)
        assert self.session.entering[call.claim.id] is call
        self.meanwhile(call)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(call) if callable(self.answer) else self.answer
        yield

    def listen(self) -> None:
        """Note what is told from now on."""

        def told(event: Event) -> None:
            self.told.append(event.kind)

        self.session.listeners[told] = None

    def acquire(self, seconds: float | None = None, **options: Any) -> Any:
        """Acquire the door."""
        how = SPEC, AcquireOptions(**options), seconds, "ann"
        if self.tasks:
            return self.loop.run_until_complete(self.session.acquire(*how))
        return self.session.acquire(*how, threading.main_thread())

    @property
    def watched(self) -> list[Any]:
        """What is under watch."""
        if self.tasks:
            return [each for watchdog in self.session.watchdogs.values() for each in watchdog.grants]
        grants: list[Any] = self.session.watchdog.grants
        return grants

    def close(self) -> None:
        """End what the test began."""
        for watchdog in self.session.watchdogs.values() if self.tasks else [self.session.watchdog]:
            watchdog.stop()
        self.loop.close()
