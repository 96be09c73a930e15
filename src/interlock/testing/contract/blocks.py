"""Blocks: the end of a `with` block releases the grant of this block, in whichever thread or task it happens."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import needs, of_tasks
from interlock.testing.store_fixture import THREADS, ContractWorld, LockKind


class Block:
    """A block in a suspended generator, such as a fixture or a dependency of a web framework.

    Args:
        world: determines the API, sync or async.
        lock: the lock object of the block.
    """

    def __init__(self, world: ContractWorld, lock: Any) -> None:
        @contextmanager
        def of_threads() -> Iterator[Any]:
            with lock as grant:
                yield grant

        @asynccontextmanager
        async def of_tasks() -> AsyncIterator[Any]:
            async with lock as grant:
                yield grant

        manager = of_threads() if world.sync_or_async == THREADS else of_tasks()
        self._begin, self._end = ends_of(world, manager)

    def enter(self, actor: Actor) -> Any:
        """Let an actor enter the block; return the value of the `with`."""
        return actor.do(self._begin)

    def leave(self, actor: Actor) -> None:
        """Let an actor end the block."""
        actor.do(self._end, None, None, None)


class Stack(Block):
    """A block of a lock that an exit stack enters; otherwise like `Block`."""

    def __init__(self, world: ContractWorld, lock: Any) -> None:
        self._stack = ExitStack() if world.sync_or_async == THREADS else AsyncExitStack()
        enter = self._stack.enter_context if isinstance(self._stack, ExitStack) else self._stack.enter_async_context
        self._begin, self._end = partial(enter, lock), ends_of(world, self._stack)[1]


def ends_of(world: ContractWorld, manager: Any) -> tuple[Any, Any]:
    """Return the methods that enter and leave a context manager."""
    if world.sync_or_async == THREADS:
        return manager.__enter__, manager.__exit__
    return manager.__aenter__, manager.__aexit__


def test_an_end_leaves_what_another_acquired_by_the_same_object(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    lock = kind.make(locks, world.name)
    first, second = Block(world, lock), Block(world, lock)
    first.enter(ann)
    ann.do(lock.release)
    grant = second.enter(bob)
    first.leave(ann)
    assert grant.held
    assert [view.id for view in world.holders()] == [grant.id]
    second.leave(bob)
    assert world.nothing_left()


def test_an_end_after_a_loss_leaves_what_another_acquired(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    lock = kind.make(locks, world.name)
    first, second = Block(world, lock), Block(world, lock)
    lost = first.enter(ann)
    ann.end()  # otherwise the loss cancels this task
    world.eye.evict(world.name)
    assert bob.do(lost.renew) is False
    grant = second.enter(bob)
    with pytest.raises(LockLost):
        first.leave(eve)
    assert grant.held
    second.leave(eve)
    assert world.nothing_left()


def test_a_block_of_a_generator_ends_in_another_thread_or_task(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    block = Block(world, kind.make(locks, world.name))
    assert block.enter(ann).held
    block.leave(bob)
    assert world.nothing_left()


@needs("semaphores")
def test_suspended_blocks_of_one_owner_end_in_any_order(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.semaphore(world.name, 2)
    first, second = Block(world, lock), Block(world, lock)
    one, two = first.enter(ann), second.enter(ann)
    first.leave(ann)
    assert (one.held, two.held) == (False, True)
    second.leave(ann)
    assert world.nothing_left()


@needs("once")
def test_a_run_whose_block_ends_elsewhere_is_recorded(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    block = Block(world, locks.once(world.name, keep=60))
    block.enter(ann).result = "paid"
    block.leave(bob)
    assert ann.do(locks.is_done, world.name)


@pytest.mark.parametrize("entered", [Block, Stack])
def test_what_is_acquired_again_in_a_block_ends_with_it(
    world: ContractWorld, locks: Any, ann: Actor, entered: type[Block] | type[Stack]
) -> None:
    lock = locks.lock(world.name)
    block = entered(world, lock)
    block.enter(ann)
    for _ in range(2):  # like a Condition that waits twice
        ann.do(lock.release)
        assert world.nothing_left()
        assert ann.do(lock.acquire).held
    block.leave(ann)
    assert world.nothing_left()


def test_another_owner_ends_a_stack_after_its_own_has_ended(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    stack = Stack(world, kind.make(locks, world.name))
    grant = stack.enter(ann)
    with pytest.warns(RuntimeWarning, match="released nothing"):
        stack.leave(bob)
    assert grant.held
    ann.do(grant.release)
    again = Stack(world, kind.make(locks, world.name))
    again.enter(ann)
    ann.end()
    again.leave(bob)
    assert world.nothing_left()


@needs("semaphores")
def test_an_end_that_fits_several_blocks_ends_none_and_warns(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.semaphore(world.name, 2)
    first, second = Stack(world, lock), Stack(world, lock)
    grants = [each.enter(ann) for each in (first, second)]
    with pytest.warns(RuntimeWarning, match=r"lock\.acquire\(\)"):
        first.leave(ann)
    assert [each.held for each in grants] == [True, True]
    for each in grants:
        ann.do(each.release)


@needs("semaphores")
def test_stacks_of_grants_end_what_they_were_given(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    lock = locks.semaphore(world.name, 2)
    one, two = ann.do(lock.acquire), ann.do(lock.acquire)
    first, second = Stack(world, one), Stack(world, two)
    first.enter(ann)
    second.enter(ann)
    first.leave(bob)
    assert (one.held, two.held) == (False, True)
    second.leave(bob)
    assert world.nothing_left()


def test_nested_blocks_of_a_re_entrant_lock_end_by_calls(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.rlock(world.name)
    stacks = [Stack(world, lock) for _ in range(3)]
    for each in stacks:
        each.enter(ann)
    for each in reversed(stacks):
        assert world.holders()
        each.leave(ann)
    assert world.nothing_left()


@of_tasks
def test_a_task_releases_what_a_task_that_ended_acquired_for_it(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    lock = kind.make(locks, world.name)
    grant = ann.do(lock.acquire)
    with pytest.raises(NotHeld):
        bob.do(lock.release)
    assert grant.held
    ann.end()
    bob.do(lock.release)
    assert world.nothing_left()
    with pytest.raises(NotHeld):
        bob.do(lock.release)


@of_tasks
@needs("semaphores")
def test_a_release_that_fits_several_ended_tasks_is_refused(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.semaphore(world.name, 2)
    grants = []
    for actor in world.actors(2):
        grants.append(actor.do(lock.acquire))
        actor.end()
    with pytest.raises(NotHeld):
        ann.do(lock.release)
    assert [each.held for each in grants] == [True, True]
