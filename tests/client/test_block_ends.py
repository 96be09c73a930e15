"""The matrix of block ends: ways to enter x kinds of locks x who ends the block x what became of its grant."""

import asyncio
import gc
import subprocess
import sys
import threading
import unittest
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import interlock
from interlock.core.errors import LockError, LockLost, NotHeld
from interlock.testing.actors import Actor
from interlock.testing.contract.blocks import Block, Stack, ends_of
from interlock.testing.contract.fixtures import of_tasks, of_threads
from interlock.testing.store_fixture import THREADS, ContractWorld
from tests.support.stores import ROWS, Row


@pytest.fixture(params=["memory", "file"])
def row(request: pytest.FixtureRequest) -> Row:
    """The rows of memory:// and file://."""
    return next(each for each in ROWS if each.name == request.param)


class Moved(Stack):
    """A block of an exit stack whose callbacks `pop_all` moves to a new stack before the close."""

    def leave(self, actor: Actor) -> None:
        moved = self._stack.pop_all()
        actor.do(moved.__exit__ if isinstance(moved, ExitStack) else moved.__aexit__, None, None, None)


class Calls(Block):
    """A block that is entered and left by calls, as by a wrapper."""

    def __init__(self, world: ContractWorld, lock: Any) -> None:
        self._begin, self._end = ends_of(world, lock)


def clean_up(*_: object) -> None:
    """End what unittest has entered; raise its exception, which Python 3.15 raises in a group."""
    try:
        unittest.doModuleCleanups()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


class Cleanup(Stack):
    """A block that unittest enters, and ends with its clean-ups; for tasks like `Stack`."""

    def __init__(self, world: ContractWorld, lock: Any) -> None:
        super().__init__(world, lock)
        if world.sync_or_async == THREADS:
            self._begin = partial(unittest.enterModuleContext, lock)
            self._end = clean_up


class Conditional(Calls):
    """A block of a `threading.Condition` around the lock; for tasks like `Calls`."""

    def __init__(self, world: ContractWorld, lock: Any) -> None:
        if world.sync_or_async == THREADS and hasattr(lock, "acquire"):
            lock = threading.Condition(lock)
        super().__init__(world, lock)


class Made(NamedTuple):
    """A kind of lock in the matrix; `admits` is True if two blocks of one object can be open at once."""

    make: Callable[[Any, str], Any]
    admits: bool = False


LOCKS = {
    "lock": Made(lambda locks, name: locks.lock(name)),
    "rlock": Made(lambda locks, name: locks.rlock(name)),
    "semaphore": Made(lambda locks, name: locks.semaphore(name, 2), True),
    "one_of": Made(lambda locks, name: locks.one_of(name, ["a", "b"]), True),
    "all": Made(lambda locks, name: locks.all(name, f"{name} too")),
    "reader": Made(lambda locks, name: locks.rwlock(name).read(), True),
    "writer": Made(lambda locks, name: locks.rwlock(name).write()),
    "once": Made(lambda locks, name: locks.once(name, keep=60)),
}
WAYS = {"with": Block, "stack": Stack, "pop_all": Moved, "cleanup": Cleanup, "calls": Calls, "condition": Conditional}
OWNERS = ["same", "another", "another, the first ended"]


def grants_of(begun: Any) -> list[Any]:
    """Return the grants of what a block began: a grant, several, or a run."""
    begun = getattr(begun, "grant", begun)
    return list(begun) if isinstance(begun, tuple) else [begun]


@pytest.mark.parametrize("state", ["held", "released", "lost"])
@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("made", LOCKS.values(), ids=LOCKS)
@pytest.mark.parametrize("way", WAYS)
def test_an_end_ends_its_own_grant_or_warns(
    world: ContractWorld, locks: Any, way: str, made: Made, owner: str, state: str
) -> None:
    ann, bob, eve, guest = world.actors(4)
    lock = made.make(locks, world.name)
    block, other = WAYS[way](world, lock), Block(world, lock)
    mine = grants_of(block.enter(ann))
    if state == "lost" and world.sync_or_async != THREADS:
        owner = OWNERS[2]  # a loss cancels a task that still is in its body
    ender = ann if owner == "same" else bob
    if owner == OWNERS[2]:
        ann.end()
    if state == "released":
        for each in mine:
            assert eve.do(each.release) is True
    elif state == "lost":
        for each in mine:
            world.eye.evict(each.name)
            assert eve.do(each.renew) is False
    theirs = grants_of(other.enter(guest)) if made.admits or state != "held" else []
    exact = way == "with" or owner != "another"
    if exact:
        with suppress(LockError):  # of a run that was released; a loss
            block.leave(ender)
    else:
        with pytest.raises(RuntimeWarning, match="released nothing"):
            block.leave(ender)
    assert [each.held for each in theirs] == [True] * len(theirs)
    assert [each.held for each in mine] == [state == "held" and not exact] * len(mine)
    if theirs:
        other.leave(guest)
        assert [each.held for each in theirs] == [False] * len(theirs)
    for each in mine:
        eve.do(each.release)
    assert not [view for view in world.eye.claims() if view.state == "using"]


@pytest.mark.parametrize("way", ["with", "stack", "pop_all", "calls", "condition"])
@pytest.mark.parametrize("made", [LOCKS["semaphore"], LOCKS["one_of"], LOCKS["reader"]])
def test_two_blocks_of_one_owner_never_end_each_other(
    world: ContractWorld, locks: Any, ann: Actor, way: str, made: Made
) -> None:
    lock = made.make(locks, world.name)
    first, second = WAYS[way](world, lock), WAYS[way](world, lock)
    one, two = first.enter(ann), second.enter(ann)
    if way == "with":
        first.leave(ann)
        assert (one.held, two.held) == (False, True)
        second.leave(ann)
        assert world.nothing_left()
    else:
        with pytest.raises(RuntimeWarning, match="2 open blocks"):
            first.leave(ann)
        assert (one.held, two.held) == (True, True)
        ann.do(one.release)
        ann.do(two.release)


def test_a_stack_in_a_with_of_the_same_object_ends_its_own(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.semaphore(world.name, 2)
    block, stack = Block(world, lock), Stack(world, lock)
    one, two = block.enter(ann), stack.enter(ann)
    block.leave(ann)
    assert (one.held, two.held) == (False, True)
    stack.leave(ann)
    assert world.nothing_left()


def test_an_end_without_a_begin_ends_nothing(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.lock(world.name)
    grant = ann.do(lock.acquire)
    with pytest.raises(RuntimeWarning, match="no open blocks"):
        Calls(world, lock).leave(ann)
    assert grant.held
    ann.do(lock.release)


@of_threads
def test_nested_withs_of_one_frame_end_in_their_order(world: ContractWorld, locks: Any) -> None:
    lock = locks.semaphore(world.name, 3)
    with lock as one, lock as two:
        with lock as three:
            pass
        assert (one.held, two.held, three.held) == (True, True, False)
        lock.__enter__()
        lock.__exit__(None, None, None)
        assert (one.held, two.held) == (True, True)
    assert world.nothing_left()


@of_threads
def test_the_address_of_an_ended_frame_identifies_no_block(world: ContractWorld, locks: Any) -> None:
    lock = locks.semaphore(world.name, 2)
    frames = []

    def step(enters: bool) -> Any:
        frames.append(id(sys._getframe()))
        return lock.__enter__() if enters else lock.__exit__(None, None, None)

    gc.collect()
    one, two = step(True), step(True)
    with pytest.raises(RuntimeWarning, match="2 open blocks"):
        step(False)
    assert (one.held, two.held) == (True, True)
    one.release()
    two.release()


class Big:
    """A local variable whose life is watched."""


@of_threads
@pytest.mark.parametrize("how", ["with", "stack", "generator"])
def test_no_block_keeps_the_locals_of_its_callers_alive(world: ContractWorld, locks: Any, how: str) -> None:
    lock = locks.lock(world.name)
    stack = ExitStack()

    def caller() -> Any:
        big = Big()
        if how == "with":
            with lock:
                pass
        elif how == "generator":
            list(lock(lambda: (yield))())
        else:
            stack.enter_context(lock)
        return weakref.ref(big)

    gc.disable()
    try:
        assert caller()() is None  # of the stack, though it is open
    finally:
        gc.enable()
    stack.close()
    assert world.nothing_left()


def test_a_block_entered_by_c_code_without_a_frame_ends() -> None:
    code = (
        "import _thread, interlock, sys, time\n"
        "lock = interlock.connect('memory://').lock('x')\n"
        "_thread.start_new_thread(lock.__enter__, ())\n"
        "while not lock.locked(): time.sleep(0.002)\n"
        "while lock.locked():\n"  # the thread may not have ended yet
        "    _thread.start_new_thread(lock.__exit__, (None, None, None))\n"
        "    time.sleep(0.02)\n"
        "print('free')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "free\n"


@of_threads
def test_a_condition_waits_and_notifies_with_the_lock(world: ContractWorld, locks: Any) -> None:
    lock = locks.lock(world.name)
    condition, ready, seen = threading.Condition(lock), [], []

    def consume() -> None:
        with condition:
            ready.append(1)
            while len(seen) < 3:
                condition.wait(20)
            seen.append("consumed")

    consumer = threading.Thread(target=consume)
    consumer.start()
    while len(seen) < 3:
        with condition:
            if ready:
                seen.append(lock.owned())
                condition.notify()
    consumer.join(20)
    assert seen == [True, True, True, "consumed"]
    assert world.nothing_left()


@of_threads
def test_half_read_decorated_generators_end_their_own_grants(world: ContractWorld, locks: Any) -> None:
    @locks.semaphore(world.name, 2)
    def rows() -> Any:
        yield 1
        yield 2

    first, second = rows(), rows()
    assert (next(first), next(second)) == (1, 1)
    first.close()
    assert len(world.holders()) == 1
    thread = threading.Thread(target=second.close)
    thread.start()
    thread.join(20)
    assert world.nothing_left()


@of_tasks
def test_an_async_generator_that_the_loop_closes_ends_its_block(world: ContractWorld) -> None:
    async def main(locks: Any) -> bool:
        lock = locks.lock(world.name)

        async def held() -> Any:
            async with lock:
                yield 1

        generator = held()
        await asyncio.create_task(generator.__anext__())
        assert await lock.locked()
        await asyncio.get_running_loop().shutdown_asyncgens()
        return bool(await lock.locked())

    assert world.run(main(world.connect())) is False


@of_tasks
@pytest.mark.parametrize("how", ["wait_for", "gather", "create_task", "shield"])
def test_a_task_releases_what_it_let_another_task_acquire(world: ContractWorld, how: str) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "wait_for": lambda call: asyncio.wait_for(call, 5),
        "gather": lambda call: asyncio.gather(call),
        "create_task": asyncio.create_task,
        "shield": asyncio.shield,
    }

    async def main(locks: Any) -> tuple[bool, bool]:
        for lock in (locks.lock(world.name), locks.rlock(world.name)):
            await calls[how](lock.acquire())
            await lock.release()
            await calls[how](lock.__aenter__())
            await lock.__aexit__(None, None, None)
        return lock.owned(), await lock.locked()

    assert world.run(main(world.connect())) == (False, False)


@of_tasks
def test_a_loss_after_a_second_acquire_in_the_block_is_raised(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.lock(world.name)

    async def body(grant: Any) -> None:
        await lock.release()
        again = await lock.acquire()
        world.eye.evict(world.name)
        await again.renew()

    with pytest.raises(LockLost):
        ann.within(lock, body)


@of_threads
@pytest.mark.parametrize("made", [LOCKS["lock"], Made(lambda locks, name: locks.rlock(name)), LOCKS["all"]])
def test_a_block_leaves_what_another_block_was_given_in_it(world: ContractWorld, locks: Any, made: Made) -> None:
    lock = made.make(locks, world.name)
    with ExitStack() as stack:
        with lock:
            lock.release()
            grant = stack.enter_context(lock.acquire())
        assert grant.held
    assert world.nothing_left()


@of_tasks
def test_a_release_leaves_the_body_of_another_living_task(world: ContractWorld) -> None:
    async def main(locks: Any) -> None:
        lock = locks.semaphore(world.name, 2)
        async with await asyncio.create_task(lock.acquire()) as grant:
            with pytest.raises(NotHeld):
                await asyncio.create_task(lock.release())
            assert grant.held
            await lock.release()
        assert not await lock.locked()

    world.run(main(world.connect()))


@of_threads
def test_an_open_stack_is_known_after_many_acquisitions(world: ContractWorld, locks: Any) -> None:
    lock = locks.semaphore(world.name, 64)
    first, second = ExitStack(), ExitStack()
    first.enter_context(lock).release()
    others = [lock.acquire() for _ in range(40)]
    grant = second.enter_context(lock)
    with pytest.raises(RuntimeWarning, match="2 open blocks"):
        first.close()
    assert grant.held
    for each in (grant, *others):
        each.release()


@of_threads
def test_an_interrupt_at_any_call_of_an_enter_keeps_no_lock(world: ContractWorld) -> None:
    library, number, held = str(Path(interlock.__file__).parent), 0, 0
    while number >= 0:
        number += 1
        left = number
        locks, renewed = world.connect(ttl=0.2), threading.Event()

        def interrupt(frame: Any, event: str, arg: object) -> None:
            nonlocal left
            left -= frame.f_code.co_filename.startswith(library)
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt

        lock = locks.lock(world.name)
        try:
            sys.settrace(interrupt)
            with lock:
                sys.settrace(None)
                number = -1
        except KeyboardInterrupt:
            held += bool(world.holders())
        finally:
            sys.settrace(None)
        locks.subscribe(lambda event, renewed=renewed: event.kind != "renewed" or renewed.set())
        for _ in range(5):  # a slow machine may be too late once
            with suppress(LockLost), locks.lock(world.name, timeout=20):  # the lease of what was not released ends
                if renewed.wait(1):
                    break
        assert renewed.is_set(), number
    assert held < 10


CASE = """
import sys, unittest, warnings
import interlock
warnings.simplefilter("error")
url = {url!r}
class Threads(unittest.TestCase):
    def setUp(self):
        self.locks = self.enterContext(interlock.connect(url))
        self.grant = self.enterContext(self.locks.lock("case"))
    def test_held(self):
        self.assertTrue(self.grant.held)
    def test_held_again(self):
        self.assertTrue(self.grant.held)
class Tasks(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.locks = await self.enterAsyncContext(interlock.aconnect(url))
        self.grant = await self.enterAsyncContext(self.locks.lock("case"))
    async def test_held(self):
        self.assertTrue(self.grant.held)
    async def test_held_again(self):
        self.assertTrue(self.grant.held)
unittest.main(argv=["case"])
"""
FIXTURES = """
import pytest_asyncio, pytest
import interlock
@pytest_asyncio.fixture
async def locks():
    async with interlock.aconnect({url!r}) as locks:
        yield locks
@pytest_asyncio.fixture
async def gpus(locks):
    return locks.semaphore("gpu", 2)
@pytest_asyncio.fixture
async def one(gpus):
    async with gpus as grant:
        yield grant
@pytest_asyncio.fixture
async def two(gpus, one):
    async with gpus as grant:
        yield grant
    assert one.held
@pytest.mark.asyncio
@pytest.mark.parametrize("again", [1, 2])
async def test_held(one, two, again):
    assert one.held and two.held and one.slot != two.slot
    with pytest.raises(interlock.NotHeld):
        await interlock.aconnect({url!r}).lock("other").release()
"""


@pytest.mark.parametrize("program", ["unittest", "pytest-asyncio"])
def test_blocks_of_test_cases_and_fixtures_end(tmp_path: Path, program: str) -> None:
    url = f"file://{tmp_path}/locks"
    if program == "unittest":
        command = [sys.executable, "-c", CASE.format(url=url)]
    else:
        (tmp_path / "test_fixtures.py").write_text(FIXTURES.format(url=url))
        command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_fixtures.py"]
        command[4:4] = ["-o", "asyncio_default_fixture_loop_scope=function"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with interlock.connect(url) as locks:
        assert locks.claims() == []


def test_a_dependency_with_yield_of_fastapi_ends_in_any_thread(tmp_path: Path) -> None:
    from fastapi import Depends, FastAPI
    from httpx import ASGITransport, AsyncClient

    async def use() -> None:
        async with AsyncClient(transport=ASGITransport(app=app), base_url="http://site") as client:
            for number in [*range(20)] * 2:
                assert (await client.get(f"/{number}")).json() is True

    app = FastAPI()
    with interlock.connect(f"file://{tmp_path}") as locks:
        lock, ran = locks.lock("ledger"), []

        def once(number: int) -> Any:
            with locks.once(f"webhook:{number}", keep=60) as run:
                yield run

        def held() -> Any:
            with lock as grant:
                yield grant

        @app.get("/{number}")
        def pay(number: int, run: Any = Depends(once), grant: Any = Depends(held)) -> bool:
            if run.due:
                ran.append(number)
                run.result = "paid"
            return bool(grant.held)

        asyncio.run(use())
        assert ran == list(range(20))
        assert all(locks.is_done(f"webhook:{number}") for number in range(20))
        assert not lock.locked()


@of_threads
def test_ends_of_many_threads_by_one_object_are_all_matched(world: ContractWorld, locks: Any) -> None:
    lock, failures = locks.semaphore(world.name, 12), []
    before = sys.getswitchinterval()

    def work(number: int) -> None:
        try:
            for turn in range(60):
                with lock as grant:
                    if (turn + number) % 3 == 0:
                        lock.release()
                    assert grant.held is ((turn + number) % 3 != 0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert failures == []
    assert world.nothing_left()


def test_a_release_spares_a_grant_in_another_body() -> None:
    with interlock.connect("memory://given") as locks, ThreadPoolExecutor(1) as other:
        lock = locks.lock("book")
        grant = lock.acquire()
        assert grant is not None
        other.submit(grant.__enter__).result()
        with pytest.raises(interlock.NotHeld):
            lock.release()
        assert grant.held
        other.submit(grant.__exit__, None, None, None).result()
        assert not grant.held
