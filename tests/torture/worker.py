"""A process of a run: `python -m tests.torture.worker`, told by a line of JSON what it is."""

import faulthandler
import gc
import json
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from interlock.core.errors import StoreError
from tests.torture.history import History
from tests.torture.plan import Plan
from tests.torture.threadworker import ThreadWorker, Worker

LAG = 0.25  # seconds; shorter ones are not told
STAY = re.compile("interlock-blocking_[0-9]+|interlock-advisory|interlock-lingers")
"""Threads of which a process keeps a few for good: for calls that block, and for what is to end in time."""
LINGER = 6.0  # seconds; a connection to PostgreSQL whose request had no answer stays open for five


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
        names = [thread.name for thread in threading.enumerate()]
        threads = [name for name in names if name not in mine and not STAY.fullmatch(name)]
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
    facts = json.loads(line)
    plan = Plan.from_json(facts["plan"])
    sys.path[:0] = facts["path"]
    history = History(facts["history"], f"{facts['number']}.{facts['life']}")
    kind: type[Worker] = ThreadWorker
    if plan.of_tasks(facts["number"]):
        from tests.torture.taskworker import TaskWorker

        kind = TaskWorker
    before = opened()
    worker = kind(plan, facts["number"], facts["life"], history, facts["shelf"])
    history.write("start", colour=kind.__name__, pid=os.getpid())
    os.write(1, b"ready\n")
    threading.Thread(target=obey, args=(worker,), name="obey", daemon=True).start()
    threading.Thread(target=measure_lag, args=(history,), name="lag", daemon=True).start()
    worker.work()
    history.write("end", **left_over(before, time.monotonic() + plan.io + LINGER))


if __name__ == "__main__":
    main()
