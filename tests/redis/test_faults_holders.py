"""Holders and waiters in other processes are killed or stopped."""

import signal
from collections.abc import Callable
from pathlib import Path

from interlock.testing.actors import Actor
from interlock.testing.remote import Remote, logged
from interlock.testing.waiting import eventually, moment, since
from interlock.testing.world import World

TTL = 1.0
CRASH = 2.0  # seconds after which a waiter has the lock of a killed holder with that ttl, on a busy machine


def hold(process: Remote, name: str, ttl: float = TTL) -> int:
    """Let another process acquire a lock; return its fence."""
    fence: int = process.do(f"grant = locks.lock({name!r}, ttl={ttl}).acquire(); result = grant.fence")
    return fence


def test_a_waiter_has_the_lock_of_a_killed_holder_when_the_lease_ends(
    world: World, remote: Callable[[], Remote], bob: Actor
) -> None:
    holder = remote()
    fence = hold(holder, world.name)
    waiting = bob.start(world.connect().lock(world.name).acquire)
    world.until_waiting(1)
    holder.kill()
    killed = moment()
    grant = waiting.result(10)
    assert since(killed) < CRASH
    assert grant.fence > fence
    assert bob.do(grant.release) is True
    assert world.nothing_left()


def test_killed_waiters_delay_the_others_no_longer_than_their_own_leases(
    world: World, remote: Callable[[], Remote], ann: Actor, bob: Actor
) -> None:
    grant = ann.do(world.connect().lock(world.name).acquire)
    dead = [remote(), remote()]
    for number, each in enumerate(dead, 1):
        each.start(f"locks.lock({world.name!r}, ttl={TTL}).acquire()")
        world.until_waiting(number)
    waiting = bob.start(world.connect().lock(world.name).acquire)
    world.until_waiting(3)
    for each in dead:
        each.kill()
    began = moment()
    assert ann.do(grant.release) is True
    assert bob.do(waiting.result(10).release) is True
    assert since(began) < TTL + 1.0


def test_a_stopped_holder_is_followed_after_its_lease_and_learns_of_its_loss(
    world: World, remote: Callable[[], Remote], bob: Actor
) -> None:
    holder = remote()
    fence = hold(holder, world.name)
    waiting = bob.start(world.connect().lock(world.name).acquire)
    world.until_waiting(1)
    holder.signal(signal.SIGSTOP)
    grant = waiting.result(10)
    assert grant.fence > fence
    holder.signal(signal.SIGCONT)
    assert (
        holder.do("""
try:
    grant.check()
except interlock.LockLost:
    result = "lost"
""")
        == "lost"
    )
    assert holder.do("result = grant.release()") is False
    assert [view.id for view in world.eye.claims(world.name)] == [grant.id]
    assert bob.do(grant.release) is True


def test_a_stopped_waiter_that_comes_back_stands_in_line_again(
    world: World, remote: Callable[[], Remote], ann: Actor, bob: Actor
) -> None:
    grant = ann.do(world.connect().lock(world.name).acquire)
    sleeper = remote()
    sleeper.start(f"grant = locks.lock({world.name!r}, ttl={TTL}).acquire(); result = grant.fence")
    world.until_waiting(1)
    sleeper.signal(signal.SIGSTOP)
    waiting = bob.start(world.connect().lock(world.name).acquire)
    eventually(lambda: len(world.waiters()) == 2)
    eventually(lambda: len(world.waiters()) == 1)  # the sleeper's lease has ended
    assert ann.do(grant.release) is True
    later = waiting.result(5)
    sleeper.signal(signal.SIGCONT)
    assert bob.do(later.release) is True
    assert sleeper.answer() > later.fence
    assert sleeper.do("result = grant.release()") is True


COUNT = f"""
with interlock.connect(url, ttl={TTL}) as mine:
    for _ in range(60):
        with mine.lock("counted") as grant:
            log_next({{log!r}}, grant.fence)
"""


def test_processes_count_on_while_one_of_them_is_killed(remote: Callable[[], Remote], tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    victim, *others = [remote() for _ in range(4)]
    for each in (victim, *others):
        each.start(COUNT.format(log=str(log)))
    eventually(lambda: len(logged(str(log))[0]) > 20)
    victim.kill()
    for each in others:
        each.answer(60)
    counted_well(log, at_least=3 * 60)


def counted_well(log: Path, at_least: int) -> None:
    """Check the log of counters: no number is missing or there twice, and fences increase."""
    numbers, fences = logged(str(log))
    assert numbers == list(range(1, len(numbers) + 1))
    assert fences == sorted(set(fences))
    assert len(numbers) >= at_least
