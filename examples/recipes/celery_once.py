"""Celery: a task that runs once at a time, and is skipped, repeated or waited for while it runs elsewhere.

    INTERLOCK_URL=redis://localhost celery -A examples.recipes.celery_once worker
"""

import os
import time
from functools import cache
from pathlib import Path
from typing import Any

from celery import Celery, Task

import interlock

app = Celery("shop", broker=os.environ.get("BROKER", "redis://localhost"), backend=os.environ.get("BROKER"))
TABLE = Path(os.environ.get("TABLE", "table"))


@cache
def locks() -> interlock.Locks:
    """Connect at the first task of a worker's process: prefork makes those by fork, and a child owns nothing."""
    return interlock.connect(namespace="shop")


@app.task
def report(month: str) -> str:
    """Skip if another worker makes this report just now: both would make the same one."""
    with locks().lock(f"report:{month}").acquire(timeout=0) or _skipped() as grant:
        return _made(month) if grant else "skipped"


@app.task(bind=True, max_retries=None)
def charge(self: Task[Any, Any], customer: str) -> str:
    """Come again later: a worker that waits for a lock does nothing else meanwhile."""
    grant = locks().lock(f"customer:{customer}", ttl=60).acquire(timeout=0)
    if grant is None:
        raise self.retry(countdown=0.2)
    with grant:
        return _made(customer)


class _skipped:
    """A `with` without a lock."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _made(what: str) -> str:
    with TABLE.open("a") as table:
        table.write(f"begin {what}\n")
        table.flush()
        time.sleep(0.3)
        table.write(f"end {what}\n")
    return "made"
