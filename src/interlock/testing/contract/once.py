"""Once: exactly one completed run while its record is kept."""

import threading
from collections.abc import Generator
from typing import Any

import pytest

from interlock.core.claims import DONE
from interlock.core.errors import InvalidArgument, LockLost, LockTimeout, NotHeld, NotKept, StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import needs
from interlock.testing.faults import Failing, Lossy
from interlock.testing.store_fixture import THREADS, ContractWorld
from interlock.testing.waiting import RENEWED, eventually

MINUTE = 60.0
ROUNDS = 20


class Work:
    """Work for both APIs, which counts its runs.

    Args:
        world: determines sync or async.
        result: returned beside the run's number; an exception is raised instead.
        gate: the gate that it waits for; None for none.
    """

    def __init__(self, world: ContractWorld, result: Any = None, gate: Any = None) -> None:
        self.begun = threading.Semaphore(0)
        self.runs = 0
        self._result = result
        self._gate = gate
        self._world = world
        self.function = world.function(self._run)

    def _run(self, *_: object) -> Generator[Any, Any, Any]:
        self.runs += 1
        self.begun.release()
        if self._gate is not None:
            yield from self._world.result(self._gate.wait())
        if isinstance(self._result, BaseException):
            raise self._result
        return {"run": self.runs, "also": self._result}


def _record(world: ContractWorld, name: str | None = None) -> list[Any]:
    return [view for view in world.eye.claims(name or world.name) if view.state == DONE]


@needs("once")
def test_one_runs_and_all_get_its_result_through_json(world: ContractWorld) -> None:
    work = Work(world, (1, "ä\u2028"), world.gate())
    gate = work._gate
    first, *others = world.actors(4)
    running = first.start(world.connect().once(world.name, keep=MINUTE).run, work.function)
    assert work.begun.acquire(timeout=20)
    waiting = [each.start(world.connect().once(world.name, keep=MINUTE).run, work.function) for each in others]
    world.until_waiting(3)
    gate.open()
    results = [each.result(20) for each in (running, *waiting)]
    assert results == [{"run": 1, "also": [1, "ä\u2028"]}] * 4
    assert work.runs == 1


@needs("once")
def test_who_comes_later_gets_the_result_until_it_is_forgotten(world: ContractWorld, locks: Any, ann: Actor) -> None:
    work = Work(world)
    once = locks.once(world.name, keep=MINUTE)
    for _ in range(2):
        assert ann.do(once.run, work.function) == {"run": 1, "also": None}
    assert ann.do(locks.forget, world.name) is True
    assert ann.do(locks.forget, world.name) is False
    assert ann.do(once.run, work.function)["run"] == 2


@needs("once")
def test_a_record_ends_and_the_next_one_runs(world: ContractWorld, locks: Any, ann: Actor) -> None:
    work = Work(world)
    once = locks.once(world.name, keep=0.3)
    assert ann.do(once.run, work.function)["run"] == 1
    eventually(lambda: not _record(world))
    assert ann.do(once.run, work.function)["run"] == 2


@needs("once")
def test_the_record_is_seen_from_outside_but_not_its_value(world: ContractWorld, locks: Any, ann: Actor) -> None:
    ann.do(locks.once(world.name, keep=MINUTE).run, Work(world, "secret").function)
    (view,) = world.eye.claims(world.name)
    assert (view.state, view.name, view.kind, view.fence) == (DONE, world.name, "once", None)
    assert (view.since, view.waiting_since, view.held_since) == (None, None, None)
    assert 0 < view.expires_in <= MINUTE + 1
    assert "secret" not in repr(view)
    assert world.name in [each.name for each in world.eye.claims() if each.state == DONE]
    assert ann.do(locks.lock(world.name).locked) is False


@needs("once")
def test_an_exception_records_nothing_and_the_next_one_runs(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    gate = world.gate()
    fails, works = Work(world, ZeroDivisionError("no"), gate), Work(world)
    failing = ann.start(world.connect().once(world.name, keep=MINUTE).run, fails.function)
    assert fails.begun.acquire(timeout=20)
    waiting = world.in_line(bob.start, world.connect().once(world.name, keep=MINUTE).run, works.function)
    gate.open()
    with pytest.raises(ZeroDivisionError):
        failing.result(20)
    assert waiting.result(20)["run"] == 1


@needs("once")
def test_a_run_right_after_a_failed_one_is_recorded(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    for _ in range(ROUNDS):
        name, gate = world.fresh_name(), world.gate()
        once, fails, works = locks.once(name, keep=MINUTE), Work(world, ZeroDivisionError("no"), gate), Work(world)
        failing = ann.start(once.run, fails.function)
        assert fails.begun.acquire(timeout=20)
        waiting = bob.start(once.run, works.function)
        world.until_waiting(1, name)
        gate.open()
        with pytest.raises(ZeroDivisionError):
            failing.result(20)
        assert waiting.result(20)["run"] == 1
        assert ann.do(once.run, works.function)["run"] == 1


@needs("once")
def test_who_lost_the_lock_records_nothing(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    # No renewal notices the loss before the end: it would cancel the task of the actor, which is the body here.
    once, work = world.connect(ttl=600).once(world.name, keep=MINUTE), Work(world)
    begin, end = ("__enter__", "__exit__") if world.sync_or_async == THREADS else ("__aenter__", "__aexit__")
    run = ann.do(getattr(once, begin))
    run.result = "late"
    world.eye.evict(world.name)
    next_one = world.connect().once(world.name, keep=MINUTE)
    assert bob.do(next_one.run, work.function)["run"] == 1
    with pytest.raises(LockLost):
        ann.do(getattr(once, end), None, None, None)
    assert ann.do(once.run, work.function) == {"run": 1, "also": None}
    assert ann.do(next_one.run, work.function) == {"run": 1, "also": None}


@needs("once")
def test_the_fence_rises_from_run_to_run(world: ContractWorld, locks: Any, ann: Actor) -> None:
    fences = []
    for _ in range(3):
        ann.within(locks.once(world.name, keep=MINUTE), lambda run: fences.append(run.grant.fence))
        ann.do(locks.forget, world.name)
    assert fences == sorted(set(fences))


@needs("once")
def test_as_a_block_it_is_due_once(world: ContractWorld, ann: Actor) -> None:
    once = world.connect().once(world.name, keep=MINUTE)

    def body(run: Any) -> bool:
        if run.due:
            run.result = [1, 2]
        return bool(run.due)

    assert [ann.within(once, body) for _ in range(2)] == [True, False]
    assert ann.within(once, lambda run: run.result) == [1, 2]


@needs("once")
def test_a_result_that_is_not_set_is_none(world: ContractWorld, ann: Actor) -> None:
    once = world.connect().once(world.name, keep=MINUTE)
    ann.within(once, lambda run: None)
    assert ann.within(once, lambda run: (run.due, run.result)) == (False, None)


@pytest.mark.parametrize("result", [{1, 2}, "x" * 65_535], ids=["not JSON", "too large"])
@needs("once")
def test_a_result_that_cant_be_kept_is_told_to_all(world: ContractWorld, result: Any, ann: Actor) -> None:
    once, work = world.connect().once(world.name, keep=MINUTE), Work(world, result)
    with pytest.raises(InvalidArgument, match="recorded as done"):
        ann.do(once.run, work.function)
    for _ in range(2):
        with pytest.raises(NotKept, match="forget"):
            ann.do(once.run, work.function)
    assert work.runs == 1
    assert ann.within(once, lambda run: run.due) is False


@needs("once")
def test_the_largest_result_is_kept(world: ContractWorld, ann: Actor) -> None:
    once, largest = world.connect().once(world.name, keep=MINUTE), "x" * 65_534

    def body(run: Any) -> None:
        run.result = largest

    ann.within(once, body)
    assert ann.within(once, lambda run: run.result) == largest


@needs("once")
def test_while_it_runs_others_skip_or_give_up(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    gate = world.gate()
    work = Work(world, gate=gate)
    running = ann.start(locks.once(world.name, keep=MINUTE).run, work.function)
    assert work.begun.acquire(timeout=20)
    skips = locks.once(world.name, keep=MINUTE, on_busy="skip")
    assert bob.do(skips.run, work.function) is None
    for how in ({"on_busy": "raise"}, {"timeout": 0.05}):
        with pytest.raises(LockTimeout):
            bob.do(locks.once(world.name, keep=MINUTE, **how).run, work.function)
    gate.open()
    assert running.result(20) == bob.do(skips.run, work.function) == {"run": 1, "also": None}


@needs("once")
def test_as_a_decorator_it_runs_once_for_each_name(world: ContractWorld, locks: Any, ann: Actor) -> None:
    work = Work(world)

    def steps(event: int) -> Generator[Any, Any, Any]:
        return (yield from world.result(work.function(event)))

    function = world.function(steps)
    handle = locks.once(world.name + ":{event}", keep=MINUTE)(function)
    assert [ann.do(handle, event)["run"] for event in (7, 7, 8)] == [1, 1, 2]
    with pytest.raises(InvalidArgument, match="mentions"):
        locks.once("{other}", keep=MINUTE)(function)


@needs("once")
def test_a_lost_reply_to_the_release_loses_no_record(world: ContractWorld, ann: Actor) -> None:
    locks, _ = world.connect_with(lambda store: Lossy(store, leave=1))
    work = Work(world)
    assert ann.do(locks.once(world.name, keep=MINUTE).run, work.function)["run"] == 1
    assert ann.do(world.connect().once(world.name, keep=MINUTE).run, work.function)["run"] == 1


@needs("once")
def test_a_record_is_tried_until_the_lease_ends_in_an_outage(world: ContractWorld, ann: Actor) -> None:
    locks, faulty = world.connect_with(lambda store: Failing(store, "leave"), ttl=RENEWED)
    work = Work(world)
    assert ann.do(locks.forget, world.name) is False
    with pytest.raises(StoreError, match="by order"):
        ann.do(locks.once(world.name, keep=MINUTE).run, work.function)
    assert faulty.refused["leave"] > 1
    faulty.broken.clear()
    assert ann.do(world.connect().once(world.name, keep=MINUTE).run, work.function)["run"] == 2


@needs("once")
def test_a_plain_lock_ignores_the_record(world: ContractWorld, locks: Any, ann: Actor) -> None:
    work = Work(world)
    ann.do(locks.once(world.name, keep=MINUTE).run, work.function)
    grant = ann.do(locks.lock(world.name).acquire)
    assert grant.held
    assert ann.do(locks.once(world.name, keep=MINUTE).run, work.function)["run"] == 1
    assert ann.do(grant.release) is True


@needs("once")
def test_a_block_whose_lock_was_released_inside_records_nothing(world: ContractWorld, ann: Actor) -> None:
    once = world.connect().once(world.name, keep=MINUTE)
    gone: list[Any] = []

    def body(run: Any) -> Generator[Any, Any, None]:
        gone.append((yield from world.result(run.grant.release())))

    with pytest.raises(NotHeld):
        ann.within(once, world.function(body))
    assert gone == [True]
    assert not _record(world)
