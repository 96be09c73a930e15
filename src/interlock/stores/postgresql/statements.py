"""The steps of a line as statements, and what their answers mean."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from interlock.core.claims import MICROS, SEPARATOR, USING, Claim, ClaimView, LockSpec
from interlock.runtime.process import HOST, checked_pid
from interlock.stores.postgresql.ddl import TABLE, ddl, names_of, statements

Row: TypeAlias = tuple[str | None, ...]
Value: TypeAlias = str | bytes | int | list[str] | list[bytes]
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
FOREVER = 10 * 365 * 86400  # seconds


class Statement(NamedTuple):
    """One statement: a transaction of its own.

    Attributes:
        words: SQL with $1, $2, … for the values.
        values: what stands for them.
    """

    words: bytes
    values: tuple[Value, ...] = ()


BEGIN = Statement(b"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE")
COMMIT = Statement(b"COMMIT")
ROLLBACK = Statement(b"ROLLBACK")
WHOSE = Statement(b"SELECT pg_backend_pid()")
MAKE_LOCK = Statement(b"SELECT pg_advisory_xact_lock(7308896216438961)")  # one process makes the table at a time


@lru_cache(4096)
def hashed(key: str) -> bytes:
    """Return all 256 bits for a key: collations, and limits of indexes, must not make two one."""
    return hashlib.sha256(key.encode()).digest()


def listening(channel: str) -> Statement:
    """Return the statement that listens to a channel."""
    return Statement(f'LISTEN "{channel}"'.encode())


def notifying(channels: Sequence[str], messages: Sequence[str]) -> Statement:
    """Return the statement that tells waiters of other processes."""
    words = b"SELECT pg_notify(c, m) FROM unnest($1::text[], $2::text[]) AS w (c, m)"
    return Statement(words, (list(channels), list(messages)))


class Texts:
    """The statements on one table.

    Args:
        table, schema, grace: as for `ddl`.
        channel: where this process is told of promotions.
    """

    def __init__(self, table: str, schema: str, grace: float, channel: str) -> None:
        names = names_of(table, schema)
        self.channel = channel
        self.making = [Statement(each.encode()) for each in statements(ddl(table, schema, grace))]

        def step(columns: str, function: str, values: int) -> bytes:
            places = ", ".join(f"${place}" for place in range(1, values + 1))
            return f"SELECT {columns} FROM {names.function(function)}({places})".encode()

        self._enter = step("state, fence, slot, look_in, told", "enter", 14)
        self._leave = step("removed, told", "leave", 5)
        self._adopt = step("fence, slot, told", "adopt", 9)
        self._renew = step("id, renewed", "renew", 2)
        self._sweep = step("swept", "sweep", 2)
        live = f"FROM {names.table} l, (SELECT {NOW} AS moment) n WHERE l.id <> '' AND l.until > n.moment"
        self._look = (
            "SELECT l.name, l.id, l.units, l.capacity, l.fence, l.home, l.who, l.label, l.since, l.until - n.moment, "
            f"l.held {live} AND "
        )
        self.namespaces = Statement(f"SELECT DISTINCT l.namespace {live} ORDER BY 1".encode())
        self.about = Statement(
            "SELECT current_setting('server_version'), pg_is_in_recovery()::int, current_setting('fsync'), "
            f"current_setting('full_page_writes'), current_setting('server_version_num'), {NOW}".encode()
        )
        self.place = Statement(
            f"SELECT n.nspname, (SELECT greatest(0, min(open_from) - {NOW}) FROM {names.alive}) FROM pg_class c "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = '{names.table}'::regclass".encode()
        )
        self._fixed = lru_cache(4096)(fixed)

    def enter(self, claim: Claim, mode: str, channel: str) -> Statement:
        """Ask for the lock; `mode` is try, wait or again; `channel` is where the claim is told, if it is."""
        id, spec, who = claim
        key, about = self._fixed(spec, who, checked_pid())
        return Statement(self._enter, (key, id, mode, channel, *about, self.channel))

    def leave(self, key: str, id: str, keep: float = 0.0, evict: bool = False) -> Statement:
        """Take a claim out of the line; `*` stands for all."""
        return Statement(self._leave, (hashed(key), id, int(keep * MICROS), "t" if evict else "f", self.channel))

    def adopt(self, key: str, id: str, claim: Claim) -> Statement:
        """Let a claim go on as another one."""
        key_, about = self._fixed(claim.spec, claim.who, checked_pid())
        ttl, home, who, label = about[0], *about[-3:]
        return Statement(self._adopt, (key_, id, claim.id, self.channel, ttl, home, who, label, self.channel))

    def renew(self, claims: Sequence[Claim]) -> Statement:
        """Extend leases."""
        return Statement(self._renew, ([hashed(claim.spec.key) for claim in claims], [claim.id for claim in claims]))

    def sweep(self, pages: int, age: float) -> Statement:
        """Delete what is over since `age` seconds in a part of the table."""
        return Statement(self._sweep, (pages, int(age * MICROS)))

    def look(self, key: str) -> Statement:
        """List the live claims of a name, or of a whole namespace."""
        if key.endswith(SEPARATOR):
            words = f'{self._look} l.namespace = $1 ORDER BY l.name COLLATE "C", l.number'
            return Statement(words.encode(), (key[:-1],))
        return Statement(f"{self._look} l.key = $1 ORDER BY l.number".encode(), (hashed(key),))


def fixed(spec: LockSpec, who: str, pid: int) -> tuple[bytes, tuple[Value, ...]]:
    """Return the key, and what stays the same when a thread enters with the same spec again and again."""
    namespace, _, name = spec.key.partition(SEPARATOR)
    ttl, once = int(spec.ttl * MICROS), "t" if spec.once else "f"
    about = (ttl, spec.units, spec.capacity, once, namespace, name, f"{HOST} {pid}", who, spec.label)
    return hashed(spec.key), about


def view_of(row: Row) -> ClaimView:
    """Return a claim that `look` found."""
    name, id, units, capacity, fence, home, who, label, since, left, held = (each or "" for each in row)
    host, _, pid = home.rpartition(" ")
    return ClaimView(
        name, id, USING if held != "0" else "pending", int(units), int(capacity), int(fence) if held != "0" else None,
        host, int(pid), who, label, int(since) / MICROS, int(left) / MICROS,
        int(held) / MICROS if held != "0" else None,
    )  # fmt: skip
