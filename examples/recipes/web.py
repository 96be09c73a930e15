"""FastAPI or Starlette: one connection a process, 423, 422 and 503 for locks, and one leader among many workers.

    INTERLOCK_URL=redis://localhost uvicorn examples.recipes.web:app --workers 4

FastAPI is Starlette: `Starlette(lifespan=lifespan)` and `add_exception_handler` take the same functions.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse

import interlock

stock = {"pen": 3}
state: dict[str, Any] = {"leader": False, "reports": 0, "orders": 0}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect when the event loop runs; at the end let the leader go first, then close."""
    async with interlock.aconnect(os.environ.get("INTERLOCK_URL"), namespace="shop") as locks:
        app.state.locks = locks
        election = locks.election("leader", ttl=10)
        leader = asyncio.create_task(election.run(lead))
        yield
        await election.stop(timeout=5)  # also while the store is away: then its lease ends
        await asyncio.gather(leader, return_exceptions=True)


async def lead(election: interlock.AsyncElection) -> None:
    """Do the periodic work; where the lead is lost this is cancelled, and after an exception it begins again."""
    state["leader"] = True
    try:
        while True:
            state["reports"] += 1  # what writes outside should hand on election.term
            await asyncio.sleep(1)
    finally:
        state["leader"] = False


async def busy(request: Request, error: Exception) -> JSONResponse:
    """Somebody else has it for longer than we want to wait."""
    return JSONResponse({"detail": "somebody else is at it"}, 423, headers={"Retry-After": "1"})


async def mismatch(request: Request, error: Exception) -> JSONResponse:
    """The client has used its key for another request."""
    return JSONResponse({"detail": "repeat the first request unchanged, or choose a new key"}, 422)


async def away(request: Request, error: Exception) -> JSONResponse:
    """The locks can't be reached, or this one was lost: the body did not finish."""
    return JSONResponse({"detail": "try again"}, 503, headers={"Retry-After": "5"})


app = FastAPI(lifespan=lifespan)
app.add_exception_handler(interlock.LockTimeout, busy)
app.add_exception_handler(interlock.PayloadMismatch, mismatch)
app.add_exception_handler(interlock.LockLost, away)
app.add_exception_handler(interlock.StoreError, away)


@app.post("/buy/{item}")
async def buy(item: str, request: Request) -> dict[str, int]:
    """Take one of the stock: read, think, write, and nobody else in between."""
    async with request.app.state.locks.lock(f"stock:{item}", timeout=2):
        left = stock[item]
        await asyncio.sleep(0.01)  # the database, the payment
        stock[item] = left - 1
    return {"left": stock[item]}


async def place(order: dict[str, int]) -> dict[str, int]:
    """Place an order: the work that a repeated request must not do again."""
    state["orders"] += 1
    return {"ordered": sum(order.values())}


@app.post("/orders")
async def order(
    order: dict[str, int], request: Request, idempotency_key: Annotated[str, Header()] = ""
) -> dict[str, int]:
    """Place an order once for each Idempotency-Key; a repeated request gets the first answer."""
    if not 1 <= len(idempotency_key) <= 100:
        raise HTTPException(400, "send an Idempotency-Key of at most 100 characters")
    locks: interlock.AsyncLocks = request.app.state.locks
    once = locks.once(f"order:{idempotency_key}", keep=86400, payload=order, on_busy="raise")
    try:
        return await once.run(place, order)
    except interlock.LockTimeout:
        raise HTTPException(409, "the first request is still in progress") from None


@app.get("/health")
async def health() -> dict[str, Any]:
    """Tell who leads."""
    return state
