"""Two processes pass one lock on files to each other.

Measured from just before `release()` in one process to the return of `acquire()` in the other; both have the same
monotonic clock. The waiter certainly waits: it sends a message before it calls acquire, and the holder then works for
some milliseconds. These differ from turn to turn, spread evenly over the poll interval of a contestant that polls, so
that the polls are not synchronized with the releases.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Protocol

from bench.contestants import locks, needs
from bench.contestants.locks import AsyncLock, Flock, Lock
from bench.figures import percentile
from bench.model import Beside, Contestant, Metric, Place, Raw, Scenario, Seat, Target

SETTLE = 0.005  # the least seconds of work before a release: a waiter that gets woken is asleep by then
GOLDEN = (5**0.5 - 1) / 2
SPREAD = 0.010  # seconds over which the work is spread at least
READY, GO_ON, STOP = b"ready", b"go on", b"stop"

Player = Callable[[Seat, Connection, float], Raw]
"""Plays one side, given its seat, the pipe to the other side and the interval of its polls in seconds."""


class Colour(Protocol):
    """A lock and its surroundings, sync or asyncio, so that the code is written once."""

    async def acquire(self) -> object: ...
    async def release(self) -> object: ...
    async def work(self, seconds: float) -> object: ...
    async def hear(self) -> bytes: ...


class Blocking:
    """A blocking lock, without an event loop."""

    def __init__(self, lock: Lock, other: Connection) -> None:
        self._lock, self._other = lock, other

    async def acquire(self) -> object:
        return self._lock.acquire()

    async def release(self) -> object:
        return self._lock.release()

    async def work(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no loop runs here

    async def hear(self) -> bytes:
        return self._other.recv_bytes()


class Awaiting:
    """An async lock; the event loop stays free while this process works or waits for a message."""

    def __init__(self, lock: AsyncLock, other: Connection) -> None:
        self._lock, self._other = lock, other

    async def acquire(self) -> object:
        return await self._lock.acquire()

    async def release(self) -> object:
        return await self._lock.release()

    async def work(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def hear(self) -> bytes:
        return await asyncio.to_thread(self._other.recv_bytes)


def driven(game: Coroutine[Any, Any, Raw]) -> Raw:
    """Run a coroutine that never suspends."""
    try:
        game.send(None)
    except StopIteration as end:
        raw: Raw = end.value
        return raw
    raise RuntimeError("a lock that should block was waiting for an event loop")


async def play(colour: Colour, seat: Seat, other: Connection, poll: float) -> Raw:
    """Take turns until the time is up; return the times of release and of acquire, by number of turn.

    The new holder sends a message to the other side; the other side answers that it is about to wait; the holder
    works and releases. Worker 0 has the even turns, worker 1 the odd ones.
    """
    times: Raw = {}
    turn = seat.index
    end = time.monotonic() + seat.seconds
    if seat.index:
        await colour.hear()
        other.send_bytes(READY)
    while True:
        await colour.acquire()
        times[f"had {turn}"] = time.monotonic()
        stop = times[f"had {turn}"] > end and turn > 2
        other.send_bytes(STOP if stop else GO_ON)
        if not stop:
            await colour.hear()  # READY
            await colour.work(SETTLE + spread_evenly(turn, seat.round) * max(SPREAD, poll))
            times[f"left {turn}"] = time.monotonic()
        await colour.release()
        if stop or await colour.hear() == STOP:
            return times
        other.send_bytes(READY)
        turn += 2


def spread_evenly(turn: int, round_number: int) -> float:
    """A number from 0 to 1 for each turn, spread evenly for any number of turns."""
    return (turn + 97 * round_number) * GOLDEN % 1.0


def blocking(make: Callable[[Place], Lock]) -> Callable[[Place], Player]:
    """Play with a blocking lock."""

    def build(place: Place) -> Player:
        lock = make(place)
        lock.acquire()
        lock.release()

        def player(seat: Seat, other: Connection, poll: float) -> Raw:
            seat.together.wait()
            return driven(play(Blocking(lock, other), seat, other, poll))

        return player

    return build


def awaiting(make: Callable[[Place], AsyncLock]) -> Callable[[Place], Player]:
    """Play with an async lock."""

    async def game(place: Place, seat: Seat, other: Connection, poll: float) -> Raw:
        lock = make(place)
        await lock.acquire()
        await lock.release()
        seat.together.wait()
        return await play(Awaiting(lock, other), seat, other, poll)

    return lambda place: lambda seat, other, poll: asyncio.run(game(place, seat, other, poll))


def work(contestant: Contestant[Player], seat: Seat) -> Raw:
    """Play one side of the game."""
    assert seat.other is not None
    return contestant.make(seat.place)(seat, seat.other, contestant.poll)


def fold(raws: Sequence[Raw]) -> Raw:
    """Combine both sides: from each release to the next acquire, in microseconds."""
    times = raws[0] | raws[1]
    turns = [int(key.removeprefix("left ")) for key in times if key.startswith("left ")]
    passed = [(times[f"had {turn + 1}"] - times[f"left {turn}"]) * 1e6 for turn in turns]
    percents = {f"p{percent}": percentile(passed, percent) for percent in (5, 95, 99)}
    return {"us": median(passed), **percents, "count": float(len(passed))}


METRICS = (
    Metric("us", "median µs"),
    Metric("p5", "p5 µs"),
    Metric("p95", "p95 µs"),
    Metric("p99", "p99 µs"),
    Metric("count", "hand-overs", "-", "sum"),
)
OURS = (
    Contestant("interlock", blocking(locks.interlock_file), needs.interlock, "ours"),
    Contestant("interlock asyncio", awaiting(locks.interlock_file_async), needs.interlock, "ours"),
)
PEERS = (
    Contestant(
        "filelock",
        blocking(locks.filelock_lock),
        needs.module("filelock"),
        notes="looks every 50 ms",
        poll=0.05,
    ),
    Contestant(
        "fasteners",
        blocking(locks.fasteners_lock),
        needs.module("fasteners"),
        notes="looks every 10 to 100 ms",
        poll=0.1,
    ),
    Contestant(
        "portalocker",
        blocking(locks.portalocker_lock),
        needs.module("portalocker"),
        notes="looks every 250 ms",
        poll=0.25,
    ),
)
LIMITS = (Contestant("blocking flock", blocking(Flock), role="limit", notes="on an open file"),)

SCENARIO: Scenario[Player] = Scenario(
    key="handover",
    title="Hand-over to a waiting process on files",
    groups=frozenset({"files"}),
    contestants=(*OURS, *PEERS, *LIMITS),
    metrics=METRICS,
    work=work,
    fold=fold,
    workers=2,
    beside=(Beside("filelock"), Beside("fasteners"), Beside("blocking flock")),
    targets=tuple(Target("median at most 250 µs", one.name, "us", 250.0) for one in OURS),
)
