"""Arguments: each is checked at the call, and the message says what to do."""

import asyncio
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from interlock.api.connect import connect
from interlock.core.errors import InvalidArgument, LockError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld, LockKind

NAN, INF = math.nan, math.inf
HUGE = 10**400  # no float can hold it
TOO_LONG = 10**5000  # nor can it be written
UNLIKE = [Decimal(5), Fraction(5), 5j]  # not accepted as seconds or permits
BAD_TTL = [
    0,
    0.0,
    -1,
    -0.5,
    0.05,
    0.0999,
    NAN,
    INF,
    -INF,
    True,
    False,
    "30",
    b"30",
    [30],
    1e12,
    HUGE,
    TOO_LONG,
    *UNLIKE,
]
BAD_TIMEOUT = [-0.5, -2, -INF, NAN, True, False, "5", [5], -HUGE, *UNLIKE]
BAD_NAME = ["", "\0", "a\0b", "\ud800", "a\udfffb", "x" * 1001, "🔒" * 1001, None, 1, b"name", ["name"], True]
BAD_COUNT = [0, -1, 1.0, 1.5, "1", None, True, False, NAN, 1 << 40, HUGE, TOO_LONG, *UNLIKE]


def kind_of(value: object) -> str:
    """Return the type of a value for the name of a test; the value itself may be too long."""
    return type(value).__name__


def refuses(call: Callable[[], Any], *words: str) -> None:
    """Check that `call` raises InvalidArgument, a ValueError, with a helpful message that contains these words."""
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, LockError)
    message = str(caught.value)
    assert len(message) > 20
    assert all(word in message for word in words), message


@pytest.mark.parametrize("ttl", BAD_TTL, ids=kind_of)
def test_a_bad_ttl_is_refused_when_the_lock_is_made(
    world: ContractWorld, kind: LockKind, locks: Any, ttl: Any
) -> None:
    refuses(partial(kind.make, locks, world.name, ttl=ttl), "ttl")


def test_the_ttl_of_the_connection_is_the_default(world: ContractWorld, ann: Actor) -> None:
    for ttl, locks in ((30, world.connect()), (7, world.connect(ttl=7))):
        grant = ann.do(locks.lock(world.fresh_name()).acquire)
        assert ttl - 5 < grant.expires_in <= ttl


def test_a_bad_timeout_is_refused_by_acquire(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    for timeout in BAD_TIMEOUT:
        refuses(partial(ann.do, lock.acquire, timeout=timeout), "timeout")
    assert world.nothing_left()


@pytest.mark.parametrize("timeout", [5, 0, 0.5, NAN, INF])
def test_a_try_with_a_timeout_is_refused_as_in_threading(
    world: ContractWorld, kind: LockKind, ann: Actor, timeout: Any
) -> None:
    lock = kind.make(world.connect(), world.name)
    refuses(partial(ann.do, lock.acquire, False, timeout), "timeout")
    refuses(partial(ann.do, lock.acquire, blocking=False, timeout=timeout), "timeout")


@pytest.mark.parametrize(
    "how", [(), (True,), (True, -1), (True, None), (False,), (False, -1), (False, None), (True, 0), (0,), (1,)]
)
def test_blocking_and_timeout_combine_as_in_threading(
    world: ContractWorld, kind: LockKind, ann: Actor, how: Any
) -> None:
    lock = kind.make(world.connect(), world.name)
    grant = ann.do(lock.acquire, *how)
    assert grant
    assert ann.do(grant.release) is True


def test_the_with_of_the_other_colour_says_which_one_to_use(world: ContractWorld, kind: LockKind) -> None:
    lock = kind.make(world.connect(), world.name)

    def work() -> None:
        with lock:
            raise AssertionError("it was entered")

    async def task() -> None:
        async with lock:
            raise AssertionError("it was entered")

    if world.sync_or_async == "threads":
        refuses(lambda: asyncio.run(task()), "Use `with`")
    else:
        refuses(work, "Use `async with`")
    assert world.nothing_left()


@pytest.mark.parametrize("name", BAD_NAME, ids=kind_of)
def test_a_bad_name_is_refused_by_whatever_takes_a_name(
    world: ContractWorld, locks: Any, ann: Actor, name: Any
) -> None:
    refuses(partial(locks.all, name), "name")
    refuses(partial(ann.do, locks.evict, name), "name")
    if name is not None:
        refuses(partial(ann.do, locks.claims, name), "name")


@pytest.mark.parametrize("space", ["\0", "a\0b", "\ud800", "x" * 1001, 1, b"app", True])
def test_a_bad_namespace_is_refused(world: ContractWorld, space: Any) -> None:
    refuses(partial(world.connect, namespace=space), "namespace")


@pytest.mark.parametrize("label", ["\0", "\udc80", "x" * 201, 1, b"label", True])
def test_a_bad_label_is_refused(world: ContractWorld, kind: LockKind, locks: Any, label: Any) -> None:
    refuses(partial(kind.make, locks, world.name, label=label), "label")


@pytest.mark.parametrize("count", BAD_COUNT, ids=kind_of)
def test_bad_permits_and_units_are_refused(world: ContractWorld, locks: Any, count: Any) -> None:
    refuses(partial(locks.semaphore, world.name, count), "permits")
    refuses(partial(locks.semaphore, world.name, 3, units=count), "units")


def test_a_bad_on_lost_is_refused(world: ContractWorld, kind: LockKind, locks: Any) -> None:
    refuses(lambda: kind.make(locks, world.name, on_lost="call me"), "on_lost")


@pytest.mark.parametrize("renew", [1, 0, "yes", None, 10.0])
def test_a_bad_renew_is_refused(world: ContractWorld, kind: LockKind, locks: Any, renew: Any) -> None:
    refuses(partial(kind.make, locks, world.name, renew=renew), "renew")


def test_all_refuses_nothing_a_name_twice_and_foreign_locks(world: ContractWorld, locks: Any) -> None:
    others = world.connect()
    refuses(lambda: locks.all(), "at least one")
    refuses(lambda: locks.all("a", "b", "a"), "twice")
    refuses(lambda: locks.all("a", locks.lock("a")), "twice")
    refuses(lambda: locks.all("a", others.lock("b")), "connection")


def test_bad_limits_and_lists_are_refused(world: ContractWorld, locks: Any, ann: Actor) -> None:
    for at_least in [-1, True, "5", NAN, None]:
        refuses(partial(locks.lock, world.name, at_least=at_least), "at_least")
    refuses(partial(locks.lock, world.name, ttl=5, at_least=5.1), "at_least")
    refuses(partial(locks.lock, world.name, at_most=1, at_least=2), "at_least")
    for at_most in [0, -1, "1", True, NAN]:
        refuses(partial(locks.lock, world.name, at_most=at_most), "at_most")
    for keep in [0, -1, 367 * 86400, "1", True, NAN]:
        refuses(partial(locks.once, world.name, keep=keep), "keep")
    for items in ([], ["a", "a"], "abc", [1, 2]):
        refuses(partial(locks.one_of, world.name, items), "items")
    refuses(partial(ann.do, locks.lock(world.name).acquire, cancel=1), "is_set")


def test_limits_are_accepted_and_values_beyond_are_refused(world: ContractWorld, locks: Any, ann: Actor) -> None:
    most = 2**30 - 1
    assert ann.do(locks.semaphore(world.name, most, units=most).acquire, False).held
    refuses(partial(locks.semaphore, world.name, most + 1), "permits")
    years, year = 10 * 365 * 86400, 366 * 86400
    assert ann.do(locks.lock(world.fresh_name(), ttl=years).acquire).expires_in > years - 9
    refuses(partial(locks.lock, world.name, ttl=years + 1), "ttl")
    locks.once(world.name, keep=year)
    refuses(partial(locks.once, world.name, keep=year + 1), "keep")
    many = [str(number) for number in range(1025)]
    locks.one_of(world.name, many[:-1])
    refuses(partial(locks.one_of, world.name, many), "items")
    refuses(partial(locks.lock, world.name, ttl="x" * 58), "'" + "x" * 58 + "'")
    refuses(partial(locks.lock, world.name, ttl="x" * 59), "'" + "x" * 59 + "…")


def test_a_lease_lasts_thirty_seconds_or_what_is_said(world: ContractWorld, locks: Any, ann: Actor) -> None:
    assert 29 < ann.do(locks.lock(world.name).acquire).expires_in <= 30
    assert ann.do(locks.lock(world.fresh_name(), ttl=1, at_most=10).acquire).expires_in <= 1


def test_what_an_option_means_nothing_for_refuses_it() -> None:
    for option in ("password", "dial"):
        with pytest.raises(InvalidArgument, match=f"memory:// does not accept {option}="):
            connect("memory://", **{option: lambda: "x"})
    connect("postgresql://host/db", password=lambda: "x").close()


def test_an_event_loop_does_not_wait_for_its_own_thread() -> None:
    async def story() -> None:
        with connect("memory://") as locks, locks.lock("a"):
            with pytest.raises(InvalidArgument, match="waits for it"):
                locks.lock("a").acquire()
            locks.lock("b").acquire().release()

    asyncio.run(story())
