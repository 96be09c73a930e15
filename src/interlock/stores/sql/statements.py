"""The steps of a line as statements, and what their answers mean."""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from interlock.core.claims import SEPARATOR, Claim, ClaimView, LockSpec, moment_of
from interlock.runtime.process import HOST, pid
from interlock.stores.postgresql.ddl import TABLE, names_of

MICROS = 1_000_000
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_PLACE = re.compile(r"\$\d+")


class Statement(NamedTuple):
    """One statement: a transaction of its own, on a connection that nobody else uses meanwhile.

    Attributes:
        words: SQL with $1, $2, … for the values, each once and in this order.
        values: bytes, str, int, bool, or lists of them.
        io_timeout: seconds to wait for the answer; None for the usual.
        reserved: True if it has a connection where all others are in use: a lease must not end for that.
    """

    words: str
    values: tuple[Any, ...] = ()
    io_timeout: float | None = None
    reserved: bool = False

    @property
    def pyformat(self) -> str:
        """The words with %s for the values, for a cursor of a DB-API driver."""
        return pyformat(self.words)


@lru_cache(256)
def pyformat(words: str) -> str:
    """Return words with %s for the values."""
    return _PLACE.sub("%s", words)


@lru_cache(4096)
def hashed(key: str) -> bytes:
    """Return all 256 bits for a key: collations that know no case, and limits of indexes, must not make two one."""
    return hashlib.sha256(key.encode()).digest()


def micros(seconds: float) -> int:
    """Return a lease in the table's unit, never shorter."""
    return int(seconds * MICROS + 0.999)


class Texts:
    """The statements on one table of a PostgreSQL database.

    Args:
        table, schema: as for `ddl`.

    Attributes:
        channel: where this process listens; whoever else is to be told is told by the database.
    """

    channel = ""

    def __init__(self, table: str = TABLE, schema: str = "") -> None:
        names = names_of(table, schema)
        self.table = names.table
        self.grace_left = Statement(f"SELECT greatest(0, min(open_from) - {NOW}) FROM {names.alive}")
        self._enter = f"SELECT state, fence, recheck_after, told FROM {names.function('enter')}({_places(13)})"
        self._leave = f"SELECT removed, told FROM {names.function('leave')}({_places(4)})"
        self._renew = f"SELECT id, renewed FROM {names.function('renew')}({_places(3)})"
        self._sweep = f"SELECT swept FROM {names.function('sweep')}({_places(2)})"
        live = f"FROM {names.table} l, (SELECT {NOW} AS moment) n WHERE l.id <> '' AND l.until > n.moment"
        self._look = (
            "SELECT l.name, l.id, l.units, l.capacity, l.fence, l.host, l.pid, l.thread, l.label, l.since, "
            f"l.until - n.moment {live} AND "
        )
        self._namespaces = f"SELECT DISTINCT l.namespace {live}"
        self._fixed = lru_cache(4096)(fixed)

    def start_afresh(self) -> None:
        """In a forked child: it is another process."""
        self._fixed.cache_clear()

    def enter(self, claim: Claim, mode: str, channel: str) -> Statement:
        """Ask for the lock; `mode` is try, wait or again."""
        key, ttl, units, capacity, who = self._fixed(claim.spec, claim.who)
        return Statement(self._enter, (key, claim.id, mode, ttl, units, capacity, channel, *who))

    def leave(self, key: str, id: str, evict: bool = False) -> Statement:
        """Take a claim out of the line; `*` stands for all."""
        return Statement(self._leave, (hashed(key), id, evict, self.channel))

    def renew(self, claims: Sequence[Claim]) -> Statement:
        """Extend leases; an attempt that gets no answer must leave time for others before the first of them ends."""
        keys = [hashed(claim.spec.key) for claim in claims]
        ids = [claim.id for claim in claims]
        ttls = [micros(claim.spec.ttl) for claim in claims]
        return Statement(self._renew, (keys, ids, ttls), min(claim.spec.ttl / 3 for claim in claims), reserved=True)

    def sweep(self, pages: int, age: float) -> Statement:
        """Delete what is over since `age` seconds in a part of the table."""
        return Statement(self._sweep, (pages, micros(age)))

    def look(self, key: str) -> Statement:
        """List the live claims of a name, or of a whole namespace."""
        if key.endswith(SEPARATOR):
            return Statement(f'{self._look} l.namespace = $1 ORDER BY l.name COLLATE "C", l.number', (key[:-1],))
        return Statement(f"{self._look} l.key = $1 ORDER BY l.number", (hashed(key),))

    def namespaces(self) -> Statement:
        """List the namespaces that have live claims."""
        return Statement(self._namespaces)

    @staticmethod
    def notify(channels: Sequence[str], messages: Sequence[str]) -> Statement:
        """Tell waiters of other processes; NOTIFY takes a lock of the whole cluster, so only when somebody waits."""
        return Statement("SELECT pg_notify(c, m) FROM unnest($1::text[], $2::text[]) AS w (c, m)",
                         (list(channels), list(messages)))  # fmt: skip


def _places(number: int) -> str:
    return ", ".join(f"${place}" for place in range(1, number + 1))


def fixed(spec: LockSpec, who: str) -> tuple[Any, ...]:
    """Return what stays the same when a thread enters with the same spec again and again."""
    namespace, _, name = spec.key.partition(SEPARATOR)
    about = (namespace, name, HOST, pid(), who, spec.label)
    return hashed(spec.key), micros(spec.ttl), spec.units, spec.capacity, about


def views_of(rows: Sequence[Sequence[Any]]) -> list[ClaimView]:
    """Return the claims that `look` found."""
    return [_view(*row) for row in rows]


def _view(
    name: str, id: str, units: Any, capacity: Any, fence: Any, host: str, pid: Any, thread: str, label: str,
    since: Any, left: Any,
) -> ClaimView:  # fmt: skip
    issued = int(fence)
    return ClaimView(
        name=name,
        id=id,
        state="using" if issued else "pending",
        units=int(units),
        capacity=int(capacity),
        fence=issued or None,
        host=host,
        pid=int(pid),
        thread=thread,
        label=label,
        since=int(since) / MICROS,
        expires_in=int(left) / MICROS,
        held_since=moment_of(issued) if issued else None,
    )


class Promotion(NamedTuple):
    """A claim that was promoted by somebody else's step; with the fence 0, one that is to look again.

    Attributes:
        channel: where its process listens; empty if it does not.
        id, fence: of the claim.
    """

    channel: str
    id: str
    fence: int


def promotions_in(promotions: str) -> list[Promotion]:
    """Return who was promoted, from the answer to a step."""
    found = (line.split(" ") for line in promotions.splitlines())
    return [Promotion(channel, id, int(fence)) for channel, id, fence in found]
