"""The register of the pending protocol on the table of claims: each step is one statement, committed by itself."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django.db import IntegrityError

from interlock.core.claims import DONE, QUEUED, SEPARATOR, USING, Claim, ClaimView, State
from interlock.core.effects import Ask, Call
from interlock.core.errors import InvalidArgument
from interlock.core.pending import Record, Verdict, judge
from interlock.core.queue import Renewed
from interlock.django import claimlines
from interlock.django.failures import NoConnection
from interlock.django.folding import Entered, Functions
from interlock.django.leaving import Leaving, returning
from interlock.django.listener import NotificationListener
from interlock.django.neighbours import neighbours
from interlock.django.performing import Performer, in_transaction
from interlock.django.records import fitting, hashed, record_of, view_of
from interlock.django.renewing import renew
from interlock.django.statements import MICROSECONDS
from interlock.django.sweeping import Sweeper
from interlock.django.waiters import BEHIND, LONGEST, LineWaiters
from interlock.django.wrappers import make_wrapper
from interlock.runtime.process import HOST, pid

ENTERING = 0.25  # seconds that a caller of acquire waits for a connection, before its own time-out is looked at
CHARACTERS = 64  # of an id


class NotCreated(NoConnection):
    """There was no connection to write the first record of a claim."""


class TableStep(NamedTuple):
    """One step on the table, as the message of an `Ask`.

    Attributes:
        function, args: what does it.
        undoes: True if it takes something back: it is taken even if its caller is cancelled before it has begun.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    undoes: bool = False

    def take(self) -> Any:
        """Do it, in the calling thread."""
        return self.function(*self.args)


class Lines:
    """The lines of claims in one database; every request is performed by `server`.

    Args:
        alias: of the database.
        server: what performs an `Ask` whose message is a `TableStep`.
        most: connections of this process to the database.
    """

    folds = True
    poll = LONGEST

    def __init__(self, alias: str, server: Any, most: int) -> None:
        self._performer = Performer(alias, most)
        self.pool = self._performer.pool
        self.waiters = LineWaiters.of(alias)
        self.listener = NotificationListener.of(alias) if make_wrapper(alias).vendor == "postgresql" else None
        self._hears = self.listener or neighbours
        self._hears.join(self)
        self._functions = Functions() if self.listener is not None else None
        self._server = server
        self._do = self._performer.do
        self._leaving = Leaving(self._performer, self.waiters, self._functions)
        self._sweeper = Sweeper(self._performer, self._leaving.remove_lapsed)
        self.sweep = self._sweeper.sweep

    def close(self) -> None:
        """Close the connections; safe to repeat."""
        self._hears.leave(self)
        self.pool.close()

    def pause(self, claim: Claim) -> float:
        """Return the seconds until a waiter's next look, and see that it is told before if that can be."""
        self._hears.need()
        if self.listener is None:
            return self.waiters.pause(claim)
        return self.waiters.pause(claim, BEHIND if self.listener.hears else LONGEST)

    # -- requests, as `protocols.pending.Register` has them ---------------------------------------------

    @property
    def enters_at_once(self) -> bool:
        """True if it makes sense to ask whether a claim can enter in one statement."""
        return self._functions is not None

    def enter(self, claim: Claim, wakeup: Any, wait: bool) -> Ask:
        """Enter in one statement; the answer is `Entered`, or None if it must be done step by step."""
        return self._ask(self._enter, claim, wakeup, wait)

    def create(self, claim: Claim, wakeup: Any) -> Ask:
        return self._ask(self._create, claim, wakeup)

    def list(self, key: str) -> Ask:
        return self._ask(self._list, key)

    def update(self, claim: Claim, state: State) -> Ask:
        return self._ask(self._update, claim, state)

    def promote(self, claim: Claim) -> Ask:
        """Promote only if the lock is free: what is asked for where `folds`."""
        return self._ask(self._promote, claim)

    def promote_if_free(self, claim: Claim) -> Ask:
        return self._ask(self._promote, claim)

    def delete(self, claim: Claim) -> Ask:
        """Delete a record; that of a holder stays as `done` for its fence, until it is swept."""
        return Ask(self._server, TableStep(self._delete, (claim,), undoes=True))

    def reap(self, key: str, id: str) -> Ask:
        return self._ask(self._reap, key, id)

    def renew(self, claims: Sequence[Claim], wakeup: Any) -> Ask | Call:
        """Renew leases; a waiter whose lease is young does not write."""
        if wakeup is not None and len(claims) == 1:
            if self.waiters.is_young(claims[0], time.monotonic()):
                return Call(_yes)
            return self._ask(self._extend, claims[0], wakeup)
        return self._ask(self._renew, claims)

    def look(self, key: str) -> Ask:
        return self._ask(self._look, key)

    def evict(self, key: str, id: str | None) -> Ask:
        return self._ask(self._evict, key, id)

    def _ask(self, function: Callable[..., Any], *args: Any) -> Ask:
        return Ask(self._server, TableStep(function, args))

    # -- what performs them ------------------------------------------------------------------------------

    def _enter(self, claim: Claim, wakeup: Any, wait: bool) -> Entered | None:
        functions = self._functions
        if functions is None:
            return None
        given = _first_record(claim)
        if wakeup is not None:
            self.waiters.note(claim, wakeup, time.monotonic())

        def step(connection: Any) -> Entered | None:
            return functions.enter(connection, wait=wait, **given)

        try:
            entered: Entered | None = self._do(step, wait_limit=ENTERING)
        except NoConnection as error:
            self.waiters.forget(claim)  # whoever is not in line is not taken out of it
            raise NotCreated(str(error)) from error
        if entered is not None and entered.state != "pending":
            self.waiters.forget(claim)
            if entered.clean and entered.state == "using":
                self.waiters.note_clean(claim.id)
        return entered

    def _create(self, claim: Claim, wakeup: Any) -> None:
        given = _first_record(claim)
        self.waiters.note(claim, wakeup, time.monotonic())

        def insert(connection: Any) -> None:
            try:
                self._performer.statement(connection, claimlines.create).count(connection, **given)
            except IntegrityError:
                pass  # it is there already

        try:
            self._do(insert, wait_limit=ENTERING)
        except NoConnection as error:
            self.waiters.forget(claim)
            raise NotCreated(str(error)) from error

    def _list(self, key: str) -> Sequence[Record]:
        rows = self._performer.rows(claimlines.line, wait_limit=ENTERING, key=hashed(key))
        records = [record_of(row) for row in rows]
        self.waiters.seen(key, ((record.id, record.key) for record in records))
        return records

    def _update(self, claim: Claim, state: State) -> bool:
        done = self._performer.count(claimlines.flag, state, wait_limit=ENTERING, id=claim.id) == 1
        if done and state == QUEUED:
            self.waiters.wake_first(claim.spec.key, but=claim.id)
        return done

    def _promote(self, claim: Claim) -> int | None:
        def step(connection: Any) -> tuple[int, str | None] | None:
            if connection.features.update_can_self_select:
                return self._promote_at_once(connection, claim)
            return self._promote_under_lock(connection, claim)

        fence, successor = self._do(step, wait_limit=ENTERING) or (None, None)
        if fence is not None:
            self.waiters.forget(claim)
            if claim.spec.capacity > 1:
                self._leaving.tell(claim.spec.key, successor)  # it may fit beside this one
        return fence

    def _promote_at_once(self, connection: Any, claim: Claim) -> tuple[int, str | None] | None:
        spec = claim.spec
        statement = self._performer.statement(connection, claimlines.promote, claimlines.kind_of_line(spec.capacity))
        given = {"id": claim.id, "key": hashed(spec.key), "units": spec.units, "capacity": spec.capacity}
        if self.listener is not None:
            found = returning(statement, "fence", successor=spec.capacity > 1).rows(connection, **given)
            return found[0] if found else None
        if statement.count(connection, **given) != 1:
            return None
        rows = self._performer.statement(connection, claimlines.fence_of).rows(connection, id=claim.id)
        return (rows[0][0], None) if rows else None

    def _promote_under_lock(self, connection: Any, claim: Claim) -> tuple[int, None] | None:
        """Promote where an UPDATE can't read its own table: the line stands still meanwhile."""
        with in_transaction(connection):
            found = self._performer.statement(connection, claimlines.locked_line).rows(
                connection, key=hashed(claim.spec.key)
            )
            records = [record_of(row) for row in found]
            line = [record for record in records if record.state != DONE]
            if judge(claim.id, line).verdict is not Verdict.ENTER:
                return None
            given = {"id": claim.id, "fence": 1 + max((record.fence for record in records), default=0)}
            if self._performer.statement(connection, claimlines.promote_with).count(connection, **given) != 1:
                return None
            rows = self._performer.statement(connection, claimlines.fence_of).rows(connection, id=claim.id)
            return rows[0][0], None

    def _delete(self, claim: Claim) -> bool:
        self.waiters.forget(claim)
        removed = self._leaving.leave(claim.spec.key, claim.id)
        if removed:
            self._sweeper.released()
        return removed

    def _reap(self, key: str, id: str) -> bool:
        return self._leaving.reap(key, id)

    def _extend(self, claim: Claim, wakeup: Any) -> Sequence[bool]:
        sent = time.monotonic()
        ttl = int(claim.spec.ttl * MICROSECONDS)
        alive = self._performer.count(claimlines.extend, wait_limit=ENTERING, repeats=True, id=claim.id, ttl=ttl) == 1
        if alive:
            self.waiters.note(claim, wakeup, sent)
        return [alive]

    def _renew(self, claims: Sequence[Claim]) -> Sequence[Renewed]:
        return renew(self._performer, claims)

    def _look(self, key: str) -> Sequence[ClaimView]:
        everything = key.endswith(SEPARATOR)
        given: dict[str, Any] = {} if everything else {"key": hashed(key)}
        rows = self._performer.rows(claimlines.live, everything, **given)
        namespace = key.partition(SEPARATOR)[0]
        views = [view_of(row) for row in rows if row[2] == namespace]
        return sorted(views, key=lambda view: (view.name if everything else "", view.state != USING))

    def _evict(self, key: str, id: str | None) -> int:
        return self._leaving.evict(key, id)


def _first_record(claim: Claim) -> dict[str, Any]:
    """Return the values of the record with which a claim enters."""
    spec = claim.spec
    namespace, _, name = spec.key.partition(SEPARATOR)
    if len(claim.id) > CHARACTERS:
        raise InvalidArgument(f"an id has at most {CHARACTERS} characters, not {len(claim.id)}")
    return {
        "id": claim.id, "key": hashed(spec.key), "namespace": namespace, "name": name, "units": spec.units,
        "capacity": spec.capacity, "host": fitting(HOST), "pid": pid(), "thread": fitting(claim.who),
        "label": fitting(spec.label), "since": int(time.time() * MICROSECONDS),
        "ttl": int(spec.ttl * MICROSECONDS),
    }  # fmt: skip


def _yes() -> Sequence[bool]:
    return [True]
