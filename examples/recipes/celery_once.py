"""Celery: a task that is skipped, or retried later, while it runs elsewhere; and a task that is done once.

INTERLOCK_URL=redis://localhost BROKER=redis://localhost celery -A examples.recipes.celery_once worker
"""

import os
from pathlib import Path
from typing import Any

from celery import Celery, Task

import interlock

broker = os.environ.get("BROKER", "redis://localhost")
app = Celery("shop", broker=broker, backend=broker)
locks = interlock.connect(namespace="shop")  # one for each worker process, also for those that prefork makes
ledger = Path(os.environ.get("LEDGER", "ledger"))


@app.task
@locks.guard("report:{month}", on_busy="skip")
def report(month: str) -> str:
    """Skip while another worker makes this report: both would make the same one."""
    return work(f"report {month}")


@app.task(bind=True, max_retries=None)
def change(self: Task[Any, Any], customer: str) -> str:
    """Retry later: a worker that waits for a lock can do nothing else."""
    try:
        with locks.lock(f"customer:{customer}", timeout=0):
            return work(f"change {customer}")
    except interlock.LockTimeout as busy:
        raise self.retry(countdown=0.2) from busy


@app.task(acks_late=True)
def pay(order: str) -> str:
    """Pay once, even if the broker delivers twice: the lock orders the two runs, the record ends the second."""
    with locks.lock(f"order:{order}", timeout=60):
        if ledger.exists() and f"end pay {order}\n" in ledger.read_text():
            return "paid before"
        return work(f"pay {order}")


def work(what: str) -> str:
    """Write down when it begins and ends."""
    with ledger.open("a") as lines:
        print("begin", what, file=lines, flush=True)
        print("end", what, file=lines)
    return "done"
