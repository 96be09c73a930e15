"""`orm:`: locks by Django's ORM alone, with the pending protocol on a table of records, on any database.

Each request is one or a few statements, committed on connections of the store's own threads: no transaction or
rollback of the site affects a record.  The store is not optimized for speed; see docs/stores/django.md.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeVar

from django.db import DatabaseError, IntegrityError, InterfaceError, ProgrammingError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now

from interlock.core.claims import (
    DONE,
    MICROS,
    PENDING,
    SEPARATOR,
    USING,
    Check,
    Claim,
    ClaimView,
    State,
    namespace_of,
)
from interlock.core.errors import LockError, StoreError, UnknownOutcome
from interlock.core.queue import PendingRecord
from interlock.django.models import Record
from interlock.runtime import clock
from interlock.runtime._threads import perform, start_background
from interlock.runtime.process import HOST, in_forked_child, pid

T = TypeVar("T")
POLL = 0.25  # seconds between two polls of a waiter, which gets no notifications from other processes
SWEEP_EVERY = 64  # releases
OVER = timedelta(minutes=1)  # the time after which an expired record is deleted
UNUSED = timedelta(hours=1)  # the time after which the record of a name's last fence is deleted
FENCE_ATTEMPTS = 100  # attempts to issue a fence
CHUNK = 500  # ids in one statement
MAX_COLUMN_LENGTH = 255  # characters of a column for host, thread or label
LEFT = ExpressionWrapper(F("until") - Now(), output_field=DurationField())
_inherited: list[object] = []
"""Connections of the parent in a forked child; collecting them would end the parent's sessions on the server."""


def hashed(key: str) -> str:
    """Return the SHA-256 of a key: a collation or an index prefix could take two names for one."""
    return sha256(key.encode()).hexdigest()


def fitting(text: str) -> str:
    """Return a text cut to the length of its column."""
    return text.replace("\0", "").encode(errors="replace").decode()[:MAX_COLUMN_LENGTH]


class Workers:
    """Threads that send requests to a database, each on its own connection of Django.

    No ThreadPoolExecutor: a signal handler that locks or closes would wait for the executor's lock, which its own
    thread may have.  Each operation here is one of a SimpleQueue or a list, so the handler may come in between.

    Args:
        alias: the alias of the database.
        most: the number of threads.
    """

    def __init__(self, alias: str, most: int) -> None:
        self._alias = alias
        self._requests: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[Any] = []
        self._room: list[None] = [None] * most  # one for each thread that may be started
        self._idle: list[None] = []  # one for each thread that has done its requests
        self._closed = False
        self._open: dict[int, Any] = {}
        in_forked_child(partial(_inherited.append, self._open))

    def do(self, step: Callable[..., T], *args: object) -> T:
        """Run a request in one of the threads, and wait for its result.

        Raises:
            StoreError: the database refused it, or can't be reached: nothing was done.
            UnknownOutcome: the request may have been performed or not.
        """
        future: Future[T] = Future()
        self._requests.put(partial(perform, future, self._take, step, *args))
        lost = self._closed  # it may be behind the end of the requests
        if not lost and not _taken(self._idle) and _taken(self._room):
            thread = start_background("interlock-orm", _work, self._requests, self._idle)
            lost = thread is None
            self._threads += [thread] if thread else []
        if lost and future.cancel():
            raise StoreError("This connection is closed, or no thread can start. Connect again.")
        return future.result()

    def _take(self, step: Callable[..., T], *args: object) -> T:
        connection = connections[self._alias]
        try:
            if connection.connection is None:
                self._connect(connection)
        except DatabaseError as error:
            raise StoreError(f"Cannot connect to the database {self._alias!r}: {error}") from error
        try:
            return step(*args)
        except (DatabaseError, InterfaceError) as error:
            if isinstance(error, ProgrammingError) or "no such table" in str(error):
                raise StoreError(
                    f"The database {self._alias!r} refused: {error}. If its table is missing, run "
                    f"`manage.py migrate interlock --database {self._alias}`."
                ) from error
            connection.close()
            raise UnknownOutcome(f"A statement on the database {self._alias!r} failed: {error}") from error

    def _connect(self, connection: BaseDatabaseWrapper) -> None:
        if id(connection) not in self._open:
            self._open[id(connection)] = connection
            connection.inc_thread_sharing()  # the thread that closes the store closes the connection
        connection.ensure_connection()
        connection.set_autocommit(True)
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:  # local time would go back by an hour once a year
                cursor.execute("SET time_zone = '+00:00'")

    def close_connections(self) -> None:
        """Close all connections; the next request connects again."""
        # In a thread of its own: Django refuses to close a connection where an event loop runs, and another loop than
        # the one that has ended may close what that loop has left open.
        thread = start_background("interlock-orm", self._close_all)
        if thread is None:
            self._close_all()
        else:
            thread.join()

    def _close_all(self) -> None:
        for connection in list(self._open.values()):
            with suppress(DatabaseError, InterfaceError):  # it was broken already
                connection.close()

    def close(self) -> None:
        """End the threads after their last requests."""
        self._closed = True
        self._requests.put(None)
        for thread in self._threads:
            thread.join()
        self.close_connections()

    def __del__(self) -> None:
        self._requests.put(None)


def _work(requests: "SimpleQueue[Callable[[], object] | None]", idle: list[None]) -> None:
    """Perform requests until None comes; not a method, because a thread would keep the object of a dropped client."""
    while True:
        request = requests.get()
        if request is None:
            requests.put(None)  # for the next thread
            return
        request()
        del request  # before the wait: it has the object too
        idle.append(None)


def _taken(places: list[None]) -> bool:
    """Take a place, in one operation; False if there is none."""
    try:
        places.pop()
    except IndexError:
        return False
    return True


class OrmRecords:
    """The requests about the records of all lines in one database; `workers` performs them.

    Args:
        alias: the alias of the database.
        most: the maximum number of connections of this process to it.
    """

    def __init__(self, alias: str, most: int) -> None:
        self._alias = alias
        self.workers = Workers(alias, most)
        self._releases = count(1)

    @property
    def _all(self) -> Any:
        return Record.objects.using(self._alias)

    def _live(self, claim: Claim) -> Any:
        return self._all.filter(claim=claim.id, until__gt=Now())

    def create(self, claim: Claim) -> None:
        namespace, _, name = claim.spec.key.partition(SEPARATOR)
        # If the record exists, an earlier request, whose reply was lost, has created it.
        with suppress(IntegrityError):
            self._all.create(
                claim=claim.id, key=hashed(claim.spec.key), namespace=namespace, name=name, state=PENDING,
                units=claim.spec.units, capacity=claim.spec.capacity, host=fitting(HOST), pid=pid(),
                thread=fitting(claim.who), label=fitting(claim.spec.label),
                since=int(clock.time_of_day() * MICROS), until=Now() + timedelta(seconds=claim.spec.ttl),
            )  # fmt: skip

    def list_line(self, key: str) -> list[PendingRecord]:
        rows = self._all.filter(key=hashed(key)).exclude(state=DONE).annotate(left=LEFT)
        found = rows.values_list("claim", "number", "units", "capacity", "state", "fence", "left")
        return [
            PendingRecord(id, number, units, capacity, state, fence, left <= timedelta(0))
            for id, number, units, capacity, state, fence, left in found
        ]

    def update(self, claim: Claim, state: State) -> bool:
        return bool(self._live(claim).update(state=state))

    def promote(self, claim: Claim) -> int | None:
        fence = self._draw(claim.spec.key)
        return fence if self._live(claim).filter(state=PENDING).update(state=USING, fence=fence) else None

    def _draw(self, key: str) -> int:
        """Return a fence that is higher than all before; the record that is `done` stores the highest of a name."""
        id = f"top {hashed(key)[:60]}"
        mine = self._all.filter(claim=id)
        for _ in range(FENCE_ATTEMPTS):
            found = mine.annotate(now=Now()).values_list("fence", "now").first()
            if found is None:
                values = {"name": "-", "state": DONE, "units": 0, "capacity": 1, "pid": 0, "since": 0, "until": Now()}
                self._all.get_or_create(claim=id, key=hashed(key), defaults=values)
                continue
            top, now = found
            fence: int = max(top + 1, _micros(now))
            if mine.filter(fence=top).update(fence=fence, until=Now()):
                return fence
        raise UnknownOutcome(f"Others drew fences {FENCE_ATTEMPTS} times before this claim. Retry.")

    def delete(self, claim: Claim) -> bool:
        removed, _ = self._all.filter(claim=claim.id).delete()
        if next(self._releases) % SWEEP_EVERY == 0:
            self._all.exclude(state=DONE).filter(until__lt=Now() - OVER).delete()
            self._all.filter(state=DONE, until__lt=Now() - UNUSED).delete()  # the clock is beyond it
        return bool(removed)

    def reap(self, id: str) -> None:
        self._all.filter(claim=id, until__lte=Now()).delete()

    def renew(self, claims: Sequence[Claim]) -> list[int]:
        alive: set[str] = set()
        for ttl in {claim.spec.ttl for claim in claims}:
            ids = [claim.id for claim in claims if claim.spec.ttl == ttl]
            for at in range(0, len(ids), CHUNK):
                some = self._all.filter(claim__in=ids[at : at + CHUNK], until__gt=Now())
                some.update(until=Now() + timedelta(seconds=ttl))
                alive.update(some.values_list("claim", flat=True))
        return [int(claim.id in alive) for claim in claims]

    def _rows(self, key: str) -> Any:
        rows = self._all.exclude(state=DONE).filter(until__gt=Now())
        name = key.partition(SEPARATOR)[2]
        return rows.filter(key=hashed(key)) if name else rows.filter(namespace=key.removesuffix(SEPARATOR))

    def look(self, key: str) -> list[ClaimView]:
        rows = sorted(self._rows(key).annotate(left=LEFT), key=lambda row: (row.name, row.state != USING, row.number))
        namespace = namespace_of(key)  # a collation may ignore case
        return [_view(row) for row in rows if row.namespace == namespace]

    def evict(self, key: str, id: str | None) -> int:
        rows = self._rows(key)
        removed, _ = (rows if id is None else rows.filter(claim=id)).delete()
        return int(removed)

    def namespaces(self) -> list[str]:
        return sorted(set(self._all.exclude(state=DONE).filter(until__gt=Now()).values_list("namespace", flat=True)))

    def doctor(self) -> list[Check]:
        try:
            self.workers.do(self._draw, f"doctor{SEPARATOR}doctor")
        except LockError as error:
            return [Check("table", "fail", str(error))]
        return [Check("table", "ok", f"interlock_record of {self._alias!r}")]


def _micros(moment: datetime) -> int:
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * MICROS)


def _view(row: Any) -> ClaimView:
    holds = row.state == USING
    return ClaimView(
        name=row.name, id=row.claim, state=USING if holds else PENDING, units=row.units, capacity=row.capacity,
        fence=row.fence if holds else None, host=row.host, pid=row.pid, thread=row.thread, label=row.label,
        since=row.since / MICROS, expires_in=row.left.total_seconds(),
        held_since=row.fence / MICROS if holds else None,  # fences are times, unless the clock was set back
    )  # fmt: skip
