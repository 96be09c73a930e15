"""PostgreSQL's functions take a step in one statement, beside processes that take it in several."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from store.test_connections import site  # noqa: F401
from store.test_lines import claim_of

from interlock.core.acquire import AcquireCall, acquire
from interlock.core.claims import WRITER_UNITS, Claim
from interlock.core.queue import REFUSED, EnterResult, Granted
from interlock.django import locks
from interlock.django.folding import Promoted, promoted_in
from interlock.django.models import Claim as Record
from interlock.django.store import OrmStore
from interlock.django.waiters import LineWaiters
from interlock.runtime.sync import run
from tests.servers import Proxy


@pytest.fixture
def stores() -> Iterator[tuple[OrmStore, OrmStore]]:
    """One that uses the functions, and one of a process that does not."""
    folded, unfolded = OrmStore("default", max_connections=16), OrmStore("default", max_connections=16)
    unfolded.register._functions = None
    yield folded, unfolded
    folded.close()
    unfolded.close()


def enter(store: OrmStore, claim: Claim, wakeup: Any = None, again: bool = False) -> EnterResult:
    """Ask once, or wait in line if there is a wake-up."""
    return run(store.enter(claim, wakeup, wakeup is not None, again))


def test_a_pair_is_two_statements(site: Callable[..., None]) -> None:  # noqa: F811
    place = connections.settings["default"]
    with Proxy(place["HOST"], int(place["PORT"])) as proxy:
        site(HOST=proxy.host, PORT=str(proxy.port))
        with locks.lock("a"):
            pass
        assert b"interlock_claim_enter" in proxy.sent
        assert b"interlock_claim_leave" in proxy.sent
        assert b"RETURNING" not in proxy.sent


def test_who_leaves_promotes_those_who_fit_and_nobody_behind_them(stores: tuple[OrmStore, OrmStore]) -> None:
    folded, _ = stores
    writer, last = claim_of("a", WRITER_UNITS, WRITER_UNITS), claim_of("a", WRITER_UNITS, WRITER_UNITS)
    readers, late = [claim_of("a", 1, WRITER_UNITS) for _ in range(2)], claim_of("a", 1, WRITER_UNITS)
    held = enter(folded, writer)
    wakeups = {claim.id: folded.thread_wakeup() for claim in (*readers, last, late)}
    for claim in (*readers, last, late):
        assert enter(folded, claim, wakeups[claim.id]).state == "pending"
    assert enter(folded, claim_of("a", 1, WRITER_UNITS)) == REFUSED
    assert run(folded.leave(writer))
    told = [wakeups[claim.id].wait(5) for claim in readers]
    assert [each.id for each in told] == [claim.id for claim in readers]
    assert held.fence < told[0].fence < told[1].fence
    assert [wakeups[claim.id].wait(0) for claim in (last, late)] == [None, None]
    assert run(folded.leave(readers[0]))
    assert run(folded.leave(last))  # it gives up, so that the reader behind it fits beside the other
    assert wakeups[late.id].wait(5).fence > told[1].fence


def test_a_waiter_of_either_kind_gets_the_lock_of_the_other(stores: tuple[OrmStore, OrmStore]) -> None:
    for holder, waiter in (stores, stores[::-1]):
        first, second = claim_of("a"), claim_of("a")
        assert enter(holder, first).state == "using"
        wakeup = waiter.thread_wakeup()
        if enter(waiter, second, None).state == "refused":
            assert enter(waiter, second, wakeup).state == "pending"
        assert run(holder.leave(first))
        message = wakeup.wait(5)
        assert isinstance(message, Granted) or enter(waiter, second, wakeup, again=True).state == "using"
        assert run(waiter.leave(second))


@pytest.mark.parametrize("capacity", [1, 2, WRITER_UNITS], ids=["exclusive", "semaphore", "read and write"])
def test_processes_with_and_without_the_functions_exclude_each_other(
    stores: tuple[OrmStore, OrmStore], capacity: int
) -> None:
    inside: list[int] = []
    mutex = threading.Lock()
    taken = []

    def work(number: int) -> None:
        store = stores[number % 2]
        for round in range(8):
            units = WRITER_UNITS if capacity == WRITER_UNITS and (number + round) % 3 else 1
            now = time.monotonic()
            held = run(acquire(store, AcquireCall(claim_of("a", units, capacity), now, now + 60, True)))
            assert held is not None
            with mutex:
                inside.append(units)
                assert sum(inside) <= capacity
                taken.append(held.fence)
            time.sleep(0)
            with mutex:
                inside.remove(units)
            assert run(store.leave(held.claim))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert len(set(taken)) == len(taken) == 48


def test_a_holder_whose_lease_has_ended_may_still_commit(stores: tuple[OrmStore, OrmStore]) -> None:
    folded, _ = stores
    first, second, third = (claim_of("a") for _ in range(3))
    known = LineWaiters.of("default")
    assert enter(folded, first).state == "using"
    assert known.is_clean(first.id)
    Record.objects.filter(claim=first.id).update(until=1)
    assert enter(folded, second).state == "using"
    assert not known.is_clean(second.id)
    wakeup = folded.thread_wakeup()
    assert enter(folded, third, wakeup).state == "pending"
    assert run(folded.leave(second))
    assert wakeup.wait(5) is None  # it looks by itself, and then asks who is late
    assert enter(folded, third, wakeup, again=True).state == "using"
    assert not known.is_clean(third.id)


def test_without_the_functions_every_step_is_taken_one_by_one() -> None:
    with locks.lock("before"):
        call_command("migrate", "interlock", "0001", verbosity=0)
    try:
        with locks.lock("after"):
            assert locks.lock("after", timeout=0).acquire(blocking=False) is None
    finally:
        call_command("migrate", "interlock", verbosity=0)
    assert [each.state for each in Record.objects.all()] == ["done", "done"]


def test_another_level_of_isolation_takes_the_steps_one_by_one() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER ROLE CURRENT_USER SET default_transaction_isolation = 'repeatable read'")
    try:
        store = OrmStore("default")
        claim = claim_of("a")
        assert enter(store, claim).state == "using"
        assert store.register._functions is not None
        assert not store.register._functions._ready
        assert run(store.leave(claim))
        store.close()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER ROLE CURRENT_USER RESET default_transaction_isolation")


def test_the_migration_is_all_that_the_models_need() -> None:
    call_command("makemigrations", "interlock", check=True, dry_run=True, verbosity=0)


def test_a_notification_with_an_endless_number_says_that_somebody_is_to_look() -> None:
    assert promoted_in("somebody " + "9" * 5000) == Promoted("somebody", 0)
    assert promoted_in(f"somebody {2**63 - 1}") == Promoted("somebody", 2**63 - 1)
