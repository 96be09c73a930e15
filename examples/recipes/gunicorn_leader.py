"""Settings of gunicorn: a thread in each worker is a candidate, and the leader's thread works.

    INTERLOCK_URL=redis://localhost gunicorn -c examples/recipes/gunicorn_leader.py --workers 4 shop:app

If a worker ends, the next candidate leads immediately; if it is killed, after its lease (on files immediately).
"""

import os
import threading
import time
from typing import Any

import interlock

candidates: list[interlock.Election] = []


def work(election: interlock.Election) -> None:
    """Do the periodic work for as long as this worker leads."""
    while election.leading:
        with open(os.environ["LEDGER"], "a") as ledger:  # pass election.term to what this work writes
            print(os.getpid(), file=ledger)
        time.sleep(0.2)


def post_worker_init(worker: Any) -> None:
    """Start a candidate in each worker: after the fork, so that `preload_app` makes no difference."""
    election = interlock.connect().election("periodic", ttl=10)
    threading.Thread(target=election.run, args=(work,), name="periodic", daemon=True).start()
    candidates.append(election)


def worker_exit(server: Any, worker: Any) -> None:
    """Stop the candidate: the next one leads."""
    for election in candidates:
        election.stop(timeout=5)
