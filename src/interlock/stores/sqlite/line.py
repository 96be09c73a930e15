"""The steps of a line in SQLite: each is a function that is called inside of a transaction of its own.

Their clock is the machine's monotonic one, as the holders' own deadlines are, in microseconds, set to the time of
day when the file was made: whoever sets the time of day ends no lease.  A fence is the moment at which it was issued,
and a transaction takes longer than a microsecond: so no name leaves anything behind.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from interlock.core.claims import PENDING, SEPARATOR, USING, Claim
from interlock.core.positions import has_room, promotable
from interlock.stores.sql.statements import MICROS, fixed, hashed, micros

Execute: TypeAlias = Callable[..., Any]
Clock: TypeAlias = Callable[[], int]
Rows: TypeAlias = list[tuple[Any, ...]]

APPLICATION = 0x494C4B31  # of the file: "ILK1"
VERSION = 1
SCHEMA = (
    "CREATE TABLE claims (key BLOB NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, units INTEGER NOT NULL, "
    "capacity INTEGER NOT NULL, fence INTEGER NOT NULL, until INTEGER NOT NULL, since INTEGER NOT NULL, "
    "channel TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, "
    "thread TEXT NOT NULL, label TEXT NOT NULL, PRIMARY KEY (key, number)) WITHOUT ROWID",
    "CREATE TABLE machine (namespace TEXT NOT NULL, ahead INTEGER NOT NULL)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
_LINE = "SELECT number, id, units, capacity, fence, until, channel FROM claims WHERE key = ? ORDER BY number"
_LOOK = (
    "SELECT name, id, units, capacity, fence, host, pid, thread, label, since, until - ? FROM claims "
    "WHERE until > ? AND "
)
_PLACES = ", ".join("?" * 13)
_JOIN = f"INSERT INTO claims VALUES (?, ?, {_PLACES})"
_JOIN_ALONE = (
    f"INSERT OR FAIL INTO claims SELECT ?, 0, {_PLACES} WHERE NOT EXISTS (SELECT 1 FROM claims WHERE key = ?)"
)
_LEAVE_ALONE = (
    "DELETE FROM claims WHERE key = ? AND number = 0 AND id = ? AND fence > 0 AND until > ? "
    "AND NOT EXISTS (SELECT 1 FROM claims WHERE key = ? AND number > 0)"
)

_fixed = lru_cache(4096)(fixed)


class SqliteStep(NamedTuple):
    """What is to be done in one transaction.

    Attributes:
        function: called with what executes SQL, the clock, and `args`; returns rows.  It has read all of an answer
            before it executes something else.
        args: of the function.
    """

    function: Callable[..., Rows]
    args: tuple[Any, ...] = ()


class _Row:
    """A live claim."""

    __slots__ = ("capacity", "channel", "fence", "id", "number", "units", "until")

    def __init__(
        self, number: int, id: str, units: int, capacity: int, fence: int, until: int, channel: str
    ) -> None:  # fmt: skip
        self.number = number
        self.id = id
        self.units = units
        self.capacity = capacity
        self.fence = fence
        self.until = until
        self.channel = channel

    @property
    def state(self) -> str:
        return USING if self.fence else PENDING


def _live(execute: Execute, key: bytes, moment: int) -> list[_Row]:
    """Return the live claims of a name, after removing those whose lease has ended."""
    rows = [_Row(*row) for row in execute(_LINE, (key,)).fetchall()]
    if any(row.until <= moment for row in rows):
        execute("DELETE FROM claims WHERE key = ? AND until <= ?", (key, moment))
        rows = [row for row in rows if row.until > moment]
    return rows


def _promote(execute: Execute, clock: Clock, key: bytes, rows: list[_Row], own: str) -> str:
    """Promote those whose turn has come; return who was, except for `own`, one a line: channel, id, fence."""
    promotions = ""
    fence = clock()
    for row in list(promotable(rows)):
        row.fence = fence
        while fence <= row.fence:  # nobody issues it again
            fence = clock()
        execute("UPDATE claims SET fence = ? WHERE key = ? AND number = ?", (row.fence, key, row.number))
        if row.id != own:
            promotions += f"{row.channel} {row.id} {row.fence}\n"
    return promotions


def _enter(
    execute: Execute, clock: Clock, key: bytes, id: str, mode: str, ttl: int, units: int, capacity: int,
    channel: str, about: tuple[Any, ...],
) -> Rows:  # fmt: skip
    moment = clock()
    claim = (id, units, capacity, moment, moment + ttl, moment, channel, *about)
    if mode != "again" and execute(_JOIN_ALONE, (key, *claim, key)).rowcount:
        return [(USING, moment, None, "")]  # most of the time
    rows = _live(execute, key, moment)
    promotions = _promote(execute, clock, key, rows, id)
    mine = next((row for row in rows if row.id == id), None)
    if mine is not None:
        execute(
            "UPDATE claims SET until = max(until, ?), channel = ? WHERE key = ? AND number = ?",
            (moment + ttl, channel or mine.channel, key, mine.number),
        )
        return [(mine.state, mine.fence, _until_next(rows, mine, moment), promotions)]
    if mode == "again":
        return [("gone", 0, None, promotions)]
    fence = clock() if has_room(rows, units, capacity) else 0
    if not fence and mode == "try":
        return [("refused", 0, None, promotions)]
    number = rows[-1].number + 1 if rows else 0
    execute(_JOIN, (key, number, id, units, capacity, fence, moment + ttl, moment, channel, *about))
    return [(USING if fence else PENDING, fence, _until_next(rows, None, moment), promotions)]


def _until_next(rows: list[_Row], mine: _Row | None, moment: int) -> int | None:
    """Return microseconds until the first lease ends of those before a claim."""
    ends = [row.until for row in rows if mine is None or row.number < mine.number]
    return min(ends) - moment if ends else None


def _leave(execute: Execute, clock: Clock, key: bytes, id: str, evict: bool) -> Rows:
    moment = clock()
    if not evict and execute(_LEAVE_ALONE, (key, id, moment, key)).rowcount:
        return [(1, "")]  # most of the time
    rows = _live(execute, key, moment)
    leaving = [row for row in rows if id in ("*", row.id)]
    for row in leaving:
        execute("DELETE FROM claims WHERE key = ? AND number = ?", (key, row.number))
    promotions = "".join(f"{row.channel} {row.id} 0\n" for row in leaving if evict and not row.fence)
    promotions += _promote(execute, clock, key, [row for row in rows if row not in leaving], "")
    return [(len(leaving), promotions)]


def _renew(execute: Execute, clock: Clock, claims: Sequence[tuple[bytes, str, int]]) -> Rows:
    moment = clock()
    renewed: Rows = []
    for key, id, ttl in claims:
        done = execute(
            "UPDATE claims SET until = max(until, ?) WHERE key = ? AND id = ? AND until > ?",
            (moment + ttl, key, id, moment),
        ).rowcount
        if done:
            renewed.append((id, 1))
    return renewed


def _sweep(execute: Execute, clock: Clock, age: int) -> Rows:
    """Remove claims of the dead, whose names nobody has asked for since."""
    old = clock() - age
    if execute("SELECT 1 FROM claims WHERE until < ? LIMIT 1", (old,)).fetchone():
        execute("DELETE FROM claims WHERE until < ?", (old,))
    return []


def _namespaces(execute: Execute, clock: Clock) -> Rows:
    rows: Rows = execute("SELECT DISTINCT namespace FROM claims WHERE until > ?", (clock(),)).fetchall()
    return rows


def _look(execute: Execute, clock: Clock, where: str, value: Any) -> Rows:
    moment = clock()
    rows: Rows = execute(_LOOK + where, (moment, moment, value)).fetchall()
    return rows


class SqliteSteps:
    """The steps, as `stores.sql.statements.Texts` has them for PostgreSQL."""

    def start_afresh(self) -> None:
        """In a forked child: it is another process."""
        _fixed.cache_clear()

    def enter(self, claim: Claim, mode: str, channel: str) -> SqliteStep:
        """As `Texts.enter`."""
        key, ttl, units, capacity, about = _fixed(claim.spec, claim.who)
        return SqliteStep(_enter, (key, claim.id, mode, ttl, units, capacity, channel, about))

    def leave(self, key: str, id: str, evict: bool = False) -> SqliteStep:
        """As `Texts.leave`."""
        return SqliteStep(_leave, (hashed(key), id, evict))

    def renew(self, claims: Sequence[Claim]) -> SqliteStep:
        """As `Texts.renew`."""
        return SqliteStep(_renew, ([(hashed(each.spec.key), each.id, micros(each.spec.ttl)) for each in claims],))

    def sweep(self, pages: int, age: float) -> SqliteStep:
        """As `Texts.sweep`; the whole table, which has nothing but claims."""
        return SqliteStep(_sweep, (int(age * MICROS),))

    def look(self, key: str) -> SqliteStep:
        """As `Texts.look`."""
        if key.endswith(SEPARATOR):
            return SqliteStep(_look, ("namespace = ? ORDER BY name, number", key[:-1]))
        return SqliteStep(_look, ("key = ? ORDER BY number", hashed(key)))

    def namespaces(self) -> SqliteStep:
        """As `Texts.namespaces`."""
        return SqliteStep(_namespaces)
