"""A worker process with asyncio tasks, whose event loops end and start again."""

import asyncio
import random
from contextlib import closing, suppress
from typing import Any

from interlock.core.errors import LockLost, LockTimeout, NotHeld
from tests.torture.operations import FailedRun, Operation
from tests.torture.plan import Choice
from tests.torture.protected_resource import Reader
from tests.torture.threadworker import AFTER_ERROR, Worker, patiently


class TaskWorker(Worker):
    """A worker process with tasks; its event loop runs in the main thread."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.locks = self.connect(self.plan.aconnect)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._again = asyncio.Event()
        self._working: list[asyncio.Task[None]] = []
        self._random = random.Random(f"{self.seed}:orders")
        self.orders |= {
            "close": self._soon(self._close),
            "cancel": self._soon(self._cancel),
            "loop": self._soon(self._end),
        }

    def work(self) -> None:
        """As `Worker.work`."""
        while not self.stopped.is_set():
            with suppress(KeyboardInterrupt):
                asyncio.run(self._live())
        self._working.clear()  # a task that was cancelled keeps its frames, and so the connections that they had
        patiently(lambda: asyncio.run(self.locks.close()))

    async def _live(self) -> None:
        """Work in one event loop, until it must end; `asyncio.run` cancels the tasks that still wait."""
        self._loop, self._again = asyncio.get_running_loop(), asyncio.Event()
        self._working = [asyncio.create_task(self._slot(slot)) for slot in range(self.plan.threads)]
        while not self.stopped.is_set() and not self._again.is_set():
            await asyncio.wait([*self._working], timeout=0.05)
            for slot, task in enumerate(self._working):
                if task.done() and not self.stopped.is_set():
                    if not task.cancelled():
                        task.result()
                    self._working[slot] = asyncio.create_task(self._slot(slot))
        if not self._again.is_set():
            await asyncio.wait(self._working)

    async def _slot(self, slot: int) -> None:
        randomly = random.Random(f"{self.seed}:{slot}:{self._random.random()}")
        with closing(Reader(self.shelf)) as reader:
            while not self.stopped.is_set():
                await self._operate(randomly, reader)

    async def _operate(self, randomly: random.Random, reader: Reader) -> None:
        choice, token = self.draw(randomly)
        operation = Operation(self.history, choice)
        try:
            await self._perform(choice, token, operation, reader)
            operation.say("freed")
        except LockTimeout:
            operation.say("fail")
        except (LockLost, NotHeld):  # `close` has released it
            operation.say("lost")
        except FailedRun:
            operation.say("freed")
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
            operation.broke(error)
            raise
        except Exception as error:
            operation.broke(error)
            await asyncio.sleep(AFTER_ERROR)

    async def _perform(self, choice: Choice, token: str, operation: Operation, reader: Reader) -> None:
        locks, name = self.locks, choice.names[0]
        if choice.kind == "evict":
            for view in (await locks.claims(name))[-1:]:
                operation.evicted(view)
                await locks.evict(name, view.id)
            return
        async with (await locks.attach(token)) if token else choice.lock(locks) as grant:
            if choice.kind == "once" and not grant.due:
                operation.say("skipped")
                return
            for seconds in operation.body(grant.grant if choice.kind == "once" else grant, reader):
                await asyncio.sleep(seconds)
            if choice.kind == "once" and choice.fails:
                raise FailedRun
            if choice.kind == "write" and choice.fails and "token" in self.plan.kinds:
                reading = operation.downgraded()
                await grant.downgrade()
                for seconds in reading.body(grant, reader):
                    await asyncio.sleep(seconds)
                reading.say("freed")
            if choice.kind == "token":
                self.board.put(name, await grant.detach())
            if token and choice.fails:
                await locks.release(token)  # it is used up, so nothing may happen
        if choice.kind == "once":
            operation.say("done")

    def _soon(self, function: Any) -> Any:
        def order() -> None:
            if self._loop is not None:
                with suppress(RuntimeError):  # the loop was closed, and the next one has not started
                    self._loop.call_soon_threadsafe(function)

        return order

    def _close(self) -> None:
        closing, self.locks = self.locks, self.connect(self.plan.aconnect)
        self._closing = asyncio.create_task(closing.close())

    def _cancel(self) -> None:
        self._random.choice(self._working).cancel()

    def _end(self) -> None:
        self._again.set()
