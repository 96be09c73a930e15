"""FastAPI or Starlette: one connection a process, locks as 409, 422, 423 and 503, and one leader among many workers.

    INTERLOCK_URL=redis://localhost uvicorn examples.recipes.web:app --workers 4

FastAPI is Starlette: `Starlette(lifespan=lifespan)` and `add_exception_handler` take the same functions.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse

import interlock

locks = interlock.aconnect(namespace="shop")  # it connects at its first use, in the event loop that serves requests
stock = {"pen": 3}
state: dict[str, Any] = {"leader": False, "reports": 0, "orders": 0, "events": 0}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Be a candidate while the process serves; at the end let the leader go first, then close."""
    async with locks:
        election = locks.election("leader", ttl=10)
        leader = asyncio.create_task(election.run(lead))
        yield
        await election.stop(timeout=5)  # also while the store is unavailable: then its lease ends
        await asyncio.gather(leader, return_exceptions=True)


async def lead(election: interlock.AsyncElection) -> None:
    """Do the periodic work; it is cancelled if the lead is lost, and begins again after an exception."""
    state["leader"] = True
    try:
        while True:
            state["reports"] += 1  # pass election.term to each resource that this work writes
            await asyncio.sleep(1)
    finally:
        state["leader"] = False


def answer(status: int, detail: str, seconds: str = "1") -> Any:
    """Return an exception handler that sends this status."""

    async def handler(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": detail}, status, headers={"Retry-After": seconds})

    return handler


app = FastAPI(lifespan=lifespan)
app.add_exception_handler(interlock.LockTimeout, answer(423, "another request is in progress"))
app.add_exception_handler(interlock.PayloadMismatch, answer(422, "repeat the first request, or use a new key"))
app.add_exception_handler(interlock.LockLost, answer(503, "try again", "5"))  # the body did not finish
app.add_exception_handler(interlock.StoreError, answer(503, "try again", "5"))


@app.post("/buy/{item}")
async def buy(item: str) -> dict[str, int]:
    """Take one from the stock: no other request comes between the read and the write; else 423 after 2 s."""
    async with locks.lock(f"stock:{item}", timeout=2):
        left = stock[item]
        await asyncio.sleep(0.01)  # the database, the payment
        stock[item] = left - 1
    return {"left": stock[item]}


async def alone(user: str) -> AsyncIterator[interlock.AsyncGrant]:
    """Hold the lock of the user while the view runs: of two clicks, the second gets 423."""
    async with locks.lock(f"user:{user}", timeout=0) as grant:
        yield grant


@app.post("/users/{user}/checkout")
async def checkout(user: str, grant: Annotated[interlock.AsyncGrant, Depends(alone)]) -> dict[str, int]:
    """Change what belongs to one user; the database can refuse a late writer by the fence."""
    return {"fence": grant.fence}


@contextmanager
def in_progress() -> Iterator[None]:
    """Answer 409 if the same request is in progress elsewhere."""
    try:
        yield
    except interlock.LockTimeout:
        raise HTTPException(409, "the first request is still in progress") from None


async def place(order: dict[str, int]) -> dict[str, int]:
    """Place an order: the work that a repeated request must not do again."""
    state["orders"] += 1
    return {"ordered": sum(order.values())}


@app.post("/orders")
async def order(order: dict[str, int], idempotency_key: Annotated[str, Header()] = "") -> dict[str, int]:
    """Place an order once for each key: a repeated request gets the first answer, a changed one 422."""
    if not 1 <= len(idempotency_key) <= 100:
        raise HTTPException(400, "send an Idempotency-Key of at most 100 characters")
    with in_progress():
        return await locks.once(f"order:{idempotency_key}", keep=86400, payload=order, on_busy="raise").run(
            place, order
        )


@locks.once("webhook:{event_id}", keep=86400, payload=lambda event_id, event: event, on_busy="raise")
async def handle(event_id: str, event: dict[str, Any]) -> dict[str, int]:
    """Do the work of an event; in the first day, a second call returns the result of the first."""
    state["events"] += 1
    return {"events": state["events"]}


@app.post("/webhook")
async def webhook(event: dict[str, Any]) -> Any:
    """Handle each event once, however often it is delivered."""
    with in_progress():
        return await handle(str(event["id"]), event)


@app.get("/export")
async def export() -> StreamingResponse:
    """Stream under a lock: an async generator releases it when the client leaves; a sync one can keep it."""
    return StreamingResponse(lines())


async def lines() -> AsyncIterator[str]:
    """Yield the lines of an export, which one client at a time can read."""
    async with locks.lock("export", timeout=2):
        for number in range(10_000):
            yield f"{number}\n"
            await asyncio.sleep(0.1)


@app.get("/health")
async def health() -> dict[str, Any]:
    """Show which worker leads."""
    return state
