"""Cancellations and interrupts during a request or a wait: no key is left, and a release is completed."""

import asyncio
from typing import Any

import pytest
import redis

from interlock.redis import KeyLock
from tests.support.tasks import cancelled

TURNS = 12


@pytest.mark.parametrize("sync_or_async", ["tasks"], indirect=True)
def test_a_cancelled_acquire_leaves_nothing(env: Any) -> None:
    proxy = env.proxy()
    lock = env.lock(client=env.client_through(proxy))
    proxy.delay(0.1)

    async def session() -> None:
        await lock.locked()
        sent = len(proxy.sent)
        task = asyncio.create_task(lock.acquire())
        await env.until(lambda: b"SET" in proxy.sent[sent:])
        await cancelled(task)

    env.call(session)
    assert not env.eye.exists(env.key)
    assert env.calls("set") == 1


@pytest.mark.parametrize("sync_or_async", ["tasks"], indirect=True)
def test_a_cancelled_acquire_gives_up_waiting_for_a_black_hole(env: Any) -> None:
    proxy = env.proxy()
    lock = env.lock(client=env.client_through(proxy, socket_timeout=None))

    async def session() -> None:
        await lock.locked()
        proxy.black_hole(passes_requests=True)
        task = asyncio.create_task(lock.acquire())
        await env.until(lambda: env.calls("set"))
        await cancelled(task)
        proxy.restore()
        assert await lock.acquire()

    env.call(session)


@pytest.mark.parametrize("sync_or_async", ["tasks"], indirect=True)
def test_a_cancelled_waiter_leaves_nothing(env: Any) -> None:
    lock = env.lock()
    env.eye.set(env.key, "somebody")

    async def session() -> None:
        task = asyncio.create_task(lock.acquire(timeout=20))
        await env.until(lambda: env.calls("set") >= 4)
        await cancelled(task)

    env.call(session)
    assert env.eye.get(env.key) == "somebody"


async def leaves_the_key(env: Any, task: "asyncio.Task[None]", turns: int) -> bool:
    """Cancel a task after so many turns of the loop; tell whether the key is left, and delete it."""
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return bool(await asyncio.to_thread(env.eye.delete, env.key))


@pytest.mark.parametrize("sync_or_async", ["tasks"], indirect=True)
@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock", "ClientLock", "IdentityLock"])
def test_a_release_that_is_cancelled_at_any_turn_is_done(env: Any, name: str) -> None:
    """redis/redis-py#3847: without a time limit the key would stay for ever."""
    locks = [env.lock(name) for _ in range(1, TURNS)]  # own clients: each detects the server's commands anew
    me = ("me",) if name == "IdentityLock" else ()

    async def session() -> list[int]:
        left = []
        for turn, lock in enumerate(locks, 1):
            assert await lock.acquire(*me)
            task = asyncio.create_task(lock.release(*me))
            if await leaves_the_key(env, task, turn):
                left.append(turn)
        return left

    assert env.call(session) == []


@pytest.mark.parametrize("sync_or_async", ["tasks"], indirect=True)
@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock", "ClientLock"])
def test_a_body_cancelled_at_any_turn_of_its_end_leaves_nothing(env: Any, name: str) -> None:
    locks = [env.lock(name) for _ in range(TURNS)]

    async def session() -> list[int]:
        left = []
        for turn, lock in enumerate(locks):
            inside, go = asyncio.Event(), asyncio.Event()

            async def body(lock: Any = lock, inside: Any = inside, go: Any = go) -> None:
                async with lock:
                    inside.set()
                    await go.wait()

            task = asyncio.create_task(body())
            await inside.wait()
            go.set()
            if await leaves_the_key(env, task, turn):
                left.append(turn)
        return left

    assert env.call(session) == []


class Interrupted(redis.Redis):
    """A client that raises an interrupt after a command of a kind was done."""

    when = ""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute a command, and then raise the interrupt."""
        reply = super().execute_command(*args, **options)
        if args[0] == self.when:
            self.when = ""
            raise KeyboardInterrupt
        return reply


@pytest.mark.parametrize("sync_or_async", ["threads"], indirect=True)
def test_an_acquire_interrupted_after_its_effect_leaves_nothing(env: Any) -> None:
    with Interrupted(host=env.server.host, port=env.server.port) as client:
        client.when = "SET"
        with pytest.raises(KeyboardInterrupt):
            KeyLock(client, env.key).acquire()
    assert not env.eye.exists(env.key)
