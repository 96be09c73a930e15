"""APScheduler in a web application with several workers: the jobs run in one of them.

    INTERLOCK_URL=redis://localhost uvicorn examples.recipes.scheduler:app --workers 4

Each worker is a candidate as long as it serves; only the leader has a scheduler.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped,unused-ignore]
from fastapi import FastAPI

import interlock


def tick() -> None:
    """One run of the job."""
    with open(os.environ["LEDGER"], "a") as ledger:
        print(os.getpid(), file=ledger)


@contextmanager
def leader() -> Iterator[interlock.Election]:
    """Be a candidate in the background; the leader has a scheduler."""
    schedulers: list[BackgroundScheduler] = []

    def elected(election: interlock.Election) -> None:
        scheduler = BackgroundScheduler()
        scheduler.add_job(tick, "interval", seconds=0.2)
        scheduler.start()
        schedulers.append(scheduler)

    def deposed(election: interlock.Election) -> None:
        schedulers.pop().shutdown(wait=False)

    with (
        interlock.connect() as locks,
        locks.election("jobs", ttl=10, on_elected=elected, on_deposed=deposed) as election,
    ):
        yield election


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """In each worker."""
    with leader():
        yield


app = FastAPI(lifespan=lifespan)
