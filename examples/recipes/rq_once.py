"""RQ: the same jobs.  A worker forks for each job, and what a killed job held is free when its lease ends.

INTERLOCK_URL=redis://localhost rq worker shop        # in one shell, or ten
python -c "from examples.recipes.rq_once import *; queue().enqueue(report, '2026-11')"
"""

import os

from redis import Redis
from rq import Queue, get_current_job

import interlock
from examples.recipes.celery_once import work

locks = interlock.connect(namespace="shop")


def queue() -> Queue:
    """Return the queue of this shop."""
    return Queue("shop", connection=Redis.from_url(os.environ.get("BROKER", "redis://localhost")))


@locks.guard("report:{month}", on_busy="skip")
def report(month: str) -> str:
    """Skip while another worker makes this report."""
    job = get_current_job()
    return work(f"report {month} as {job.id if job else 'no job'}")
