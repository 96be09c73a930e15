"""The number of our calls and modules between `with lock:` and the socket, for a developer with a debugger."""

import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import interlock
from interlock.testing import actors
from interlock.testing.store_fixture import TASKS, THREADS, ContractWorld
from interlock.testing.waiting import eventually
from tests.support.stores import ROWS

OURS = str(Path(interlock.__file__).parent)
LIMITS = {  # calls, modules
    ("valkey", THREADS): (60, 18),
    ("valkey", TASKS): (99, 19),
    ("postgresql", THREADS): (60, 16),
    ("postgresql", TASKS): (98, 17),
}
"""The present numbers; the goals are 70 calls on Redis, 140 on PostgreSQL, and 14 modules."""


@pytest.mark.parametrize(("store", "sync_or_async"), LIMITS, ids=["-".join(each) for each in LIMITS])
def test_a_contended_acquire_crosses_few_calls_and_modules(store: str, sync_or_async: str, tmp_path: Path) -> None:
    (row,) = (row for row in ROWS if row.name == store)
    place = row.place(tmp_path)
    calls: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(OURS) and file != actors.__file__:
            calls.append(file)

    def count(how: Any) -> Any:
        async def in_task() -> None:
            sys.setprofile(how)

        return in_task if sync_or_async == TASKS else lambda: sys.setprofile(how)

    with closing(ContractWorld(place, THREADS)) as world, closing(ContractWorld(place, sync_or_async)) as other:
        ann, bob = world.actor(), other.actor()
        lock, waits_for = world.connect().lock("a"), other.connect().lock("a")
        for _ in range(2):  # at first it connects
            held = ann.do(lock.acquire)
            bob.do(count(note))
            calls.clear()
            waiting = bob.start(waits_for.acquire)
            eventually(lambda: len(world.eye.claims("a")) == 2)
            ann.do(held.release)
            grant = waiting.result(30)
            bob.do(count(None))
            bob.do(grant.release)
    print(*sorted(Counter(calls).items()), sep="\n")
    most_calls, most_modules = LIMITS[store, sync_or_async]
    assert len(calls) <= most_calls
    assert len(set(calls)) <= most_modules
