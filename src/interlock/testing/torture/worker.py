"""A process of a run: `python -m interlock.testing.torture.worker`, told by a line of JSON what it is."""

import faulthandler
import gc
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from interlock.core.errors import LockLost, LockTimeout, StoreError
from interlock.testing.torture.history import History
from interlock.testing.torture.operations import Operation, listener
from interlock.testing.torture.plan import Plan, draw, loaded
from interlock.testing.torture.shelf import Reader

LAG = 0.25  # seconds; shorter ones are not told
AFTER_ERROR = 0.02  # seconds
CHILD_SECONDS = 60
PATIENCE = 60.0  # seconds; who waits longer hangs, and the coordinator says so


class Worker:
    """What a process of both colours has.

    Args:
        plan: of the run.
        number: of the process; one that replaces a killed one has the same.
        life: how many had it before.
        history: where to write.
        shelf: path of the socket of the shelf.
    """

    def __init__(self, plan: Plan, number: int, life: int, history: History, shelf: str) -> None:
        self.plan = plan
        self.history = history
        self.shelf = shelf
        self.seed = f"{plan.seed}:{number}:{life}"
        self._listens = random.Random(self.seed)
        self.stopped = threading.Event()
        self.orders: dict[str, Callable[[], None]] = {"end": self.stopped.set}

    def connect(self, made_by: str) -> Any:
        """Return locks; half of the connections have somebody who listens."""
        locks = loaded(made_by)(self.plan.store, namespace=self.plan.namespace, ttl=self.plan.ttl)
        if self._listens.random() < 0.5:
            locks.subscribe(listener(self.history))
        return locks

    def work(self) -> None:
        """Do operations until the end is ordered; leave nothing open."""
        raise NotImplementedError


class ThreadWorker(Worker):
    """A process of threads; its main thread is one of them."""

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
            patiently(partial(thread.join, PATIENCE))
        patiently(self.locks.close)

    def _slot(self, slot: int) -> None:
        randomly = random.Random(f"{self.seed}:{slot}")
        reader = Reader(self.shelf)
        while not self.stopped.is_set():
            try:
                fine = self.operate(randomly, reader)
            except KeyboardInterrupt:  # where it struck, it may have left half a request
                fine = False
            if not fine:
                reader.close()
                reader = Reader(self.shelf)
        reader.close()

    def operate(self, randomly: random.Random, reader: Reader) -> bool:
        """Do one operation; False if it was broken off."""
        choice = draw(self.plan, randomly)
        operation = Operation(self.history, choice)
        try:
            with choice.lock(self.locks) as grant:
                for seconds in operation.body(grant, reader):
                    time.sleep(seconds)
            operation.say("freed")
        except LockTimeout:
            operation.say("fail")
        except LockLost:
            operation.say("lost")
        except (Exception, KeyboardInterrupt) as error:
            operation.broke(error)
            time.sleep(AFTER_ERROR)
            return False
        return True

    def _close(self) -> None:
        closing, self.locks = self.locks, self.connect(self.plan.connect)
        closing.close()

    def _fork(self) -> None:
        pid = os.fork()
        if pid == 0:
            signal.alarm(CHILD_SECONDS)  # its parent may be killed meanwhile, and nobody else would end it
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
    """Call it until no Ctrl-C breaks it off."""
    while True:
        try:
            function()
            return
        except KeyboardInterrupt:
            continue


def measure_lag(history: History) -> None:
    """Note when this process did not run."""
    last = time.monotonic()
    while True:
        time.sleep(LAG / 4)
        now = time.monotonic()
        if now - last > LAG:
            history.write("lag", now, since=last)
        last = now


def obey(worker: Worker) -> None:
    """Do what the coordinator orders, until it orders the end or is gone."""
    rest = b""
    while part := os.read(0, 4096):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            with suppress(StoreError):  # a close that could not release all says so, and the leases end
                worker.orders.get(line.decode(), lambda: None)()
    worker.stopped.set()


def opened() -> dict[str, str]:
    """Return the descriptors that are open and what they are; none where that can't be seen."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):  # that of the listing
            found[descriptor] = os.readlink(f"/proc/self/fd/{descriptor}")
    return found


def left_over(before: dict[str, str], deadline: float) -> dict[str, Any]:
    """Return which descriptors and threads there are more than before, once those that end have ended.

    Args:
        before: the descriptors that there were.
        deadline: when to wait no longer for that; monotonic.
    """
    mine = {threading.main_thread().name, "obey", "lag"}
    while True:
        threads = [thread.name for thread in threading.enumerate() if thread.name not in mine]
        more = [what for descriptor, what in opened().items() if descriptor not in before]
        if (not more and not threads) or time.monotonic() > deadline:
            return {"descriptors": more, "threads": threads}
        gc.collect()  # what nobody can reach is no leak
        time.sleep(0.02)


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """End as a program does that is told to: other threads are daemons, and still work."""
    raise SystemExit(128 + number)


def main() -> None:
    """Be a worker; the first line of the input says which."""
    faulthandler.enable()
    signal.signal(signal.SIGTERM, leave)
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    told = json.loads(line)
    plan = Plan.from_json(told["plan"])
    sys.path[:0] = told["path"]
    history = History(told["history"], f"{told['number']}.{told['life']}")
    kind: type[Worker] = ThreadWorker
    if plan.of_tasks(told["number"]):
        from interlock.testing.torture.taskworker import TaskWorker

        kind = TaskWorker
    before = opened()
    worker = kind(plan, told["number"], told["life"], history, told["shelf"])
    history.write("start", colour=kind.__name__, pid=os.getpid())
    os.write(1, b"ready\n")
    threading.Thread(target=obey, args=(worker,), name="obey", daemon=True).start()
    threading.Thread(target=measure_lag, args=(history,), name="lag", daemon=True).start()
    worker.work()
    history.write("end", **left_over(before, time.monotonic() + plan.io))


if __name__ == "__main__":
    main()
