"""A lock for threads around an `await`, where the loop would deadlock; and a loop that is not asyncio's own."""

from pathlib import Path

import pytest

from tests.environments.conftest import Run
from tests.support.stores import PARTIAL_ROWS, ROWS, Row

PLAY = """
import asyncio, sys, threading
import interlock
locks = interlock.connect(sys.argv[1])
async def work():
    with locks.lock("x"):
        await asyncio.sleep(0.1)
async def main():
    found = await asyncio.gather(work(), work(), return_exceptions=True)
    print([each and "aconnect" in str(each) for each in found])
    with locks.lock("x"):  # no false alarm: one try, and another lock
        print(locks.lock("x").acquire(timeout=0))
    held = locks.lock("z").acquire()
    with locks.lock("another"):
        threading.Timer(0.3, held.release).start()
        print(bool(locks.lock("z").acquire(timeout=20)))  # a thread may release it: that is said and waited for
asyncio.run(main())
"""


def test_blocking_the_own_event_loop_is_refused_with_aconnect(url: str, run: Run) -> None:
    assert run(PLAY, url).splitlines() == ["[None, True]", "None", "True"]


REENTRY = """
import asyncio, sys
import interlock
locks = interlock.connect(sys.argv[1])
inside, most = [], []
async def work():
    with locks.rlock("x"), locks.rlock("x"):
        inside.append(1)
        most.append(len(inside))
        await asyncio.sleep(0.1)
        inside.pop()
async def main():
    found = await asyncio.gather(work(), work(), return_exceptions=True)
    return [each and "aconnect" in str(each) for each in found], max(most)
print(*asyncio.run(main()))
with locks.rlock("x") as outer:  # of no task: they are all within it
    async def within():
        with locks.rlock("x") as inner:
            return inner.fence == outer.fence
    print(asyncio.run(within()))
"""


def test_a_task_re_enters_no_hold_of_another_task_of_its_thread(url: str, run: Run) -> None:
    assert run(REENTRY, url).splitlines() == ["[None, True] 1", "True"]


COUNTS = """
import asyncio, sys
import interlock, uvloop
async def count(locks, box):
    for _ in range(10):
        async with locks.lock("x", timeout=60):
            seen = box[0]
            await asyncio.sleep(0)
            box[0] = seen + 1
async def main():
    box = [0]
    one, other = interlock.aconnect(sys.argv[1]), interlock.aconnect(sys.argv[1])
    await asyncio.gather(*(count(locks, box) for locks in (one, other) * 2))
    held = await one.lock("y").acquire()
    waits = asyncio.create_task(other.lock("y").acquire())
    await asyncio.sleep(0.1)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    assert await held.release()
    print(box, await one.claims())
    await other.close()
    await one.close()
uvloop.run(main())
"""


@pytest.mark.parametrize("row", [row for row in [*ROWS, *PARTIAL_ROWS] if row.schemes], ids=lambda row: row.name)
def test_the_loop_of_uvloop_is_one_as_any_other(row: Row, run: Run, tmp_path: Path) -> None:
    assert run(COUNTS, row.place(tmp_path).url or "memory://") == "[40] []"
