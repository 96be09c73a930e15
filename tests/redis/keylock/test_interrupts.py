"""Cancellations and interrupts, at any moment: nothing is left behind."""

import asyncio
from typing import Any

import pytest
import redis

from interlock.core.effects import NOW, Op
from interlock.core.errors import StoreError
from interlock.keylock import commands
from interlock.keylock import server as server_module
from interlock.redis import KeyLock
from interlock.runtime.sync import run
from interlock.testing.contract.interrupts import interrupted_at, quiet

OUT_OF_REACH = ("__exit__", "__del__", "stay")
"""No code of ours runs yet when `__exit__` is interrupted at its entry; Python swallows what comes in a `__del__`."""


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_cancelled_acquire_leaves_nothing(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy))
    proxy.delay(0.1)

    async def session() -> None:
        await lock.locked()
        sent = len(proxy.sent)
        task = asyncio.create_task(lock.acquire())
        await house.until(lambda: b"SET" in proxy.sent[sent:])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    house.call(session)
    assert not house.eye.exists(house.key)
    assert house.calls("set") == 1


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_cancelled_acquire_is_cancelled_though_the_server_goes_away(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = house.proxy()
    lock = house.lock("IdentityLock", client=house.client_through(proxy))
    proxy.delay(0.1)

    def goes_away(*_: object) -> Op[None]:
        raise StoreError("the server is away")
        yield

    monkeypatch.setattr(commands, "drop", goes_away)

    async def session() -> None:
        await lock.locked()
        sent = len(proxy.sent)
        task = asyncio.create_task(lock.acquire("me"))
        await house.until(lambda: b"SET" in proxy.sent[sent:])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    house.call(session)


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_an_acquire_that_is_cancelled_again_and_again_leaves_nothing(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy))
    proxy.delay(0.05)

    async def session() -> None:
        await lock.locked()
        task = asyncio.create_task(lock.acquire())
        while not task.done():
            await asyncio.sleep(0.01)
            task.cancel()
        assert task.cancelled()
        proxy.delay(0)
        assert await lock.acquire()  # settles what is unsettled first
        assert await lock.release()

    house.call(session)


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_cancelled_acquire_gives_up_waiting_for_a_black_hole(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CANCELLED_IO_TIMEOUT", 0.05)
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, socket_timeout=None))

    async def session() -> None:
        await lock.locked()
        proxy.black_hole(passes_requests=True)
        task = asyncio.create_task(lock.acquire())
        await house.until(lambda: house.calls("set"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.restore()
        assert await lock.acquire()

    house.call(session)


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_cancelled_waiter_leaves_nothing(house: Any) -> None:
    lock = house.lock()
    house.eye.set(house.key, "somebody")

    async def session() -> None:
        task = asyncio.create_task(lock.acquire(timeout=20))
        await house.until(lambda: house.calls("set") >= 4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    house.call(session)
    assert house.eye.get(house.key) == "somebody"


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_cancelled_release_is_done_or_can_be_done_again(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy))

    async def session() -> None:
        assert await lock.acquire()
        proxy.delay(0.1)
        task = asyncio.create_task(lock.release())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await lock.release() is True
        assert await lock.release() is False

    house.call(session)
    assert not house.eye.exists(house.key)


class Interrupted(redis.Redis):
    """A client that is interrupted once a command of a kind has been done."""

    when = ""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """As the client's, and then an interrupt."""
        reply = super().execute_command(*args, **options)
        if args[0] == self.when:
            self.when = ""
            raise KeyboardInterrupt
        return reply


@pytest.fixture
def interrupted(house: Any) -> Any:
    """A client that can be interrupted."""
    client = Interrupted(host=house.server.host, port=house.server.port)
    yield client
    client.close()


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_an_acquire_interrupted_after_the_server_did_it_leaves_nothing(house: Any, interrupted: Interrupted) -> None:
    lock = KeyLock(interrupted, house.key)
    interrupted.when = "SET"
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    assert not house.eye.exists(house.key)


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_a_body_interrupted_while_it_releases_leaves_nothing(house: Any, interrupted: Interrupted) -> None:
    lock = KeyLock(interrupted, house.key)
    lock.acquire()
    lock.release()
    with pytest.raises(KeyboardInterrupt):
        with lock:
            interrupted.when = "DELIFEQ" if house.server.kind == "valkey" else "EVALSHA"
    assert not house.eye.exists(house.key)
    assert lock.token is None


@quiet
@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock", "ClientLock"])
@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_an_acquire_interrupted_at_any_moment_leaves_nothing(house: Any, name: str) -> None:
    lock = house.lock(name)
    lock.acquire()
    lock.release()
    where: list[str] = []
    left_behind = []
    moment = 0
    obtained: list[bool] = []
    while interrupted_at(moment, lambda: obtained.append(lock.acquire()), where, OUT_OF_REACH):
        moment += 1
        if obtained:  # it was swallowed by a generator that was being closed
            obtained.clear()
            lock.release()
        if house.eye.delete(house.key):
            left_behind.append(where[-1])
    assert left_behind == []
    assert moment > 15
    assert lock.owned()
    lock.release()


@quiet
@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock"])
@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_a_body_interrupted_at_any_moment_of_its_lock_leaves_nothing(house: Any, name: str) -> None:
    lock = house.lock(name)

    def work() -> None:
        with lock:
            pass

    work()
    where: list[str] = []
    left_behind = []
    moment = 0
    while interrupted_at(moment, work, where, OUT_OF_REACH):
        moment += 1
        if house.eye.delete(house.key):
            left_behind.append(where[-1])
    assert left_behind == []
    assert moment > 25


@quiet
@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_nested_bodies_interrupted_at_any_moment_leave_nothing(house: Any) -> None:
    lock = house.lock("ReentrantKeyLock")

    def work() -> None:
        with lock, lock:
            pass

    work()
    where: list[str] = []
    left_behind = []
    moment = 0
    while interrupted_at(moment, work, where, OUT_OF_REACH):
        moment += 1
        if house.eye.delete(house.key) or lock.token is not None:
            left_behind.append(where[-1])
    assert left_behind == []
    assert moment > 25


@quiet
@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_a_release_interrupted_at_any_moment_can_be_done_again(house: Any) -> None:
    lock = house.lock()
    moment, interrupted, where = 0, True, []
    while interrupted:
        assert lock.acquire(), where
        interrupted = interrupted_at(moment, lock.release, where)
        lock.release()
        assert not house.eye.exists(house.key), where
        moment += 1
    assert moment > 10


def test_a_step_is_closed_before_an_interrupt_between_its_requests_goes_on() -> None:
    """What is done about the interrupt must find what the step has noted."""
    begun: list[bool] = []
    closed: list[bool] = []

    def step() -> Op[None]:
        begun.append(True)
        try:
            yield NOW
            yield NOW
        finally:
            closed.append(True)

    def work() -> None:
        try:
            run(step())
        except KeyboardInterrupt:
            assert closed == begun, where[-1]
            raise

    moment, where = 0, list[str]()
    while interrupted_at(moment, work, where):
        moment += 1
        begun.clear()
        closed.clear()
    assert moment > 5


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_an_interrupt_while_the_server_is_away_is_settled_later(house: Any) -> None:
    proxy = house.proxy()

    class Away(Interrupted):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            try:
                return super().execute_command(*args, **options)
            except KeyboardInterrupt:
                proxy.refuse()
                raise

    from redis.backoff import NoBackoff
    from redis.retry import Retry

    client = Away(host=proxy.host, port=proxy.port, retry=Retry(NoBackoff(), 0))
    lock = KeyLock(client, house.key)
    client.when = "SET"
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    assert house.eye.exists(house.key)
    proxy.restore()
    assert lock.acquire()
    assert lock.release()
    client.close()
