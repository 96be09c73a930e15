"""A lock for threads around an `await`: the loop would wait for itself."""

from tests.field.conftest import Run

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


def test_a_loop_that_waits_for_its_own_thread_is_told_of_aconnect(url: str, run: Run) -> None:
    assert run(PLAY, url).splitlines() == ["[None, True]", "None", "True"]
