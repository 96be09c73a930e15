"""Callbacks run in a copy of the context of their acquire; work in the background belongs to no request."""

import gc
from collections.abc import Callable, Generator
from contextvars import ContextVar, copy_context
from typing import Any
from weakref import ref

import pytest

from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import needs
from interlock.testing.faults import Counting
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually


class Request:
    """The value of a context variable during a request."""


current: ContextVar[Request | None] = ContextVar("current", default=None)


def _requested(world: ContractWorld, job: Callable[[], Any], request: Request) -> Any:
    """Let a new actor do a job for a request; return its result."""

    def steps() -> Generator[Any, Any, Any]:
        token = current.set(request)
        try:
            return (yield from world.result(job()))
        finally:
            current.reset(token)

    actor = world.actor()
    try:
        return actor.do(world.function(steps))
    finally:
        actor.end()


def test_on_lost_runs_in_the_context_of_its_own_acquire(world: ContractWorld, locks: Any) -> None:
    seen: dict[str, Any] = {}
    _requested(world, locks.lock(world.fresh_name()).acquire, Request())  # the first acquire starts the renewals

    def lost(grant: Any) -> None:
        seen[grant.name] = current.get()
        current.set(None)  # in a copy: the next callback does not see this value

    requests = {world.fresh_name(): Request() for _ in range(3)}
    for name, request in requests.items():
        _requested(world, locks.lock(name, ttl=RENEWED, on_lost=lost).acquire, request)
    for name in requests:
        world.eye.evict(name)
    eventually(lambda: len(seen) == 3)
    assert seen == requests


@needs("wanted")
def test_on_wanted_runs_in_the_context_of_its_acquire(world: ContractWorld, locks: Any, bob: Actor) -> None:
    seen: list[Any] = []
    lock = locks.lock(world.name, ttl=RENEWED, on_wanted=lambda grant: seen.append(current.get()))
    _requested(world, locks.lock(world.fresh_name()).acquire, Request())
    request = Request()
    grant = _requested(world, lock.acquire, request)
    waiting = world.in_line(bob.start, world.connect().lock(world.name).acquire)
    eventually(lambda: seen)
    assert seen == [request]
    world.actor().do(grant.release)
    waiting.result(20)


def test_on_elected_runs_in_the_context_of_the_candidate(world: ContractWorld, locks: Any) -> None:
    seen: list[Any] = []
    election = locks.election(world.name, on_elected=lambda each: seen.append(current.get()))
    request = Request()
    begin, end = [f"__{'a' if world.sync_or_async == 'tasks' else ''}{word}__" for word in ("enter", "exit")]
    _requested(world, getattr(election, begin), request)
    eventually(lambda: seen)
    assert seen == [request]
    world.actor().do(getattr(election, end), None, None, None)


def test_renewals_see_no_variable_of_a_request(world: ContractWorld) -> None:
    locks, store = world.connect_with(Watched)
    _requested(world, locks.lock(world.name, ttl=RENEWED).acquire, Request())
    eventually(lambda: store.contexts.get("renew"))
    assert {id(each) for each in store.contexts["renew"]} == {id(None)}
    assert None not in store.contexts["enter"]


class Watched(Counting):
    """Records the request in whose context each step is sent."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.contexts: dict[str, list[Any]] = {}

    def before(self, step: str, args: Any) -> Any:
        self.contexts.setdefault(step, []).append(current.get())
        return super().before(step, args)


@pytest.mark.parametrize("waits", [False, True])
def test_an_open_connection_keeps_no_request_alive(world: ContractWorld, waits: bool, locks: Any, ann: Actor) -> None:
    blocker = ann.do(world.connect().lock(world.name).acquire)

    def served() -> Any:
        request = Request()
        grant = _requested(world, locks.lock(world.fresh_name(), ttl=RENEWED).acquire, request)
        if waits:
            assert _requested(world, lambda: locks.lock(world.name).acquire(timeout=0.3), request) is None
        return grant, ref(request)

    grant, request = copy_context().run(served)
    eventually(lambda: gc.collect() >= 0 and request() is None)
    del grant  # until here its lease was renewed
    ann.do(blocker.release)
