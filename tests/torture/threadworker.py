"""A worker process with threads, and the base class of both kinds of workers."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from interlock.core.errors import LockLost, LockTimeout, NotHeld
from tests.torture.history import History
from tests.torture.operations import Board, FailedRun, Operation, listener
from tests.torture.plan import Choice, Plan, draw, loaded
from tests.torture.protected_resource import Reader

AFTER_ERROR = 0.02  # seconds of pause
CHILD_SECONDS = 60
JOIN_TIMEOUT = 60.0  # seconds; a thread that takes longer hangs, which the coordinator records


class Worker:
    """The base of the workers of both colours.

    Args:
        plan: the plan of the run.
        number: the number of the process; a replacement of a killed process has the same number.
        life: how many processes had this number before.
        history: the history to write to.
        shelf: the port of the shelf.
    """

    def __init__(self, plan: Plan, number: int, life: int, history: History, shelf: int) -> None:
        self.plan = plan
        self.history = history
        self.shelf = shelf
        self.seed = f"{plan.seed}:{number}:{life}"
        self._listens = random.Random(self.seed)
        self.stopped = threading.Event()
        self.board = Board(history)
        self.orders: dict[str, Callable[[], None]] = {"end": self.stopped.set}

    def draw(self, randomly: random.Random) -> tuple[Choice, str]:
        """Choose an operation; also the token to attach, if there is one."""
        choice, token = draw(self.plan, randomly), ""
        if choice.kind == "attach":
            name, token = self.board.take()
            choice = choice._replace(names=(name,), timeout=0.0) if token else choice._replace(kind="lock")
        return choice, token

    def connect(self, made_by: str) -> Any:
        """Return locks; half of the clients have a listener."""
        locks = loaded(made_by)(self.plan.store, namespace=self.plan.namespace, ttl=self.plan.ttl)
        if self._listens.random() < 0.5:
            locks.subscribe(listener(self.history))
        return locks

    def work(self) -> None:
        """Perform operations until the order to end; close everything."""
        raise NotImplementedError


class ThreadWorker(Worker):
    """A worker process with threads; the main thread is one of them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.locks = self.connect(self.plan.connect)
        self.orders |= {"close": self._close, "fork": self._fork}

    def work(self) -> None:
        """As `Worker.work`."""
        others = [
            threading.Thread(target=self._slot, args=(slot,), name=f"slot-{slot}", daemon=True)
            for slot in range(1, self.plan.threads)
        ]
        for thread in others:
            thread.start()
        patiently(lambda: self._slot(0))
        for thread in others:
            patiently(partial(thread.join, JOIN_TIMEOUT))
        patiently(self.locks.close)

    def _slot(self, slot: int) -> None:
        randomly = random.Random(f"{self.seed}:{slot}")
        reader = Reader(self.shelf)
        while not self.stopped.is_set():
            try:
                fine = self.operate(randomly, reader)
            except KeyboardInterrupt:  # the interrupt may have left half a request
                fine = False
            if not fine:
                reader.close()
                reader = Reader(self.shelf)
        reader.close()

    def operate(self, randomly: random.Random, reader: Reader) -> bool:
        """Perform one operation; False if it was cancelled or failed."""
        choice, token = self.draw(randomly)
        operation = Operation(self.history, choice)
        try:
            self._perform(choice, token, operation, reader)
            operation.say("freed")
        except LockTimeout:
            operation.say("fail")
        except (LockLost, NotHeld):  # `close` has released it
            operation.say("lost")
        except FailedRun:
            operation.say("freed")
        except (Exception, KeyboardInterrupt) as error:
            operation.broke(error)
            time.sleep(AFTER_ERROR)
            return False
        return True

    def _perform(self, choice: Choice, token: str, operation: Operation, reader: Reader) -> None:
        locks, name = self.locks, choice.names[0]
        if choice.kind == "evict":
            for view in locks.claims(name)[-1:]:
                operation.evicted(view)
                locks.evict(name, view.id)
            return
        with locks.attach(token) if token else choice.lock(locks) as grant:
            if choice.kind == "once" and not grant.due:
                operation.say("skipped")
                return
            for seconds in operation.body(grant.grant if choice.kind == "once" else grant, reader):
                time.sleep(seconds)
            if choice.kind == "once" and choice.fails:
                raise FailedRun
            if choice.kind == "write" and choice.fails and "token" in self.plan.kinds:
                reading = operation.downgraded()
                grant.downgrade()
                for seconds in reading.body(grant, reader):
                    time.sleep(seconds)
                reading.say("freed")
            if choice.kind == "token":
                self.board.put(name, grant.detach())
            if token and choice.fails:
                locks.release(token)  # it is used up, so nothing may happen
        if choice.kind == "once":
            operation.say("done")

    def _close(self) -> None:
        closing, self.locks = self.locks, self.connect(self.plan.connect)
        closing.close()

    def _fork(self) -> None:
        pid = os.fork()
        if pid == 0:
            signal.alarm(CHILD_SECONDS)  # ends the child if its parent is killed meanwhile
            try:
                self._live_as_child()
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            self.history.write("exit", of=f"{self.history.process}f{pid}", status=status, hung=True)

    def _live_as_child(self) -> None:
        self.history = History(self.history.path, f"{self.history.process}f{os.getpid()}")
        self.locks.subscribe(listener(self.history))
        randomly, reader = random.Random(f"{self.seed}:{os.getpid()}"), Reader(self.shelf)
        for _ in range(5):
            self.operate(randomly, reader)
        self.locks.close()


def patiently(function: Callable[[], object]) -> None:
    """Call a function until a call is not interrupted by Ctrl-C."""
    while True:
        try:
            function()
            return
        except KeyboardInterrupt:
            continue
