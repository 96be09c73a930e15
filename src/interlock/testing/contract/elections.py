"""Elections: one leader at a time, another one after each loss."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from interlock.core.errors import InvalidArgument, StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_tasks, of_threads
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import TASKS, THREADS, ContractWorld
from interlock.testing.waiting import RENEWED, eventually


class Candidate:
    """A candidate whose work runs until it must end; it records its terms.

    Args:
        world: determines sync or async.
        locks: the client.
        fails: how many of the first terms end by an exception.
    """

    def __init__(self, world: ContractWorld, locks: Any, fails: int = 0) -> None:
        self.terms: list[int] = []
        self.ended = 0
        self.told: list[str] = []
        self.election = locks.election(
            world.name,
            on_elected=lambda each: self.told.append("elected"),
            on_deposed=lambda each: self.told.append("deposed"),
        )
        self._fails = fails
        self._world = world
        self.running = world.actor().start(self.election.run, world.function(self._work))

    def stop(self, **how: Any) -> None:
        """Stop it, and wait for the end of its run."""
        assert self._world.actor().do(self.election.stop, **how) is True
        self.running.result(20)

    def _work(self, election: Any) -> Generator[Any, Any, None]:
        self.terms.append(election.term)
        if self._fails:
            self._fails -= 1
            raise ZeroDivisionError("by order of the test")
        try:
            while election.leading or self._world.sync_or_async == TASKS:  # a task is cancelled
                yield from self._world.result(self._world.pause(0.005))
        finally:
            self.ended += 1


def test_one_leads_and_the_next_one_when_it_stops(world: ContractWorld) -> None:
    first = Candidate(world, world.connect())
    eventually(lambda: first.election.leading)
    second = Candidate(world, world.connect())
    world.until_waiting(1) if _shows_waiters(world) else None
    assert not second.election.leading
    first.stop()
    assert (first.ended, first.election.leading, first.told) == (1, False, ["elected", "deposed"])
    eventually(lambda: second.election.leading and second.terms)
    assert second.terms[0] == second.election.term > first.terms[0] > 0
    second.stop()
    world.until_free()


def _shows_waiters(world: ContractWorld) -> bool:
    """Return True if all waiters are visible from outside."""
    return "detach" in world.eye.store.features


def test_a_deposed_leader_ends_its_work_and_stands_again(world: ContractWorld) -> None:
    candidate = Candidate(world, world.connect(ttl=RENEWED))
    eventually(lambda: candidate.election.leading and candidate.terms)
    world.eye.evict(world.name)
    eventually(lambda: candidate.ended == 1)
    eventually(lambda: len(candidate.terms) == 2 and candidate.election.leading)
    assert candidate.terms[1] > candidate.terms[0]
    candidate.stop()


def test_an_exception_of_the_work_is_logged_and_it_leads_again(
    world: ContractWorld, caplog: pytest.LogCaptureFixture
) -> None:
    candidate = Candidate(world, world.connect(), fails=1)
    eventually(lambda: len(candidate.terms) == 2 and candidate.election.leading)
    assert any("ZeroDivisionError" in (record.exc_text or "") for record in caplog.records)
    assert candidate.told == ["elected", "deposed", "elected"]
    candidate.stop()


@of_tasks
def test_a_cancellation_that_nobody_sent_does_not_end_it(
    world: ContractWorld, locks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    election = locks.election(world.name)
    terms: list[int] = []

    async def work(election: Any) -> None:
        terms.append(election.term)
        helper = asyncio.ensure_future(asyncio.sleep(60))
        if len(terms) == 1:
            helper.cancel()  # as a closed pool or client does; not this task
        await helper

    running = world.actor().start(election.run, work)
    eventually(lambda: len(terms) == 2 and election.leading)
    assert any("CancelledError" in (record.exc_text or "") for record in caplog.records)
    assert world.actor().do(election.stop) is True
    running.result(20)


@of_tasks
def test_a_candidate_whose_task_is_cancelled_ends(world: ContractWorld, locks: Any) -> None:
    election = locks.election(world.name)

    async def work(election: Any) -> None:
        await asyncio.sleep(60)

    async def story() -> Any:
        task = asyncio.ensure_future(election.run(work))
        assert await election.wait(20)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert world.run(story())
    assert not election.leading
    world.until_free()


@of_threads
def test_work_that_exits_ends_it_with_a_log_line(
    world: ContractWorld, locks: Any, ann: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    def work(election: Any) -> None:
        raise SystemExit(3)

    election = locks.election(world.name)
    with pytest.raises(SystemExit):
        ann.do(election.run, work)
    assert any("ended" in message and "SystemExit" in message for message in caplog.messages)
    world.until_free()


def test_a_store_that_was_away_does_not_end_it(world: ContractWorld) -> None:
    locks, faulty = world.connect_with(lambda store: Failing(store, "enter"))
    candidate = Candidate(world, locks)
    eventually(lambda: faulty.refused["enter"] > 0)
    assert not candidate.election.leading
    faulty.broken.clear()
    eventually(lambda: candidate.election.leading)
    candidate.stop()


def test_stop_does_not_wait_long_for_a_store_that_is_away(world: ContractWorld) -> None:
    locks, faulty = world.connect_with(lambda store: Failing(store, "leave"))
    candidate = Candidate(world, locks)
    eventually(lambda: candidate.election.leading and candidate.terms)
    faulty.broken.add("leave")
    candidate.stop(timeout=10)
    faulty.broken.clear()


def test_in_the_background_it_leads_within_the_block(world: ContractWorld, ann: Actor) -> None:
    election = world.connect().election(world.name)
    begin, end = ("__enter__", "__exit__") if world.sync_or_async == THREADS else ("__aenter__", "__aexit__")
    ann.do(getattr(election, begin))
    assert ann.do(election.wait, 20) is True
    assert election.leading
    assert ann.do(world.connect().lock(world.name).acquire, blocking=False) is None
    with pytest.raises(InvalidArgument, match="already"):
        ann.do(getattr(election, begin))
    ann.do(getattr(election, end), None, None, None)
    assert not election.leading
    assert election.term > 0
    world.until_free()


def test_waiting_to_lead_ends_at_the_timeout_or_at_stop(world: ContractWorld) -> None:
    holder, ann = world.actors(2)
    grant = holder.do(world.connect().lock(world.name).acquire)
    candidate = Candidate(world, world.connect())
    assert ann.do(candidate.election.wait, 0.05) is False
    waiting = ann.start(candidate.election.wait)
    assert holder.do(candidate.election.stop) is True
    assert waiting.result(20) is False
    candidate.running.result(20)
    assert candidate.terms == []
    holder.do(grant.release)
    world.until_free()


def test_the_work_may_be_stopped_from_within(world: ContractWorld, ann: Actor) -> None:
    election = world.connect().election(world.name)

    def work(election: Any) -> Generator[Any, Any, None]:
        yield from world.result(election.stop())

    ann.start(election.run, world.function(work)).result(20)
    assert not election.leading
    with pytest.raises(InvalidArgument):
        ann.do(election.run, 7)


def test_a_closed_connection_stands_for_nothing(world: ContractWorld, locks: Any, ann: Actor) -> None:
    election = locks.election(world.name)
    ann.do(locks.close)
    with pytest.raises(StoreError, match="closed"):
        ann.do(election.run, (lambda each: None) if world.sync_or_async == THREADS else _nothing)


async def _nothing(election: Any) -> None:
    """Do nothing."""
