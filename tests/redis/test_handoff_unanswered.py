"""A successor whose predecessor's release has no answer: its own requests take that release along."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

from interlock.api.connect import open_store
from interlock.client.tokens import read
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.errors import StoreError
from interlock.core.line import RENEWAL_OK, RENEWAL_WANTED
from interlock.runtime._threads import fresh_id
from interlock.storekit.wire import WAITS
from interlock.stores.redis.resp import Parser, RedisCommand
from interlock.stores.redis.wire import RedisWire, with_source
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import needs_signals, of_tasks, of_threads
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually, throughout
from tests.servers import Proxy, RedisServer
from tests.support.redis_helpers import connect_to

ANSWER = 1.0  # seconds that a client waits for an answer
BOUND = 4 * ANSWER  # seconds: a request, its retry, and the pauses
MINUTE = 60.0
FAULTS = ["hold", "drop", "cut"]
PASSED_OVER = 2500  # claims that gave up between two others: more than two steps pass over


def through(world: ContractWorld, proxy: Proxy) -> Any:
    """Return a client that connects through the proxy."""
    return connect_to(world, f"{proxy.url}?socket_timeout={ANSWER:g}")


class Pair:
    """A lock that one actor holds, and an actor of the same client that waits for it.

    Args:
        world, locks: where.
        holder: acquires the lock.
        waiter, work: the other actor, and what it calls; that acquires the lock.

    Attributes:
        first: the grant of the holder.
        worked: the call of the waiter.
    """

    def __init__(self, world: ContractWorld, locks: Any, holder: Any, waiter: Actor, work: Callable[[], Any]) -> None:
        kinds: list[str] = []
        locks.subscribe(lambda event: kinds.append(event.kind))
        self.first = holder.do(locks.lock(world.name, ttl=MINUTE).acquire)
        self.worked = waiter.start(work)
        eventually(lambda: "queued" in kinds)
        (self._second,) = (view.id for view in world.waiters())

    def catch(self, proxy: Proxy, fault: str) -> None:
        """Let the proxy break the connection of the release that lets in the waiter."""
        proxy.catch(f"{self._second}\r\n$32\r\n{self.first.id}\r\n".encode(), fault)


def timed(world: ContractWorld, lock: Any, step: str) -> Any:
    """Return a function for an actor: it acquires and calls `step` of the grant at once.

    Returns:
        It returns the grant, the result of the step, and the seconds that the step took.
    """

    def steps() -> Generator[Any, Any, Any]:
        grant = yield from world.result(lock.acquire())
        began = time.monotonic()
        result = yield from world.result(getattr(grant, step)())
        return grant, result, time.monotonic() - began

    return world.function(steps)


class Runs:
    """Runs of `once` for both colours, which measure the time from the end of the work.

    Args:
        world, locks: where.
    """

    def __init__(self, world: ContractWorld, locks: Any) -> None:
        self.ends: list[float] = []
        once = locks.once(world.name, keep=MINUTE)

        def work() -> Generator[Any, Any, Any]:
            yield from world.result(world.pause())
            self.ends.append(time.monotonic())
            return 7

        def steps() -> Generator[Any, Any, Any]:
            result = yield from world.result(once.run(world.function(work)))
            return result, time.monotonic() - self.ends[-1]

        self.run = world.function(steps)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_is_recorded_though_the_release_before_it_is_late(
    world: ContractWorld, proxy: Proxy, fault: str, ann: Actor, bob: Actor
) -> None:
    locks = through(world, proxy)
    runs = Runs(world, locks)
    pair = Pair(world, locks, ann, bob, runs.run)
    pair.catch(proxy, fault)
    released = ann.start(pair.first.release)
    result, took = pair.worked.result(20)
    assert result == 7
    assert took < BOUND
    eventually(lambda: proxy.has_caught)  # a successor is let in before the release is sent
    proxy.pass_on()
    assert released.result(20) is True
    assert bob.do(runs.run)[0] == 7
    assert len(runs.ends) == 1
    assert not world.holders()


@pytest.mark.parametrize("step", ["detach", "renew"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_succeeds_though_the_release_before_it_is_late(
    world: ContractWorld, proxy: Proxy, step: str, fault: str, ann: Actor, bob: Actor
) -> None:
    locks = through(world, proxy)
    pair = Pair(world, locks, ann, bob, timed(world, locks.lock(world.name), step))
    pair.catch(proxy, fault)
    released = ann.start(pair.first.release)
    grant, result, took = pair.worked.result(20)
    assert took < BOUND
    eventually(lambda: proxy.has_caught)  # a successor is let in before the release is sent
    assert [view.fence for view in world.holders()] == [grant.fence]
    proxy.pass_on()
    assert released.result(20) is True
    assert [view.fence for view in world.holders()] == [grant.fence]
    assert (bob.do(world.connect().release, result) if step == "detach" else bob.do(grant.release)) is True
    assert world.nothing_left()


def test_a_run_is_recorded_though_the_server_was_stopped(
    world: ContractWorld, server: RedisServer, ann: Actor, bob: Actor
) -> None:
    locks = connect_to(world, f"{server.url}?socket_timeout={ANSWER:g}")
    runs = Runs(world, locks)
    pair = Pair(world, locks, ann, bob, runs.run)
    server.pause()
    try:
        with pytest.raises(StoreError):
            ann.do(pair.first.release)
    finally:
        server.resume()
    resumed = time.monotonic()
    assert pair.worked.result(20)[0] == 7
    assert time.monotonic() - resumed < BOUND
    assert bob.do(runs.run)[0] == 7
    assert len(runs.ends) == 1
    assert not world.holders()


def test_renewals_of_others_do_not_wait_for_a_stopped_release(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = through(world, proxy)
    other = ann.do(locks.lock(world.fresh_name(), ttl=RENEWED).acquire)
    pair = Pair(world, locks, ann, bob, timed(world, locks.lock(world.name, ttl=RENEWED), "renew"))
    pair.catch(proxy, "hold")
    released = ann.start(pair.first.release)
    grant, renewed, _ = pair.worked.result(20)
    assert renewed is True
    throughout(2 * RENEWED, lambda: other.held and grant.held)
    proxy.pass_on()
    assert released.result(20) is True
    assert ann.do(other.release) is bob.do(grant.release) is True


@of_tasks
def test_a_cancelled_release_is_no_loss_for_its_successor(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = through(world, proxy)
    pair = Pair(world, locks, ann, bob, timed(world, locks.lock(world.name), "detach"))
    pair.catch(proxy, "hold")

    async def cancelled() -> None:
        task = asyncio.ensure_future(pair.first.release())
        await asyncio.to_thread(eventually, lambda: proxy.has_caught)
        task.cancel()
        await asyncio.wait((task,))

    world.run(cancelled())
    _, token, took = pair.worked.result(20)
    assert took < BOUND
    proxy.pass_on()
    assert bob.do(world.connect().release, token) is True


class Main:
    """The main thread as an actor: an interrupt reaches it."""

    @staticmethod
    def do(function: Any, *args: Any) -> Any:
        """Call a function."""
        return function(*args)


@of_threads
@needs_signals
def test_an_interrupted_release_is_no_loss_for_its_successor(world: ContractWorld, proxy: Proxy, bob: Actor) -> None:
    locks = through(world, proxy)
    pair = Pair(world, locks, Main, bob, timed(world, locks.lock(world.name), "detach"))
    pair.catch(proxy, "hold")

    def interrupt() -> None:
        eventually(lambda: proxy.has_caught)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    striking = world.actor().start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        pair.first.release()
    striking.result(20)
    _, token, took = pair.worked.result(20)
    assert took < BOUND
    proxy.pass_on()
    assert bob.do(world.connect().release, token) is True


def test_a_reader_after_a_writer_is_detached_at_once(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = through(world, proxy)
    kinds: list[str] = []
    locks.subscribe(lambda event: kinds.append(event.kind))
    lock = locks.rwlock(world.name)
    writing = ann.do(lock.write().acquire)
    reading = bob.start(timed(world, lock.read(), "detach"))
    eventually(lambda: "queued" in kinds)
    (second,) = (view.id for view in world.waiters())
    proxy.catch(f"{second}\r\n$32\r\n{writing.id}\r\n".encode(), "hold")
    released = ann.start(writing.release)
    _, token, _ = reading.result(20)
    eventually(lambda: proxy.has_caught)  # the reader is let in before the release is sent
    proxy.pass_on()
    assert released.result(20) is True
    assert bob.do(world.connect().release, token) is True
    assert world.nothing_left()


def remembered(ids: list[str]) -> int:
    """Return how many containers of this process have one of these ids.

    The collector does not know a dictionary of plain values itself, but the object that has it.
    """
    wanted = set(ids)
    found = {id(each): each for each in gc.get_referents(*gc.get_objects()) if type(each) in (dict, set)}
    return sum(each is not wanted and not wanted.isdisjoint(each) for each in found.values())


def test_what_has_ended_is_remembered_nowhere(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    other, ids, kinds = world.connect(), [], []
    locks.subscribe(lambda event: kinds.append(event.kind))
    brief = {"ttl": 0.2, "renew": False}
    for _ in range(20):
        grant = ann.do(locks.lock(world.name).acquire)
        token = ann.do(grant.detach)
        attached = bob.do(other.attach, token)
        lapsing = ann.do(locks.lock(world.fresh_name(), **brief).acquire)
        ids += [grant.id, read(token).id, attached.id, lapsing.id]
        assert bob.do(attached.release) is True
    eventually(lambda: kinds.count("lost") == 20)
    for actor in (ann, bob):
        actor.forget()
    del grant, attached, lapsing
    eventually(lambda: remembered(ids) == 0)


# -- the scripts ----------------------------------------------------------------------------------------------------

KINDS = [(1, 1), (1, 1), (3, 3), (1, 3), (2, 3)]


class Names:
    """Two lines of a server with the same claims.

    Args:
        server: the server.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._wire = RedisWire("", 1.0)

    def ask(self, command: RedisCommand) -> Any:
        """Send a command, and return the reply."""
        parser = Parser()
        parser.feed(with_source(command.data))
        return self._server.command(*[each.decode() for each in parser.next()])

    def on_both(self, make: Callable[[RedisWire, str], RedisCommand]) -> list[Any]:
        """Send a command to each line; return the replies without their fences."""
        return [self.ask(make(self._wire, f"{SEPARATOR}{name}")) for name in ("one", "two")]

    def lines(self) -> list[Any]:
        """Return the claims of both lines."""
        found = []
        for name in ("one", "two"):
            now, flat = self.ask(self._wire.look(f"{SEPARATOR}{name}"))
            raw = [now.encode(), [each.encode() for each in flat]]
            views = self._wire.views(f"{SEPARATOR}{name}", raw)
            found.append([(view.id, view.state, view.units, view.capacity) for view in views])
        return found


@pytest.mark.parametrize("seed", range(20))
def test_taking_along_is_leaving_and_then_the_step(server: RedisServer, seed: int) -> None:
    chance, names = random.Random(seed), Names(server)
    claims = []
    for number in range(6):
        units, capacity = chance.choice(KINDS)
        claims.append((f"claim{number}", units, capacity))
        names.on_both(
            lambda wire, key, each=claims[-1]: wire.enter(
                Claim(each[0], LockSpec(key, each[1], each[2], MINUTE)), "w", "a channel"
            )
        )
    assert len({*map(str, names.lines())}) == 1
    chosen, *before = chance.sample([each[0] for each in claims], 3)
    step = chance.choice(["complete", "renew", "adopt"])

    def asked(wire: RedisWire, key: str, taken: list[str]) -> RedisCommand:
        claim = Claim(chosen, LockSpec(key, ttl=MINUTE))
        if step == "complete":
            return wire.leave(claim, "", "", MINUTE, "a value", taken)
        if step == "renew":
            return wire.renew([claim], [taken])
        return wire.adopt(key, chosen, claim._replace(id="another"), "", taken)

    wire, (one, two) = RedisWire("", 1.0), (f"{SEPARATOR}one", f"{SEPARATOR}two")
    along = names.ask(asked(wire, one, before))
    for each in before:
        names.ask(wire.leave(Claim(each, LockSpec(two)), "", ""))
    apart = names.ask(asked(wire, two, []))
    lines = names.lines()
    assert lines[0] == lines[1], (step, chosen, before)
    if step != "adopt":
        assert along == apart
    else:
        assert (along == -1) == (apart == -1)


@pytest.mark.parametrize("step", ["complete", "adopt"])
def test_a_step_passes_over_thousands_that_gave_up(server: RedisServer, proxy: Proxy, step: str) -> None:
    queue = open_store(proxy.url).queue()
    spec = LockSpec(f"{SEPARATOR}crowd", ttl=MINUTE)
    first, second, *others = (Claim(fresh_id(), spec) for _ in range(PASSED_OVER + 2))
    waiters = {claim.id: queue.subscribe() for claim in (*others, second)}
    try:
        assert queue.enter(first, None, True, False).state == "using"
        for claim in (*others, second):
            assert queue.enter(claim, waiters[claim.id], True, False).state == "pending"
        for claim in others:
            assert queue.leave(claim)
        proxy.catch(f"{second.id}\r\n$32\r\n{first.id}\r\n".encode(), "hold")
        released: list[bool] = []
        thread = threading.Thread(target=lambda: released.append(queue.leave(first)))
        thread.start()
        assert waiters[second.id].wait(BOUND) is not None
        eventually(lambda: proxy.has_caught)
        if step == "complete":
            assert queue.leave(second, MINUTE, "7")
            assert queue.run_result(spec.key) == "7"
        else:
            assert queue.adopt(spec.key, second.id, Claim(fresh_id(), spec)) is not None
        proxy.pass_on()
        thread.join(BOUND)
        assert released == [True]
    finally:
        queue.close()
        for waiter in waiters.values():
            waiter.close()


def test_a_renewal_says_of_a_waiting_claim_that_it_waits(server: RedisServer) -> None:
    names, wire, key = Names(server), RedisWire("", 1.0), f"{SEPARATOR}one"
    first, second = (Claim(id, LockSpec(key, ttl=MINUTE)) for id in ("first", "second"))
    for each in (first, second):
        names.ask(wire.enter(each, "w", "a channel"))
    assert names.ask(wire.renew([first], [[]])) == RENEWAL_WANTED
    assert names.ask(wire.renew([second], [[]])) == WAITS
    assert names.ask(wire.renew([second], [["first"]])) == RENEWAL_OK
