"""The ORM store between real processes, and on connections that others know nothing of."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.handlers.base import BaseHandler
from django.db import DatabaseError, connections, transaction
from django.db.utils import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path
from store.shelf.models import Item

from interlock import LockTimeout, StoreError
from interlock.core.claims import PENDING, QUEUED, SEPARATOR, USING, WRITER_UNITS, LockSpec
from interlock.core.claims import Claim as ClaimMade
from interlock.core.errors import UnknownOutcome
from interlock.django import alocks, claimlines, locks, occupies, occupy
from interlock.django import pool as pools
from interlock.django.models import Claim
from interlock.django.register import Lines, NotCreated, TableStep
from interlock.django.statements import Statement
from interlock.django.store import OrmStore, StepServer
from interlock.runtime.sync import ThreadEvent, fresh_id, run
from interlock.testing.waiting import eventually, moment, since

LITTLE = 0.3  # seconds
PROGRAM = Path(__file__).with_name("counting.py")


@pytest.fixture(autouse=True)
def claims_apart(settings_for_sqlite: None) -> None:
    """SQLite lets one write at a time: where transactions write, the claims are in a file of their own."""


def surroundings() -> dict[str, str]:
    """Return the environment of a process on the databases of this one."""
    fields = ("ENGINE", "NAME", "HOST", "PORT", "USER", "PASSWORD", "OPTIONS")
    databases = {
        alias: {field: connections[alias].settings_dict[field] for field in fields} for alias in ("default", "other")
    }
    told = {"INTERLOCK_TEST_DATABASES": json.dumps(databases, default=str),
            "INTERLOCK_TEST_PLACES": json.dumps(settings.INTERLOCK)}  # fmt: skip
    return {**os.environ, **told}


def start(work: str, rounds: int, stdin: int | None = None) -> "subprocess.Popen[str]":
    """Start a process on the databases of this one."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), work, str(rounds)],
        env=surroundings(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_lose_no_update() -> None:
    Item.objects.create(pk=1, name="Emma")
    processes = [start("add", 15) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    for process in processes:
        process.communicate()
    assert Item.objects.get().count == 45


def test_the_lock_of_a_killed_process_is_free_when_its_lease_ends() -> None:
    process = start("hold", 60)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "held\n"
        assert locks.lock("held").acquire(timeout=0) is None
        process.kill()
        process.wait()
    killed = moment()
    with locks.lock("held", timeout=10):
        assert since(killed) < 3


def test_a_forked_child_leaves_the_connections_of_its_parent_alone() -> None:
    with locks.lock("parent") as grant:
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            status = 1
            try:
                with locks.lock("child", timeout=10):
                    status = 0 if locks.lock("parent").acquire(timeout=0) is None else 2
                locks.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert grant.renew()
        assert [view.name for view in locks.claims()] == ["parent"]


def test_a_transaction_does_not_hide_a_claim() -> None:
    def attempt() -> bool:
        grant = locks.lock("a").acquire(timeout=0)
        return grant is not None

    with transaction.atomic(), locks.lock("a"), ThreadPoolExecutor(1) as pool:
        assert not pool.submit(attempt).result()


def test_a_rollback_does_not_take_a_claim_back() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        grant = locks.lock("a").acquire()
        raise ZeroDivisionError
    assert grant.held
    assert [view.name for view in locks.claims()] == ["a"]
    grant.release()


@occupies("page")
def page(request: HttpRequest) -> HttpResponse:
    """A view that adds one to the only item."""
    item = Item.objects.get()
    Item.objects.filter(pk=item.pk).update(count=item.count + 1)
    return HttpResponse(f"{connections['default'].in_atomic_block}")


async def async_page(request: HttpRequest) -> HttpResponse:
    """An async view that adds one to the only item."""
    async with occupy(Item, pk=1, timeout=30) as item:
        item.count += 1
        await item.asave()
    return HttpResponse()


urlpatterns = [path("page", page), path("async", async_page)]


def test_requests_under_atomic_requests_lose_no_update() -> None:
    Item.objects.create(pk=1, name="Emma")

    def client(_: int) -> bytes:
        try:
            handler = BaseHandler()
            handler.load_middleware()
            return bytes(handler.get_response(RequestFactory().get("/page")).content)
        finally:
            connections.close_all()

    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        for alias in ("default",):
            connections.settings[alias]["ATOMIC_REQUESTS"] = True
        try:
            with ThreadPoolExecutor(6) as pool:
                assert set(pool.map(client, range(24))) == {b"True"}
        finally:
            connections.settings["default"]["ATOMIC_REQUESTS"] = False
    assert Item.objects.get().count == 24


def test_async_views_lose_no_update() -> None:
    Item.objects.create(pk=1, name="Emma")

    async def story() -> None:
        handler = BaseHandler()
        handler.load_middleware(is_async=True)
        answers = await asyncio.gather(
            *(handler.get_response_async(RequestFactory().get("/async")) for _ in range(8))
        )
        assert {each.status_code for each in answers} == {200}
        await alocks.close()

    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        async_to_sync(story)()
    assert Item.objects.get().count == 8


def test_a_cancelled_task_leaves_nothing_behind() -> None:
    async def story() -> None:
        for _ in range(10):
            task = asyncio.ensure_future(alocks.lock("a").acquire())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await alocks.claims() == []
        await alocks.close()

    async_to_sync(story)()


def test_a_broken_connection_is_an_unknown_outcome_and_the_next_works() -> None:
    lines: Lines = locks["default"].store.register
    with locks.lock("before"):
        pass

    def step(connection: Any) -> None:
        raise (
            OperationalError("server closed the connection unexpectedly")
            if connection.vendor != "sqlite"
            else (OperationalError("disk I/O error"))
        )

    with pytest.raises(UnknownOutcome):
        lines._do(step)
    with locks.lock("after", timeout=5):
        pass


def end_all_sessions() -> None:
    """Let the server end the sessions of all others; SQLite has no server."""
    ends = {
        "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database()",
        "mysql": "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND db = database()",
        "sqlite": "SELECT 1",
    }
    with connections["default"].cursor() as cursor:
        cursor.execute(ends[connections["default"].vendor])
        found = cursor.fetchall()
        if connections["default"].vendor == "mysql":
            for (session,) in found:
                cursor.execute(f"KILL {session}")


def test_locks_go_on_after_the_server_ended_all_sessions() -> None:
    grant = locks.lock("held").acquire()
    end_all_sessions()
    with locks.lock("a", timeout=10):
        assert locks.lock("held").acquire(timeout=0) is None
    assert grant is not None
    assert grant.release()


def test_what_the_database_refuses_is_no_unknown_outcome() -> None:
    lines: Lines = locks["default"].store.register

    def step(connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")

    with pytest.raises(StoreError) as caught:
        lines._do(step)
    assert not isinstance(caught.value, UnknownOutcome)
    assert isinstance(caught.value.__cause__, DatabaseError)


def test_a_database_that_is_not_there_is_a_clear_error() -> None:
    nowhere = {**connections.settings["default"], "HOST": "127.0.0.1", "PORT": "1", "NAME": "/nowhere/at/all"}
    connections.settings["gone"] = nowhere
    store = OrmStore("gone")
    try:
        with pytest.raises(StoreError, match="can't be reached"):
            run(store.look(SEPARATOR + "a"))
    finally:
        del connections.settings["gone"]
        store.close()


def claim_of(name: str, units: int = 1, capacity: int = 1) -> ClaimMade:
    """Return a new claim."""
    return ClaimMade(fresh_id(), LockSpec(SEPARATOR + name, units, capacity, 30.0))


def take(lines: Lines, claim: ClaimMade) -> int | None:
    """Create a record and promote it if that is allowed."""
    lines._create(claim, None)
    return lines._promote(claim)


@pytest.fixture
def lines() -> Any:
    store = OrmStore("default", max_connections=8)
    yield store.register
    store.close()


def test_fences_go_on_after_old_records_are_swept_and_the_clock_is_set_back(lines: Lines) -> None:
    first = claim_of("a")
    fence = take(lines, first)
    assert fence is not None
    assert lines._evict(first.spec.key, first.id)
    ahead = fence + 10**15  # as if it was issued before the clock went back
    Claim.objects.filter(fence=fence).update(fence=ahead)
    assert take(lines, claim_of("a")) == ahead + 1
    lines._evict(SEPARATOR + "a", None)
    assert lines.sweep() == 2
    assert Claim.objects.get().claim == claimlines.FLOOR
    again = take(lines, claim_of("a"))
    assert again == ahead + 2
    assert take(lines, claim_of("b")) == ahead + 2
    assert lines.sweep() == 0


def test_each_sweep_raises_the_floor_and_leaves_nothing_else(lines: Lines) -> None:
    fences = []
    for _ in range(3):
        claim = claim_of("a")
        fences.append(take(lines, claim))
        assert lines._delete(claim)
        lines.sweep()  # the first release has swept already
        assert [(each.claim, each.fence) for each in Claim.objects.all()] == [(claimlines.FLOOR, fences[-1])]
    assert None not in fences


@pytest.mark.parametrize("capacity", [1, 5, WRITER_UNITS], ids=["exclusive", "semaphore", "read and write"])
def test_nobody_passes_one_that_has_stood_aside(lines: Lines, capacity: int) -> None:
    holder, waiter, late = (claim_of("a", capacity, capacity) for _ in range(3))
    assert take(lines, holder) is not None
    assert take(lines, waiter) is None
    assert lines._update(waiter, QUEUED)  # its flag is down, its place is kept
    assert lines._evict(holder.spec.key, holder.id)  # who releases would promote it at once, where that is folded
    assert take(lines, late) is None
    assert lines._update(waiter, PENDING)
    assert lines._update(late, QUEUED)
    assert lines._promote(waiter) is not None
    lines._evict(SEPARATOR + "a", None)


def test_a_connection_that_broke_is_not_used_again_nor_are_its_siblings(lines: Lines) -> None:
    pool = lines.pool
    with pool.connection() as one, pool.connection() as sibling:
        assert sibling is not one

    def broken() -> None:
        with pool.connection():
            raise OperationalError("disk I/O error" if one.vendor == "sqlite" else "server closed the connection")

    with pytest.raises(UnknownOutcome):
        broken()
    with pool.connection() as other, pool.connection() as another:
        assert not {other, another} & {one, sibling}


def test_a_connection_that_was_idle_for_long_is_asked_whether_it_lives(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = lines.pool
    with pool.connection() as first:
        pass
    asked: list[bool] = []

    def lives(answer: bool) -> bool:
        asked.append(answer)
        return answer

    monkeypatch.setattr(first, "is_usable", lambda: lives(True))
    with pool.connection() as same:
        assert (same is first, asked) == (True, [])  # it was used just now
    monkeypatch.setattr(pools, "STALE", 0.0)
    with pool.connection() as same:
        assert (same is first, asked) == (True, [True])
    monkeypatch.setattr(first, "is_usable", lambda: lives(False))
    with pool.connection() as other:
        assert (other is first, asked) == (False, [True, False])


def test_sharers_get_fences_of_their_own(lines: Lines) -> None:
    start = threading.Barrier(6)

    def one(_: int) -> int | None:
        start.wait(20)
        return take(lines, claim_of("a", 1, 6))

    with ThreadPoolExecutor(6) as pool:
        fences = [each for each in pool.map(one, range(6)) if each is not None]
    assert len(set(fences)) == len(fences) > 0


def test_where_an_update_can_not_read_its_own_table_the_line_is_locked(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = type(connections["default"].features)
    monkeypatch.setattr(features, "update_can_self_select", False)
    first, second = claim_of("a"), claim_of("a")
    fence = take(lines, first)
    assert fence is not None
    assert take(lines, second) is None
    assert lines._evict(first.spec.key, first.id)
    later = lines._promote(second)
    assert later is not None
    assert later > fence
    assert lines._delete(second)

    def work(_: int) -> None:
        with locks.lock("counted", timeout=60):
            seen = box[0]
            time.sleep(0)
            box[0] = seen + 1

    box = [0]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(20)))
    assert box == [20]


def test_an_extension_that_came_after_the_end_of_the_lease_does_not_count(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claim_of("a")
    take(lines, claim)
    assert lines._renew([claim]) == [True]
    row = Claim.objects.get(claim=claim.id)
    count_it = Statement.count

    def clock() -> int:
        found: int = Claim.objects.values_list(claimlines.began(), flat=True).get(pk=row.pk)
        return found

    def count_late(self: Statement, connection: Any, **given: Any) -> Any:
        """Let the old lease end after the statement, before the look at the clock."""
        count = count_it(self, connection, **given)
        if self.words.startswith("UPDATE") and "ttl" in given:
            monkeypatch.setattr(Statement, "count", count_it)
            assert count == 1
            eventually(lambda: clock() > end)
        return count

    # A lease that is about to end.
    end = clock() + int(LITTLE * 1e6)
    Claim.objects.filter(pk=row.pk).update(until=end)
    monkeypatch.setattr(Statement, "count", count_late)
    assert lines._renew([claim]) == [False]
    assert Claim.objects.get(claim=claim.id).state == "done"


def test_claims_have_a_connection_of_their_own(lines: Lines) -> None:
    item = Item.objects.create(name="Emma")
    with lines.pool.connection() as connection:
        assert connection is not connections["default"]
        assert connection.get_autocommit()
    with occupy(item):
        with pytest.raises(LockTimeout), ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: occupy(Item, pk=item.pk, timeout=0.1).__enter__()).result()
    assert USING not in {view.state for view in locks.claims()}


def test_what_tasks_still_hold_at_the_exit_is_released() -> None:
    process = start("leave_to_the_exit", 2)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert [view.name for view in locks.claims()] == []
    assert Claim.objects.using(locks.store.alias).filter(name__startswith="left").exists()


def test_a_waiter_that_could_not_be_written_is_forgotten(lines: Lines) -> None:
    claim = claim_of("a")

    with ThreadPoolExecutor(1) as beside, ExitStack() as lent:
        for _ in range(8):
            lent.enter_context(lines.pool.connection())
        with pytest.raises(NotCreated):
            beside.submit(lines._create, claim, ThreadEvent()).result(20)
        assert claim.id not in lines.waiters.ids_of(claim.spec.key)
        if lines.enters_at_once:
            with pytest.raises(NotCreated):
                beside.submit(lines._enter, claim, ThreadEvent(), True).result(20)
            assert claim.id not in lines.waiters.ids_of(claim.spec.key)


def test_a_child_that_was_forked_while_its_parent_swept_sweeps(lines: Lines) -> None:
    for _ in range(3):  # the first release sweeps
        claim = claim_of("a")
        assert take(lines, claim) is not None
        assert lines._delete(claim)
    with lines._sweeper._sweeping:  # as a thread of the parent does
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            status = 1
            try:
                status = 0 if lines.sweep() else 2
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_interrupt_waits_for_the_step_that_is_on_its_way() -> None:
    handled, raised = threading.Event(), threading.Event()
    early: list[bool] = []

    class Stop(BaseException):
        pass

    def handler(*_: object) -> None:
        handled.set()
        raise Stop

    def step() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        handled.wait(20)
        early.append(raised.wait(0.3))

    async def main() -> None:
        server = StepServer()
        try:
            with pytest.raises(Stop):
                server.ask(TableStep(step, ()))
            raised.set()
        finally:
            server.close()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert early == [False]
