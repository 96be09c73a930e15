"""Settings of gunicorn: a thread in each worker stands for the lead, and in one of all workers it has work.

    INTERLOCK_URL=redis://localhost gunicorn -c examples/recipes/gunicorn_leader.py --workers 4 shop:app

A worker that ends lets the next one lead at once; of one that is killed the lease ends first, but on files.
"""

import os
import threading
import time
from typing import Any

import interlock

standing: list[interlock.Election] = []


def work(election: interlock.Election) -> None:
    """Do the periodic work for as long as this worker leads."""
    while election.leading:
        with open(os.environ["LEDGER"], "a") as ledger:  # what writes outside should hand on election.term
            print(os.getpid(), file=ledger)
        time.sleep(0.2)


def post_worker_init(worker: Any) -> None:
    """Stand for it in each worker: after the fork, so that `preload_app` makes no difference."""
    election = interlock.connect().election("periodic", ttl=10)
    threading.Thread(target=election.run, args=(work,), name="periodic", daemon=True).start()
    standing.append(election)


def worker_exit(server: Any, worker: Any) -> None:
    """Stand for it no more: the next one leads."""
    for election in standing:
        election.stop(timeout=5)
