"""Work that is done once for all tasks of a loop that want it: who is cancelled, and what is."""

import asyncio
import gc
from typing import Any

import pytest

from interlock.runtime.shared import SharedWork, call_on


class Work:
    """Work that comes to its end when a test lets it.

    Attributes:
        begun: how often it was begun.
        began: set when it was.
        ends: set when it may end.
        failure: what it raises then.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.began = asyncio.Event()
        self.ends = asyncio.Event()
        self.failure: BaseException | None = None
        self.shared: SharedWork[int] = SharedWork(self._do, "work")

    async def _do(self) -> int:
        self.begun += 1
        self.began.set()
        number = self.begun
        await self.ends.wait()
        if self.failure is not None:
            raise self.failure
        return number


def test_it_is_done_once_for_all_who_want_it_meanwhile() -> None:
    async def story(work: Work) -> None:
        assert work.shared.underway() == []
        waiting = [asyncio.ensure_future(work.shared.done()) for _ in range(3)]
        await asyncio.sleep(0)
        (task,) = work.shared.underway()
        assert task.get_name() == "work"
        work.ends.set()
        assert await asyncio.gather(*waiting) == [1, 1, 1]
        assert (work.begun, work.shared.underway(), work.shared._tasks) == (1, [], {})
        assert await work.shared.done() == 2

    asyncio.run(story(Work()))


def test_who_is_cancelled_takes_nothing_from_the_others() -> None:
    async def story(work: Work) -> None:
        first, second = (asyncio.ensure_future(work.shared.done()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        work.ends.set()
        assert await second == 1

    asyncio.run(story(Work()))


def test_who_undoes_something_while_a_loop_ends_has_it_done_anew() -> None:
    """As `asyncio.run` does it: who was cancelled undoes something, and joins no work that is being cancelled."""

    async def story(work: Work) -> None:
        async def undoes() -> int:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return await asyncio.ensure_future(work.shared.done())
            raise AssertionError

        undoing = asyncio.ensure_future(undoes())
        work.shared.begin()
        await work.began.wait()
        for task in (undoing, *work.shared.underway()):
            task.cancel()
        work.ends.set()
        assert await undoing == 2

    asyncio.run(story(Work()))


def test_where_it_is_cancelled_it_is_done_anew() -> None:
    async def story(work: Work) -> None:
        waiting = asyncio.ensure_future(work.shared.done())
        await work.began.wait()
        work.ends.set()
        work.shared.cancel()
        assert await waiting == 2

    asyncio.run(story(Work()))


def test_its_failure_is_told_to_who_waits_and_to_nobody_else() -> None:
    async def story(work: Work) -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        work.failure = ValueError("bad")
        waiting = asyncio.ensure_future(work.shared.done())
        await asyncio.sleep(0)
        work.ends.set()
        with pytest.raises(ValueError, match="bad"):
            await waiting
        gone = asyncio.ensure_future(work.shared.done())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        del gone
        gc.collect()
        await asyncio.sleep(0)
        assert told == [], "also of what nobody waits for any more"

    asyncio.run(story(Work()))


def test_what_closed_loops_had_underway_is_forgotten_and_nothing_is_called_there() -> None:
    async def made() -> Work:
        work = Work()
        work.shared.begin()
        return work

    loop = asyncio.new_event_loop()
    work = loop.run_until_complete(made())
    (task,) = work.shared._tasks.values()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    work.shared.cancel()
    call_on(loop, pytest.fail)

    async def main() -> None:
        work.ends = asyncio.Event()
        work.ends.set()
        assert await work.shared.done() == work.begun

    asyncio.run(main())
    assert list(work.shared._tasks) == []
