"""A worker process: `python -m tests.torture.worker`; the first line of its input is its configuration as JSON."""

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

LAG = 0.25  # seconds; shorter lags are not recorded
STAY = re.compile("interlock-blocking_[0-9]+|interlock-advisory|interlock-lingers")
"""Threads that a process keeps: for blocking calls, and for actions with a deadline."""
LINGER = 6.0  # seconds; a connection to PostgreSQL whose request had no reply stays open for five


def measure_lag(history: History) -> None:
    """Record when this process did not run."""
    last = time.monotonic()
    while True:
        time.sleep(LAG / 4)
        now = time.monotonic()
        if now - last > LAG:
            history.write("lag", now, since=last)
        last = now


def obey(worker: Worker) -> None:
    """Follow the orders of the coordinator, until the order to end or the coordinator's death."""
    rest = b""
    while part := os.read(0, 4096):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            with suppress(StoreError):  # a close that can't release all claims raises, and the leases expire
                worker.orders.get(line.decode(), lambda: None)()
    worker.stopped.set()


def opened() -> dict[str, str]:
    """Return the open descriptors with their files; none if the system does not show them."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):  # the descriptor of the listing is closed already
            found[descriptor] = os.readlink(f"/proc/self/fd/{descriptor}")
    return found


def left_over(before: dict[str, str], deadline: float) -> dict[str, Any]:
    """Return the descriptors and threads that did not exist before, after waiting for those that end.

    Args:
        before: the descriptors before.
        deadline: until when to wait, by the monotonic clock.
    """
    mine = {threading.main_thread().name, "obey", "lag"}
    while True:
        names = [thread.name for thread in threading.enumerate()]
        threads = [name for name in names if name not in mine and not STAY.fullmatch(name)]
        more = [what for descriptor, what in opened().items() if descriptor not in before]
        if (not more and not threads) or time.monotonic() > deadline:
            return {"descriptors": more, "threads": threads}
        gc.collect()  # unreachable objects are no leak
        time.sleep(0.02)


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit like a program that gets SIGTERM, while its other threads, which are daemons, still work."""
    raise SystemExit(128 + number)


def main() -> None:
    """Run a worker, as configured by the first line of the input."""
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
