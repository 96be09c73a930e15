"""The statements on the table of claims, as query sets with `Given` values.

Three rules make them safe where a statement reads a snapshot that is older than its end (MVCC):

- a claim's own life is judged by the clock of now, in the statement that changes it;
- the death of others is judged by the moment when the statement began, which is not later than its snapshot;
- who extends the lease of a holder looks at the clock after that: see `register.Lines.renew`.
"""

from collections.abc import Sequence
from typing import Any

from django.db.models import BigIntegerField, CharField, Exists, F, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models import Value as Literal
from django.db.models.functions import Coalesce, Greatest

from interlock.core.claims import DONE, PENDING, QUEUED, USING, WRITER_UNITS
from interlock.django.models import Claim
from interlock.django.statements import BEGAN, NOW, DatabaseMoment, Given, delete, insert, select, update

FLOOR = "floor"
"""The id of the one record that remembers the highest fence of all that were swept away."""
EXCLUSIVE, SEMAPHORE, READ_WRITE = "exclusive", "semaphore", "read and write"
WAITING = (PENDING, QUEUED)
TEXT: Any = CharField()
NUMBER: Any = BigIntegerField()
COLUMNS = ("number", "claim", "namespace", "name", "state", "units", "capacity", "fence", "host", "pid", "thread",
           "label", "since", "until")  # fmt: skip


def number(name: str) -> Given:
    """Return a number to be given."""
    return Given(name, NUMBER)


def text(name: str) -> Given:
    """Return a text to be given."""
    return Given(name, TEXT)


def now() -> DatabaseMoment:
    """The database's clock, when the row is looked at."""
    return DatabaseMoment(NOW)


def began() -> DatabaseMoment:
    """The database's clock, when the statement began."""
    return DatabaseMoment(BEGAN)


def mine(*states: str) -> QuerySet[Claim]:
    """The record with the given id, in one of the states."""
    return Claim.objects.filter(claim=text("id"), state__in=states)


def create() -> Any:
    """Write a pending record whose lease starts now."""
    values: dict[str, Any] = {name: text(name) for name in ("key", "namespace", "name", "host", "thread", "label")}
    values |= {name: number(name) for name in ("units", "capacity", "pid", "since")}
    return insert(Claim(claim=text("id"), state=PENDING, fence=None, until=now() + number("ttl"), **values))


def line() -> Any:
    """Read the records of a name."""
    rows = Claim.objects.filter(key=text("key")).exclude(state=DONE)
    return select(rows, ("claim", "number", "units", "capacity", "state", "fence", F("until") - began()))


def flag(state: str) -> Any:
    """Raise or lower the flag of a record that waits and lives."""
    return update(mine(*WAITING).filter(until__gt=now()), state=state)


def kind_of_line(capacity: int) -> str:
    """Return what the SQL of `promote` depends on."""
    return EXCLUSIVE if capacity == 1 else READ_WRITE if capacity == WRITER_UNITS else SEMAPHORE


def promote(kind: str) -> Any:
    """pending -> using, with a fence, if no incompatible flag is up and nobody before it waits.

    The order is that of `protocols.pending.judge`: readers may pass together with readers, nobody else.

    Args:
        kind: of the line.
    """
    rows = mine(PENDING).filter(*(~Exists(each) for each in _obstacles(kind)), until__gt=now())
    return update(rows, state=USING, fence=Greatest(now(), _highest_fence() + 1))


def _obstacles(kind: str) -> list[Any]:
    others = Claim.objects.order_by().filter(key=text("key"), until__gt=began()).exclude(claim=text("id"))
    before = Q(state__in=WAITING, number__lt=OuterRef("number"))
    flagged = Q(state__in=(PENDING, USING))
    if kind == EXCLUSIVE:
        return [others.filter(flagged | before)]
    if kind == SEMAPHORE:
        return [_crowd(others.filter(flagged)), others.filter(before)]
    return [
        _crowd(others.filter(flagged)),
        others.filter(before).exclude(capacity=WRITER_UNITS),
        _crowd(others.filter(before | Q(state=USING))),
    ]


def _crowd(others: QuerySet[Claim]) -> Any:
    """One row if the claim does not fit beside the others, as `claims.fits` says; else none."""
    groups: Any = others.values("key").annotate(taken=Sum("units"), least=Min("capacity"))
    return groups.filter(
        Q(taken__gt=number("capacity") - number("units")) | Q(least__lt=F("taken") + number("units"))
    )


def _highest_fence() -> Any:
    known = Claim.objects.filter(key=text("key"), fence__isnull=False).order_by("-fence").values("fence")[:1]
    floor = Claim.objects.filter(claim=FLOOR).values("fence")[:1]
    zero = Literal(0, output_field=BigIntegerField())
    return Greatest(Coalesce(Subquery(known), zero), Coalesce(Subquery(floor), zero))


def promote_with() -> Any:
    """pending -> using with a fence that was found out while the line was locked."""
    fence: Any = Greatest(now(), number("fence"))
    return update(mine(PENDING).filter(until__gt=now()), state=USING, fence=fence)


def fence_of() -> Any:
    """Read the fence of a holder."""
    return select(mine(USING), ("fence",))


def end(alive: bool | None) -> Any:
    """using -> done: the record stays, for its fence.

    Its end is noted where its holder releases it in time, and 0 where it is taken away: see `released`.

    Args:
        alive: True: only before the end of its lease; False: only after; None: whenever.
    """
    return update(_while_live(mine(USING), alive), state=DONE, until=now() if alive else 0)


def released() -> Any:
    """Read when a holder released its claim in time; 0 if it was taken away."""
    return select(mine(DONE), ("until",))


def drop(alive: bool | None) -> Any:
    """Delete a record that waits; `alive` as for `end`."""
    return delete(_while_live(mine(*WAITING), alive))


def _while_live(rows: QuerySet[Claim], alive: bool | None) -> QuerySet[Claim]:
    if alive is None:
        return rows
    return rows.filter(until__gt=now()) if alive else rows.filter(until__lte=began())


def extend() -> Any:
    """Extend a lease that has not ended."""
    return update(mine(*WAITING, USING).filter(until__gt=now()), until=now() + number("ttl"))


def leases(ids: Sequence[str], unlocked: bool = False) -> Any:
    """Read how long several records still live.

    Args:
        ids: of the claims.
        unlocked: only those that no other transaction has locked, and lock them.
    """
    rows = Claim.objects.filter(claim__in=ids).exclude(state=DONE)
    if unlocked:
        rows = rows.select_for_update(skip_locked=True)
    return select(rows, ("claim", "until", now()))


def extend_all(ids: Sequence[str]) -> Any:
    """Extend several leases by one ttl."""
    rows = Claim.objects.filter(claim__in=ids, state__in=(*WAITING, USING))
    return update(rows.filter(until__gt=now()), until=now() + number("ttl"))


def live(whole_table: bool) -> Any:
    """Read the live records of a name, or all."""
    rows = Claim.objects.filter(until__gt=began()).exclude(state=DONE)
    if not whole_table:
        rows = rows.filter(key=text("key"))
    return select(rows.order_by("number"), (*COLUMNS, F("until") - began()))


def ids_of_line() -> Any:
    """Read the ids of all records of a name."""
    return select(Claim.objects.filter(key=text("key")).exclude(state=DONE), ("claim",))


def first_waiter() -> Any:
    """Read the first waiter of a line: its id, and which process it is of."""
    rows = Claim.objects.filter(key=text("key"), state__in=WAITING, until__gt=now()).order_by("number")
    return select(rows[:1], ("claim", "host", "pid"))


def run_out(most: int) -> Any:
    """Read the oldest claims whose leases ran out some time ago."""
    rows = Claim.objects.filter(state__in=(*WAITING, USING), until__lte=began() - number("age")).order_by("number")
    return select(rows[:most], ("claim", "state"))


def oldest_done(most: int) -> Any:
    """Read the oldest of those that are over, and their fences."""
    rows = Claim.objects.filter(state=DONE).exclude(claim=FLOOR).order_by("number")
    return select(rows[:most], ("number", "fence"))


def floor() -> Any:
    """Read the floor."""
    return select(Claim.objects.filter(claim=FLOOR), ("fence",))


def raise_floor() -> Any:
    """Remember a fence in the floor."""
    return update(Claim.objects.filter(claim=FLOOR, fence__lt=number("fence")), fence=number("fence"))


def lay_floor() -> Any:
    """Make the floor."""
    return insert(
        Claim(claim=FLOOR, key="", name="", state=DONE, units=0, capacity=0, fence=number("fence"), host="", pid=0,
              since=0, until=0)
    )  # fmt: skip


def sweep() -> Any:
    """Delete what is over up to a number, and not above a fence that the floor remembers."""
    rows = Claim.objects.filter(state=DONE, number__lte=number("number"), fence__lte=number("fence"))
    return delete(rows.exclude(claim=FLOOR))


def locked_line() -> Any:
    """Read the records of a name and the floor, and keep others from changing them until the transaction ends."""
    rows = Claim.objects.select_for_update().filter(Q(key=text("key")) | Q(claim=FLOOR))
    return select(rows, ("claim", "number", "units", "capacity", "state", "fence", F("until") - began()))
