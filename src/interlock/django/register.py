"""The register of the pending protocol on the table of claims: each step is one statement, committed by itself."""

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from django.db import DatabaseError, IntegrityError

from interlock.core.claims import DONE, PENDING, QUEUED, SEPARATOR, USING, Claim, ClaimView, State
from interlock.core.effects import Ask, Call
from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.core.pending import Record, Verdict, judge
from interlock.core.queue import Renewed
from interlock.django import claimlines
from interlock.django.failures import NoConnection, NotReached, is_to_be_repeated
from interlock.django.listener import TELL, Listener
from interlock.django.pool import PATIENCE as FREE_CONNECTION
from interlock.django.pool import Pool
from interlock.django.records import chunks, fitting, hashed, record_of, view_of
from interlock.django.statements import MICROSECONDS, NOW, Statement, compiled
from interlock.django.waiters import BEHIND, LONGEST, LineWaiters
from interlock.django.wrappers import make_wrapper
from interlock.runtime import log
from interlock.runtime.process import HOST, pid

PATIENCE = 2.0  # seconds that a statement is tried again which the database does not do because of others
ENTERING = 0.25  # seconds that who acquires waits for a connection, before its own time-out is looked at
COMMITTING = 0.2  # seconds that renewals of many leases wait for a row that another transaction has locked
LOCKED = "a transaction that is being committed keeps the claim locked"
SWEEP_EVERY = 64  # releases of a store, from its first: programs that release once clear up too
SWEEP_MOST = 1000  # records that one release clears away
SWEEP_AGE = 60.0  # seconds that a lease has been over before a release of another name ends its claim
CHARACTERS = 64  # of an id


SUCCESSOR = (
    "(SELECT w.id FROM interlock_claim w WHERE w.key = interlock_claim.key AND w.id <> interlock_claim.id AND "
    f"w.state IN ('{PENDING}', '{QUEUED}') AND w.until > {NOW['postgresql']} ORDER BY w.number LIMIT 1)"
)
"""Who waits first in a line, of those that the statement sees: who comes later looks by itself at once."""


class NotCreated(NoConnection):
    """There was no connection to write the first record of a claim."""


class Step(NamedTuple):
    """One step on the table, as the message of an `Ask`."""

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def take(self) -> Any:
        """Do it, in the calling thread."""
        return self.function(*self.args)


class Lines:
    """The lines of claims in one database; every request is performed by `server`.

    Args:
        alias: of the database.
        server: what performs an `Ask` whose message is a `Step`.
        most: connections of this process to the database.
    """

    folds = True
    poll = LONGEST

    def __init__(self, alias: str, server: Any, most: int) -> None:
        self.pool = Pool(alias, most)
        self.waiters = LineWaiters.of(alias)
        self.listener = Listener.of(alias) if make_wrapper(alias).vendor == "postgresql" else None
        if self.listener is not None:
            self.listener.join(self)
        self._server = server
        self._statements: dict[Any, Statement] = {}
        self._releases = count()
        self._sweeping = threading.Lock()

    def close(self) -> None:
        """Close the connections; safe to repeat."""
        if self.listener is not None:
            self.listener.leave(self)
        self.pool.close()

    def pause(self, claim: Claim) -> float:
        """Return the seconds until a waiter's next look, and see that it is told before if that can be."""
        if self.listener is None:
            return self.waiters.pause(claim)
        self.listener.need()
        return self.waiters.pause(claim, BEHIND if self.listener.hears else LONGEST)

    # -- requests, as `protocols.pending.Register` has them ---------------------------------------------

    def create(self, claim: Claim, wakeup: Any) -> Ask:
        """As `Register.create`."""
        return self._ask(self._create, claim, wakeup)

    def list(self, key: str) -> Ask:
        """As `Register.list`."""
        return self._ask(self._list, key)

    def update(self, claim: Claim, state: State) -> Ask:
        """As `Register.update`."""
        return self._ask(self._update, claim, state)

    def promote(self, claim: Claim) -> Ask:
        """As `Register.promote`; only ever if free, which is what is asked for where `folds`."""
        return self._ask(self._promote, claim)

    def promote_if_free(self, claim: Claim) -> Ask:
        """As `Register.promote_if_free`."""
        return self._ask(self._promote, claim)

    def delete(self, claim: Claim) -> Ask:
        """As `Register.delete`; the record of a holder stays as `done` for its fence, until it is swept."""
        return self._ask(self._delete, claim)

    def reap(self, key: str, id: str) -> Ask:
        """As `Register.reap`."""
        return self._ask(self._reap, key, id)

    def renew(self, claims: Sequence[Claim], wakeup: Any) -> Ask | Call:
        """As `Register.renew`; a waiter whose lease is young does not write."""
        if wakeup is not None and len(claims) == 1:
            if self.waiters.is_young(claims[0], time.monotonic()):
                return Call(_yes)
            return self._ask(self._extend, claims[0], wakeup)
        return self._ask(self._renew, claims)

    def look(self, key: str) -> Ask:
        """As `Register.look`."""
        return self._ask(self._look, key)

    def evict(self, key: str, id: str | None) -> Ask:
        """As `Register.evict`."""
        return self._ask(self._evict, key, id)

    def _ask(self, function: Callable[..., Any], *args: Any) -> Ask:
        return Ask(self._server, Step(function, args))

    # -- what performs them ------------------------------------------------------------------------------

    def _create(self, claim: Claim, wakeup: Any) -> None:
        spec = claim.spec
        namespace, _, name = spec.key.partition(SEPARATOR)
        if len(claim.id) > CHARACTERS:
            raise InvalidArgument(f"an id has at most {CHARACTERS} characters, not {len(claim.id)}")
        given = {
            "id": claim.id, "key": hashed(spec.key), "namespace": namespace, "name": name, "units": spec.units,
            "capacity": spec.capacity, "host": fitting(HOST), "pid": pid(), "thread": fitting(claim.who),
            "label": fitting(spec.label), "since": int(time.time() * MICROSECONDS),
            "ttl": int(spec.ttl * MICROSECONDS),
        }  # fmt: skip
        self.waiters.note(claim, wakeup, time.monotonic())

        def insert(connection: Any) -> None:
            try:
                self._statement(connection, claimlines.create).count(connection, **given)
            except IntegrityError:
                pass  # it is there already

        try:
            self._do(insert, patience=ENTERING)
        except NoConnection as error:
            raise NotCreated(str(error)) from error

    def _list(self, key: str) -> Sequence[Record]:
        rows = self._rows(claimlines.line, patience=ENTERING, key=hashed(key))
        records = [record_of(row) for row in rows]
        self.waiters.seen(key, ((record.id, record.key) for record in records))
        return records

    def _update(self, claim: Claim, state: State) -> bool:
        done = self._count(claimlines.flag, state, patience=ENTERING, id=claim.id) == 1
        if done and state == QUEUED:
            self.waiters.wake_first(claim.spec.key, but=claim.id)
        return done

    def _promote(self, claim: Claim) -> int | None:
        def step(connection: Any) -> tuple[int, str | None] | None:
            if connection.features.update_can_self_select:
                return self._promote_at_once(connection, claim)
            return self._promote_under_lock(connection, claim)

        fence, successor = self._do(step, patience=ENTERING) or (None, None)
        if fence is not None:
            self.waiters.forget(claim)
            if claim.spec.capacity > 1:
                self._tell(claim.spec.key, successor)  # it may fit beside this one
        return fence

    def _promote_at_once(self, connection: Any, claim: Claim) -> tuple[int, str | None] | None:
        spec = claim.spec
        statement = self._statement(connection, claimlines.promote, claimlines.kind_of_line(spec.capacity))
        given = {"id": claim.id, "key": hashed(spec.key), "units": spec.units, "capacity": spec.capacity}
        if self.listener is not None:
            found = _returning(statement, "fence", successor=spec.capacity > 1).rows(connection, **given)
            return found[0] if found else None
        if statement.count(connection, **given) != 1:
            return None
        rows = self._statement(connection, claimlines.fence_of).rows(connection, id=claim.id)
        return (rows[0][0], None) if rows else None

    def _promote_under_lock(self, connection: Any, claim: Claim) -> tuple[int, None] | None:
        """Promote where an UPDATE can't read its own table: the line stands still meanwhile."""
        with _transaction(connection):
            found = self._statement(connection, claimlines.locked_line).rows(connection, key=hashed(claim.spec.key))
            records = [record_of(row) for row in found]
            line = [record for record in records if record.state != DONE]
            if judge(claim.id, line).verdict is not Verdict.ENTER:
                return None
            given = {"id": claim.id, "fence": 1 + max((record.fence for record in records), default=0)}
            if self._statement(connection, claimlines.promote_with).count(connection, **given) != 1:
                return None
            rows = self._statement(connection, claimlines.fence_of).rows(connection, id=claim.id)
            return rows[0][0], None

    def _delete(self, claim: Claim) -> bool:
        self.waiters.forget(claim)
        key, id = claim.spec.key, claim.id
        removed, successor = self._release(key, id)
        self._tell(key, successor)
        if removed and next(self._releases) % SWEEP_EVERY == 0:
            try:
                self.sweep(SWEEP_MOST, SWEEP_AGE)
            except StoreError as error:
                log.warn("could not sweep old records, later perhaps: %s", error)
        return removed

    def _tell(self, key: str, successor: str | None) -> None:
        """Tell the next in line that it may be its turn: here, or by the database if it waits in another process."""
        self.waiters.wake_first(key)
        if successor is not None:
            self._wake(successor)

    def _wake(self, id: str) -> None:
        if self.waiters.wake(id) or self.listener is None:
            return
        try:
            self._do(lambda connection: Statement(TELL, (id,)).rows(connection))
        except StoreError as error:
            log.warn("could not tell somebody in the line, who will look by itself: %s", error)

    def _release(self, key: str, id: str) -> tuple[bool, str | None]:
        """End the caller's own claim; where a connection broke, the record tells whether that was done."""
        tries = count()

        def step(connection: Any) -> tuple[bool, str | None]:
            again = next(tries) > 0
            ended = self._end(connection, id, True)
            if ended is not None:
                return True, ended[0]
            if again:
                rows = self._statement(connection, claimlines.released).rows(connection, id=id)
                if rows:
                    return bool(rows[0][0]), self._first_waiter(connection, key)
            ended = self._end(connection, id, None)
            return False, ended and ended[0]

        found: tuple[bool, str | None] = self._do(step, repeats=True)
        return found

    def _first_waiter(self, connection: Any, key: str) -> str | None:
        if self.listener is None:
            return None
        rows = self._statement(connection, claimlines.first_waiter).rows(connection, key=hashed(key))
        return rows[0][0] if rows else None

    def _remove_lapsed(self, id: str) -> tuple[str | None] | None:
        """End a claim whose lease is over, unless its holder is about to commit, which nobody waits for here."""

        def step(connection: Any) -> tuple[str | None] | None:
            with self._unlocked(connection, [id]) as free:
                return self._end(connection, id, False) if free else None

        found: tuple[str | None] | None = self._do(step, repeats=True)
        return found

    def _end(self, connection: Any, id: str, alive: bool | None) -> tuple[str | None] | None:
        """End a claim; return who is next in line, where that can be told, or None if there was no such claim."""
        for make in (claimlines.end, claimlines.drop):
            statement = self._statement(connection, make, alive)
            if self.listener is not None:
                for (successor,) in _returning(statement, successor=True).rows(connection, id=id):
                    return (successor,)
            elif statement.count(connection, id=id) == 1:
                return (None,)
        return None

    def _reap(self, key: str, id: str) -> bool:
        reaped = self._remove_lapsed(id)
        if reaped:
            self._tell(key, reaped[0])
        return reaped is not None

    def _extend(self, claim: Claim, wakeup: Any) -> Sequence[bool]:
        sent = time.monotonic()
        ttl = int(claim.spec.ttl * MICROSECONDS)
        alive = self._count(claimlines.extend, patience=ENTERING, repeats=True, id=claim.id, ttl=ttl) == 1
        if alive:
            self.waiters.note(claim, wakeup, sent)
        return [alive]

    def _renew(self, claims: Sequence[Claim]) -> Sequence[Renewed]:
        """Extend leases; what another transaction keeps locked holds nobody else back, and is tried again."""
        answers: dict[str, Renewed] = {}
        for ttl in {claim.spec.ttl for claim in claims}:
            ids = [claim.id for claim in claims if claim.spec.ttl == ttl]
            left = time.monotonic() + (min(PATIENCE, ttl / 3) if len(claims) == 1 else min(COMMITTING, ttl / 10))
            while ids:
                locked: list[str] = []
                for some in chunks(ids):
                    step = partial(self._renew_some, some, ttl)
                    answers |= self._do(step, patience=min(FREE_CONNECTION, ttl / 3), repeats=True)
                    locked += [id for id in some if id not in answers]
                if locked and time.monotonic() >= left:
                    answers |= dict.fromkeys(locked, StoreError(LOCKED))
                    break
                ids = locked
                if ids:
                    time.sleep(random.uniform(0.005, 0.02))
        return [answers[claim.id] for claim in claims]

    def _renew_some(self, ids: Sequence[str], ttl: float, connection: Any) -> dict[str, bool]:
        """Extend leases, and look at the clock afterwards.

        A statement of another, begun when a lease had just ended, may not have seen an extension that was on its way
        at that moment.  So an extension counts only if it was there before the old lease ended.

        Returns:
            For each id whether it lives; nothing of those that another transaction has locked.
        """
        with self._unlocked(connection, ids) as before:
            if before:
                extend = compiled(claimlines.extend_all(list(before)), connection)
                extend.count(connection, ttl=int(ttl * MICROSECONDS))
        after = {id: (until, now) for id, until, now in compiled(claimlines.leases(ids), connection).rows(connection)}
        alive = {id for id, (_, now) in after.items() if id in before and now < before[id]}
        late = [id for id in before if id in after and id not in alive]
        if late:
            with self._unlocked(connection, late) as free:
                for id in free:
                    self._statement(connection, claimlines.end, None).count(connection, id=id)
        locked = {id for id, (until, now) in after.items() if id not in before and now < until}
        return {id: id in alive for id in ids if id not in locked}

    @contextmanager
    def _unlocked(self, connection: Any, ids: Sequence[str]) -> Iterator[dict[str, int]]:
        """Have the records to oneself that no other transaction has locked; yield when their leases end.

        A claim is locked from the check before a commit to the end of that commit, however long it takes.  Where a
        database can't skip such rows, all are yielded, and a statement on them waits.
        """
        skips = connection.features.has_select_for_update_skip_locked
        with _transaction(connection) if skips else nullcontext():
            query = compiled(claimlines.leases(ids, skips), connection)
            yield {id: until for id, until, _ in query.rows(connection)}

    def _look(self, key: str) -> Sequence[ClaimView]:
        everything = key.endswith(SEPARATOR)
        given: dict[str, Any] = {} if everything else {"key": hashed(key)}
        rows = self._rows(claimlines.living, everything, **given)
        namespace = key.partition(SEPARATOR)[0]
        views = [view_of(row) for row in rows if row[2] == namespace]
        return sorted(views, key=lambda view: (view.name if everything else "", view.state != USING))

    def _evict(self, key: str, id: str | None) -> int:
        there = [row[0] for row in self._rows(claimlines.ids_of_line, key=hashed(key))]
        gone: list[str] = []
        successor = None
        for each in there:
            ended = self._do(partial(self._end, id=each, alive=None), repeats=True) if id in (None, each) else None
            if ended is not None:
                gone.append(each)
                (successor,) = ended
        for each in gone:
            self._wake(each)
        self._tell(key, successor)
        return len(gone)

    def sweep(self, most: int = sys.maxsize, age: float = 0.0) -> int:
        """Delete records that are over, after having noted the highest of their fences, and end leases that ran out.

        Args:
            most: records to look at, in thousands rounded up.
            age: seconds that a lease must have been over.

        Returns:
            How many records were deleted.
        """
        if not self._sweeping.acquire(blocking=False):
            return 0
        try:
            swept: int = self._reap_all(most, age)
            while True:
                looked, deleted = self._do(self._sweep_some)
                swept += deleted
                if looked < SWEEP_MOST or swept >= most:
                    return swept
        finally:
            self._sweeping.release()

    def _reap_all(self, most: int, age: float) -> int:
        """End claims whose leases ran out, also of names that nobody asks for any more; return how many waited."""
        rows = self._rows(claimlines.run_out, most, age=int(age * MICROSECONDS))
        return sum(self._remove_lapsed(id) is not None and state != USING for id, state in rows)

    def _sweep_some(self, connection: Any) -> tuple[int, int]:
        rows = self._statement(connection, claimlines.oldest_done, SWEEP_MOST).rows(connection)
        if not rows:
            return 0, 0
        top = max(fence for _, fence in rows)
        if not self._statement(connection, claimlines.raise_floor).count(connection, fence=top):
            try:
                self._statement(connection, claimlines.lay_floor).count(connection, fence=top)
            except IntegrityError:
                pass  # it is there: as high, or somebody just made it
        floor = self._statement(connection, claimlines.floor).rows(connection)[0][0]
        last = max(number for number, _ in rows)
        deleted = self._statement(connection, claimlines.sweep).count(connection, fence=floor, number=last)
        return len(rows), deleted

    # -- statements --------------------------------------------------------------------------------------

    def _do(self, step: Callable[[Any], Any], *, patience: float = FREE_CONNECTION, repeats: bool = False) -> Any:
        """Perform `step` with a connection; again if the database did not do it because of others.

        Args:
            step: what to do.
            patience: seconds to wait for a connection.
            repeats: True if it may be done twice, so that it is done again where a connection breaks.
        """
        started = time.monotonic()
        broke: UnknownOutcome | None = None
        while True:
            in_time = time.monotonic() - started < PATIENCE
            try:
                with self.pool.connection(patience) as connection:
                    try:
                        return step(connection)
                    except DatabaseError as error:
                        if not in_time or not is_to_be_repeated(error):
                            raise
            except UnknownOutcome as error:
                if not repeats or not in_time:
                    raise
                broke = error
            except NotReached as error:
                if broke is None:
                    raise
                if not in_time:
                    raise broke from error
            time.sleep(random.uniform(0.001, 0.005))

    def _statement(self, connection: Any, make: Callable[..., Any], *args: Any) -> Statement:
        statement = self._statements.get((make, *args))
        if statement is None:
            statement = self._statements[(make, *args)] = compiled(make(*args), connection)
        return statement

    def _count(
        self, make: Callable[..., Any], *args: Any, patience: float = FREE_CONNECTION, repeats: bool = False,
        **given: Any,
    ) -> int:  # fmt: skip
        def step(connection: Any) -> int:
            return self._statement(connection, make, *args).count(connection, **given)

        return int(self._do(step, patience=patience, repeats=repeats))

    def _rows(self, make: Callable[..., Any], *args: Any, patience: float = FREE_CONNECTION, **given: Any) -> Any:
        def step(connection: Any) -> list[Any]:
            return self._statement(connection, make, *args).rows(connection, **given)

        return self._do(step, patience=patience, repeats=True)


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    """A transaction on a connection of the store's own, which is in autocommit before and after."""
    connection.set_autocommit(False)
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.set_autocommit(True)


def _returning(statement: Statement, *columns: str, successor: bool) -> Statement:
    """Return a statement of PostgreSQL's that tells what it wrote, and who is next in line."""
    wanted = ", ".join((*columns, SUCCESSOR if successor else "NULL"))
    return statement._replace(words=f"{statement.words} RETURNING {wanted}")


def _yes() -> Sequence[bool]:
    return [True]
