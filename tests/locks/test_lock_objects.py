"""The lock objects of threads and of tasks: what they ask for, whose a grant is, and what an interrupt leaves."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import LockSpec
from interlock.core.errors import InvalidArgument, LockLost, LockTimeout, NotHeld
from interlock.locks.aio import locks as of_tasks
from interlock.locks.aio.session import Session as TaskSession
from interlock.locks.owners import Owned
from interlock.client.base import AcquireOptions
from interlock.locks.sync import locks as of_threads
from interlock.client._sync.grants import Grant
from interlock.locks.sync.session import Session as ThreadSession
from interlock.locks.unreleased import kept
from tests.support.spied_store import SpiedStore, away

Story = Callable[[], Coroutine[Any, Any, None]]


async def nothing(*_: object) -> None:
    """Take the end of a loop."""


async def done(answer: Any) -> Any:
    """Return what a method of either colour answers."""
    return await answer if isawaitable(answer) else answer


class Colour:
    """A connection of threads or of tasks.

    Attributes:
        asked: for how many seconds each acquire was to wait.
    """

    def __init__(self, tasks: bool) -> None:
        self.tasks = tasks
        self.store = SpiedStore()
        self.session: Any = (
            TaskSession("AsyncLocks", self.store, "", 30.0, nothing)
            if tasks
            else ThreadSession("Locks", self.store, "", 30.0, Grant)
        )
        self.asked: list[tuple[str, float | None]] = []
        self.meanwhile: Callable[[str], object] = lambda name: None
        self._acquires = self.session.acquire
        self.session.acquire = self._acquire

    def _acquire(self, spec: LockSpec, options: AcquireOptions, seconds: float | None, *who: Any) -> Any:
        name = spec.key.partition("\0")[2]
        self.asked.append((name, seconds))
        self.meanwhile(name)
        return self._acquires(spec, options, 0, *who)

    def lock(self, name: str = "a", kind: str = "Lock", **options: Any) -> Any:
        """Return a lock."""
        cls: Any = getattr(of_tasks, "Async" + kind) if self.tasks else getattr(of_threads, kind)
        return cls(self.session, LockSpec(f"\0{name}", ttl=30.0), AcquireOptions(**options))

    def all(self, *parts: Any, **options: Any) -> Any:
        """Return several locks as one."""
        cls: Any = of_tasks.AsyncAllLock if self.tasks else of_threads.AllLock
        return cls(self.session, parts, AcquireOptions(**options))

    def run(self, story: Story) -> None:
        """Run a story in one thread and task."""
        asyncio.run(story())

    async def enter(self, lock: Any) -> Any:
        """Enter a block, of which nothing is known but that."""
        return await lock.__aenter__() if self.tasks else lock.__enter__()

    async def leave(self, lock: Any, error: BaseException | None = None) -> Any:
        """Leave it, as `ExitStack` does."""
        about = type(error) if error else None, error, None
        return await type(lock).__aexit__(lock, *about) if self.tasks else type(lock).__exit__(lock, *about)

    async def elsewhere(self, work: Callable[[], Any]) -> Any:
        """Return what a function answers in another thread or task."""
        if self.tasks:
            return await asyncio.ensure_future(done(work()))
        answers: list[Any] = []

        def works() -> None:
            try:
                answers.append(work())
            except Exception as error:
                answers.append(error)

        thread = threading.Thread(target=works)
        thread.start()
        thread.join()
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]


@pytest.fixture(params=["threads", "tasks"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """Both colours."""
    colour = Colour(request.param == "tasks")
    yield colour
    if not colour.tasks:
        colour.session.watchdog.stop()
    kept.clear()


def test_a_lock_waits_as_long_as_it_is_told(colour: Colour) -> None:
    async def story() -> None:
        lock = colour.lock(timeout=7.0)
        for how in ({}, {"blocking": False}, {"timeout": 3.0}, {"timeout": None}, {"timeout": -1}):
            grant = await done(lock.acquire(**how))
            await done(grant.release())
        await colour.enter(lock)
        assert [seconds for _, seconds in colour.asked] == [7.0, 0, 3.0, None, None, 7.0]
        await colour.leave(lock)

    colour.run(story)


def test_a_lock_object_releases_what_the_caller_acquired_last(colour: Colour) -> None:
    async def story() -> None:
        lock = colour.lock()
        with pytest.raises(NotHeld, match="does not hold 'a' by this lock object"):
            await done(lock.release())
        assert lock.owned() is False
        grant = await done(lock.acquire())
        assert (lock.owned(), await done(lock.locked())) == (True, True)

        async def owned() -> bool:
            return bool(lock.owned())

        assert await colour.elsewhere(owned if colour.tasks else lock.owned) is False
        with pytest.raises(NotHeld):
            await colour.elsewhere(lock.release)
        assert await done(lock.acquire()) is None
        await done(lock.release())
        assert (grant.held, lock.owned(), await done(lock.locked()), lock._held) == (False, False, False, {})
        grant = await done(lock.acquire())
        grant._lose("it was evicted")
        assert lock.owned() is False
        with pytest.raises(NotHeld):
            await done(lock.release())
        assert lock._held == {}, "who was told so has nothing of it"

    colour.run(story)


def test_at_least_counts_from_when_it_was_acquired(colour: Colour) -> None:
    async def story() -> None:
        assert (await done(colour.lock("a").acquire())).id
        for name, some in (("b", 0.0), ("c", 9.0)):
            lock = colour.lock(name, at_least=some)
            assert ((await done(lock.acquire()))._free_at > 0.0) is (some > 0.0)
        lock = colour.all(colour.lock("d", at_least=9.0), colour.lock("e", at_least=1.0), at_least=9.0)
        first, second = await done(lock.acquire())
        assert first._free_at > second._free_at + 7.0, "each part has its own"

    colour.run(story)


@pytest.mark.parametrize("at", ["_keep", "_stay"])
def test_an_interrupt_after_a_lock_was_obtained_gives_it_back(
    colour: Colour, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise asyncio.CancelledError

    async def story() -> None:
        lock = colour.lock(at_least=0.0001)
        monkeypatch.setattr(Owned if at == "_keep" else type(lock), at, interrupted)
        with pytest.raises(asyncio.CancelledError):
            await done(lock.acquire())
        assert (lock._held, len(colour.store.left)) == ({}, 1)

    colour.run(story)


def test_who_left_a_block_without_a_release_does_not_hold_the_next_one_up(colour: Colour) -> None:
    async def story() -> None:
        lock = colour.lock()
        left = await done(lock.acquire())
        assert await done(lock.acquire()) is None
        left._block = lambda: None
        again = await done(lock.acquire())
        assert (left.held, again.held, list(lock._held.values())) == (False, True, [[again]])

    colour.run(story)


@pytest.mark.parametrize("mine", [True, False])
def test_who_does_not_get_in_is_told_who_holds_it(colour: Colour, mine: bool) -> None:
    async def story() -> None:
        lock = colour.lock(timeout=0)
        grant = await (done(lock.acquire()) if mine else colour.elsewhere(colour.lock().acquire))
        with pytest.raises(LockTimeout) as told:
            await colour.enter(lock)
        assert [view.id for view in told.value.holders] == [grant.id]
        assert ("the caller itself holds it" in str(told.value)) is mine
        assert told.value.name == "a"

    colour.run(story)


def test_the_end_of_a_block_releases_what_it_was_entered_with_and_tells_its_loss(colour: Colour) -> None:
    async def story() -> None:
        lock = colour.lock()
        await colour.leave(lock)
        grant = await colour.enter(lock)
        await colour.leave(lock)
        assert (grant.held, lock._held) == (False, {})
        lost = await colour.enter(lock)
        lost._lose("it was evicted")
        with pytest.raises(LockLost, match="it was evicted"):
            await colour.leave(lock)
        assert lock._held == {}
        over = await colour.enter(colour.lock("b"))
        await done(over.release())

    colour.run(story)


def test_a_with_that_is_known_keeps_its_grant(colour: Colour) -> None:
    async def story() -> None:
        lock = colour.lock()
        if colour.tasks:
            async with lock as grant:
                assert grant._body is asyncio.current_task()
        else:
            with lock as grant:
                assert kept == {grant.id: grant}
        grant = await colour.enter(colour.lock("b"))
        assert kept == {}
        await done(grant.release())

    colour.run(story)


# -- re-entrant ---------------------------------------------------------------------------------------------


def test_a_re_entry_asks_the_store_for_nothing_and_only_the_holder_may(colour: Colour) -> None:
    async def story() -> None:
        lock = colour.lock(kind="RLock")
        first, second = await done(lock.acquire()), await done(lock.acquire())
        assert (first.id, len(colour.asked)) == (second.id, 1)
        assert await colour.elsewhere(lock.acquire) is None
        await done(first.release())
        assert second.held
        await done(second.release())
        third = await done(lock.acquire())
        assert (third.id != first.id, len(colour.asked)) == (True, 3)
        third._grant._lose("it was evicted")
        assert await done(lock.acquire()) is None, "what was lost is taken anew, and the store has it still"

    colour.run(story)


def test_a_re_entry_beside_the_release_of_the_last_handle_is_taken_anew(colour: Colour) -> None:
    async def story() -> None:
        lock = colour.lock(kind="RLock")
        first = await done(lock.acquire())
        first._handles._over = True  # another thread is about to release it
        assert await done(lock.acquire()) is None
        assert len(colour.asked) == 2

    colour.run(story)


# -- several as one -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout", "waits"),
    [(10.0, [10.0, 6.0, 2.0]), (5.0, [5.0, 1.0, 0.0]), (0, [0, 0, 0]), (None, [None, None, None])],
)
def test_all_wait_for_one_deadline_together(
    colour: Colour, timeout: float | None, waits: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(of_tasks if colour.tasks else of_threads, "time", clock)

    def passes(name: str) -> None:
        clock.now += 4.0

    colour.meanwhile = passes

    async def story() -> None:
        lock = colour.all(*(colour.lock(name) for name in "abc"))
        assert lock.name == "a, b, c"
        assert await done(lock.locked()) is False
        grants = await done(lock.acquire(timeout=timeout))
        assert [grant.name for grant in grants] == ["a", "b", "c"]
        assert [seconds for _, seconds in colour.asked] == waits
        await done(grants[0].release())
        assert (await done(lock.locked()), lock.owned()) == (True, False)
        await done(grants.release())

    colour.run(story)


@pytest.mark.parametrize("why", ["held", "fails"])
def test_all_or_none(colour: Colour, why: str) -> None:
    def fails(name: str) -> None:
        if name == "c":
            raise away()

    async def story() -> None:
        lock = colour.all(*(colour.lock(name) for name in "abcd"))
        if why == "held":
            await colour.elsewhere(colour.lock("c").acquire)
            assert await done(lock.acquire()) is None
        else:
            colour.meanwhile = fails
            with pytest.raises(type(away())):
                await done(lock.acquire())
        assert [name for name, _ in colour.asked][-3:] == ["a", "b", "c"], "those behind it are not asked for"
        assert [await done(colour.lock(name).locked()) for name in "abd"] == [False] * 3
        assert len(colour.store.left) == 2

    colour.run(story)


# -- guard --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skips", [True, False])
def test_a_guarded_function_runs_under_the_lock_that_its_arguments_name(colour: Colour, skips: bool) -> None:
    module: Any = of_tasks if colour.tasks else of_threads
    ran: list[int] = []

    def work(number: int) -> int:
        ran.append(number)
        return number + 1

    async def works(number: int) -> int:
        return work(number)

    def yields(number: int) -> Iterator[int]:
        yield number

    def lock_of(name: str) -> Any:
        return colour.lock(name, timeout=0)

    async def story() -> None:
        guarded = module.guarded(works if colour.tasks else work, "door-{number}", lock_of, skips)
        assert await done(guarded(4)) == 5
        assert await done(colour.lock("door-4").locked()) is False
        await colour.elsewhere(colour.lock("door-4").acquire)
        if skips:
            assert await done(guarded(4)) is None
        else:
            with pytest.raises(LockTimeout):
                await done(guarded(4))
        assert await done(guarded(5)) == 6
        assert ran == [4, 5]
        for other in (work if colour.tasks else works, yields):
            with pytest.raises(InvalidArgument):
                module.guarded(other, "door-{number}", lock_of, skips)

    colour.run(story)


# -- decorators ---------------------------------------------------------------------------------------------


def test_a_function_of_its_colour_runs_while_the_lock_is_held_and_no_other_is_taken(colour: Colour) -> None:
    lock = colour.lock()

    def work(number: int) -> tuple[int, bool]:
        return number, lock.owned()

    async def works(number: int) -> tuple[int, bool]:
        return number, lock.owned()

    def each(number: int) -> Iterator[Any]:
        yield work(number)
        return number + 1

    async def story() -> None:
        fits, other = (works, work) if colour.tasks else (work, works)
        guarded = lock(fits)
        assert (await done(guarded(3)), lock.owned()) == ((3, True), False)
        assert guarded.__name__ == fits.__name__
        with pytest.raises(InvalidArgument, match="is no coroutine" if colour.tasks else "is a coroutine function"):
            lock(other)
        if colour.tasks:
            with pytest.raises(InvalidArgument, match="is a generator function"):
                lock(each)
            return
        ran = lock(each)(4)
        assert (next(ran), lock.owned()) == ((4, True), True)
        with pytest.raises(StopIteration) as ended:
            next(ran)
        assert (ended.value.value, lock.owned()) == (5, False)

    colour.run(story)


def test_who_returns_what_has_not_run_yet_is_told_so(colour: Colour) -> None:
    async def nothing_yet() -> None: ...

    later = nothing_yet()

    def work() -> Any:
        return later

    async def works() -> Any:
        return later

    async def story() -> None:
        with pytest.raises(InvalidArgument):
            await done(colour.lock()(works if colour.tasks else work)())

    colour.run(story)
    later.close()


# -- interrupts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begins", "known", "held"),
    [
        (of_threads.Lockable.__enter__, "grant", False),
        (of_threads.RLock._take, "entry", True),
        (of_threads.RLock._take_anew, "hold", False),
    ],
)
def test_an_interrupt_while_a_with_begins_gives_back_what_it_got(begins: Any, known: str, held: bool) -> None:
    colour = Colour(False)
    lock = colour.lock(kind="RLock")
    first = lock.acquire() if held else None

    def interrupts(frame: Any, event: str, argument: object) -> Any:
        got = frame.f_locals.get(known) if frame.f_code is begins.__code__ else None
        if got is not None and (first is None or len(first._handles._refs) == 2):
            sys.settrace(before)
            raise KeyboardInterrupt
        return interrupts if frame.f_code is begins.__code__ else None

    before = sys.gettrace()
    try:
        sys.settrace(interrupts)
        with pytest.raises(KeyboardInterrupt) as told:
            lock.__enter__()
    finally:
        sys.settrace(before)
    assert told.tb, "what it got lives on in there"
    assert list(lock._held.values()) == ([[first]] if held else [])
    assert (lock.locked(), len(colour.store.left)) == ((True, 0) if held else (False, 1))
    if first is not None:
        assert first.release() is True
        assert lock.locked() is False, "no handle was left behind"
    colour.session.watchdog.stop()
