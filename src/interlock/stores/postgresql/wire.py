"""The PostgreSQL statements of the steps, the parsing of replies, and advice."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from psycopg.pq import ConnStatus
from psycopg.pq.abc import PGconn

from interlock.core.claims import MICROS, PENDING, SEPARATOR, USING, Claim, ClaimView, LockSpec, record_view
from interlock.core.errors import StoreError
from interlock.core.failures import Denied, NoRoom, Refused, TransientRefusal, Unreachable, ended
from interlock.core.line import RENEWAL_GONE
from interlock.core.queue import BUSY, RUN_ALREADY_DONE, EnterResult, Renewed
from interlock.runtime._threads import sleep, start_background
from interlock.runtime.process import HOST, OwnedDescriptor, checked_pid
from interlock.storekit.wire import AGAIN, NOT_THERE, REMOVED, WAIT, LeaveResult, Mode
from interlock.stores.postgresql.ddl import ddl, names_of, statements
from interlock.stores.postgresql.options import PostgresOptions

TextRow: TypeAlias = list[str]
Value: TypeAlias = str | bytes
"""A parameter in text format: bytes are unchanged, a str is encoded for the database."""
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7308896216438961)"  # for the creation of the table
MODES = {AGAIN: b"again", WAIT: b"wait"}  # every other mode is "try"
SHORTEST_LEASE_POLL = 0.005  # seconds; a lease that is about to expire may be renewed before
SHORTEST_POLL, LONGEST_POLL = 0.02, 0.5  # seconds between two polls of a waiter that gets no notifications
OF_THE_WAIT = 0.25  # such a waiter polls again after this part of its waiting time

ISOLATION = "IL001"  # raised by our own functions
READ_ONLY = "25006"
IN_RECOVERY = "0A000"  # a replica can't read unlogged tables, and refuses a read-write transaction
NO_TABLE, NO_FUNCTION, NO_SCHEMA, NO_COLUMN = "42P01", "42883", "3F000", "42703"
RIGHTS = "42501"
TOO_MANY_CONNECTIONS = "53300"
CANNOT_CONNECT_NOW = "57P03"
UNPREPARED, PREPARED = "26000", "42P05"  # a pooler without support has switched the session
SEE_SERVER_LOG = "Check the server's log."

_BY_HAND = "let its owner run the output of `python -m interlock.stores.postgresql`"
_MISSING = (
    f"the table of locks and its functions are missing, and ?create=false forbids their creation. To create them, "
    f"{_BY_HAND}; or give their place by ?schema= and ?table=."
)
_NOWHERE = (
    "the table of locks has no schema: the search_path of this role is empty, or names no existing schema. "
    "Give a schema by ?schema=, or set the search_path."
)
_READS = "The server or role is read-only. Connect to the primary, with a role that may write."
_ADVICE = {
    ISOLATION: "Locks need the isolation level read committed. Allow it.",
    READ_ONLY: _READS,
    IN_RECOVERY: _READS,
    NO_COLUMN: "The table of locks belongs to another version of interlock. Drop it, or use another (?table=).",
    RIGHTS: f"If the table of locks is missing and this role cannot create it, {_BY_HAND}. Otherwise GRANT this "
    "role SELECT, INSERT, UPDATE, DELETE on the table, SELECT, INSERT on the table …_alive, EXECUTE on the "
    "functions and USAGE on the schema.",
    "28P01": "User name or password is wrong. Check both.",
    "28000": "The server refuses this user. Check that the role exists, and check pg_hba.conf.",
    "3D000": "The database does not exist. Check its name.",
    TOO_MANY_CONNECTIONS: "The server, database, role or pooler has no free connection. Raise its limit, or lower "
    "?max_connections= in the processes.",
    "53100": "The disk of the server is full. Free some space.",
    CANNOT_CONNECT_NOW: "The server is starting or stopping. Retry soon.",
    "57014": "The server cancelled the step. Check that the role's statement_timeout is longer than a commit.",
    "55P03": "Another step of the same name took longer than the role's lock_timeout. Retry.",
}
CONFLICT_CODES = ("40001", "40P01", "55P03", "57014")
"""A conflict with other transactions, or a time-out: rolled back, and can be retried."""
_DENIED = (
    ("28P01", "password authentication failed"),
    ("28000", "pg_hba.conf"),
    ("28000", 'role "'),
    ("3D000", 'database "'),
)
_FULL = ("too many clients", "too many connections for", "remaining connection slots", "no more connections allowed")
"""The errors of servers that accept no more connections; the last one is PgBouncer's."""


def refusal(code: str, text: str, where: str) -> Refused:
    """Return the error to raise for an error of the database.

    Args:
        code: its SQLSTATE.
        text: the database's message.
        where: the database, without a password.
    """
    # The classes 53 and 58 are insufficient resources and system errors.
    passes = code in (*CONFLICT_CODES, CANNOT_CONNECT_NOW) or code[:2] in ("53", "58")
    error = (TransientRefusal if passes else Refused)(
        # The advice comes first; the name of a function is shown without its thirteen arguments.
        f"{where}: {_NOWHERE if code == NO_SCHEMA else _MISSING} ({text.partition('(')[0]}; {code})"
        if code in (NO_TABLE, NO_FUNCTION, NO_SCHEMA)
        else f"{where} refused: {text} ({code}). {_ADVICE.get(code, SEE_SERVER_LOG)}"
    )
    error.code = code
    error.is_unavailable = code == CANNOT_CONNECT_NOW
    return error


def failure(code: str, text: str, where: str, is_over: bool) -> StoreError:
    """Return the error to raise if an error came instead of a reply.

    If the connection has ended, the statement may have been performed, and the error is `ConnectionEnded`.

    Args:
        code, text, where: as for `refusal`.
        is_over: True if the connection has ended.
    """
    if is_over or not code or (code[:2] in ("08", "57") and code not in ("57014", CANNOT_CONNECT_NOW)):
        return ended(where, StoreError(text))
    return refusal(code, text, where)


def not_connected(error: BaseException, where: str) -> StoreError:
    """Return the error to raise for a failed connection, from libpq's text."""
    text = str(error).strip() or type(error).__name__
    if any(words in text for words in _FULL):
        return NoRoom(f"{where} refused: {text} ({TOO_MANY_CONNECTIONS}). {_ADVICE[TOO_MANY_CONNECTIONS]}")
    for code, words in _DENIED:
        if getattr(error, "sqlstate", None) == code or (words in text and "FATAL" in text):
            return Denied(f"{where} refused: {text} ({code}). {_ADVICE[code]}")
    return Unreachable(f"Cannot connect to {where}: {text}. {SEE_SERVER_LOG}")


class PgStatement(NamedTuple):
    """One statement.

    Attributes:
        words: SQL with $1, $2, … for the values.
        values: the parameters.
        told: the channel of this process, if the last column of the reply names waiters to notify, each in a line
            after the first: the caller notifies its own directly, and those of other channels by a request.  None
            without that column.
    """

    words: bytes
    values: tuple[Value, ...] = ()
    told: str | None = None


BEGIN = PgStatement(b"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE")
COMMIT = PgStatement(b"COMMIT")
ROLLBACK = PgStatement(b"ROLLBACK")


@lru_cache(4096)
def hashed(key: str) -> bytes:
    """Return the SHA-256 of a key, because names may be too long or equal in an index."""
    return b"\\x" + hashlib.sha256(key.encode()).hexdigest().encode()


@lru_cache(4096)
def advisory(hashed_key: bytes) -> bytes:
    """Return the number of the advisory lock of a name: the first 64 bits of its hash, as `begin` computes it."""
    number = int(hashed_key[2:18], 16)
    return b"%d" % (number - (number >> 63 << 64))


def array(elements: Iterable[bytes]) -> bytes:
    """Return an array in text format."""
    return b'{"' + b'","'.join(elements).replace(b"\\", b"\\\\") + b'"}'


def micros(seconds: float) -> bytes:
    """Return seconds as microseconds, in text format."""
    return b"%d" % int(seconds * MICROS)


def notifying(messages: Sequence[tuple[str, str]]) -> PgStatement:
    """Return the statement that notifies waiters of other processes by channel."""
    return PgStatement(
        b"SELECT pg_notify(c, m) FROM unnest($1::text[], $2::text[]) AS w (c, m)",
        tuple(array(each.encode() for each in some) for some in zip(*messages, strict=True)),
    )


def notify_statement(rows: Sequence[TextRow], own: str) -> PgStatement | None:
    """Return the request that notifies the waiters in a reply; None without any.

    These are the waiters whose promotion had to be on disk before they could be notified.
    """
    lines = [line.split(" ", 1) for line in rows[0][-1].splitlines()[1:]]
    others = [(channel, message) for channel, message in lines if channel not in ("", own)]
    return notifying(others) if others else None


class PostgresWire:
    """The requests and replies of PostgreSQL, as `storekit.wire.Wire`.

    Args:
        options: the table.

    Attributes:
        deaf: True if LISTEN does not work, because a pooler is in between.
        prepared: the names of the steps as prepared statements, by their SQL; empty behind a pooler without support.
    """

    client_notifies = True

    def __init__(self, options: PostgresOptions) -> None:
        self.where = options.where
        self.io_timeout = options.timeout
        self.deaf = False
        self.prepared: dict[bytes, bytes] = {}
        names = names_of(options.table, options.schema)
        making = statements(ddl(options.table, options.schema, options.grace))
        self.making = [PgStatement(each.encode()) for each in (ONE_AT_A_TIME, *making)]

        def step(columns: str, function: str, values: int) -> bytes:
            places = ", ".join(f"${place}" for place in range(1, values + 1))
            words = f"SELECT {columns and columns + ' FROM '}{names[function]}({places})".encode()
            # Behind a pooler other clients use the same session, so a name must mean exactly this text.
            self.prepared[words] = f"interlock_{function}_{hashlib.sha256(words).hexdigest()[:16]}".encode()
            return words

        self._enter = step("", "enter", 14)
        self._leave = step("", "leave", 7)
        self._kept = step("value", "kept", 2)
        self._adopt = step("fence, slot, chr(10) || told", "adopt", 9)
        self._renew = step("id, renewed", "renew", 2)
        self._sweep = step("swept", "sweep", 2)
        live = (
            f"FROM {names['table']} l, (SELECT {NOW} AS moment) n "
            f"WHERE (l.id <> '' AND l.until > n.moment OR l.done > n.moment)"
        )
        self._look = (
            "SELECT l.name, l.id, l.units, l.capacity, l.fence, l.home, l.who, l.label, l.since, "
            f"l.until - n.moment, l.held, l.done - n.moment {live}"
        )
        self.namespaces = PgStatement(f"SELECT DISTINCT l.namespace {live} ORDER BY 1".encode())
        self.about = PgStatement(
            "SELECT current_setting('server_version'), pg_is_in_recovery()::int, current_setting('fsync'), "
            f"current_setting('full_page_writes'), current_setting('server_version_num'), {NOW}".encode()
        )
        self.place = PgStatement(
            f"SELECT c.relnamespace::regnamespace, (SELECT string_agg(o.relnamespace::regnamespace::text, ', ') "
            f"FROM pg_class o WHERE o.relname = c.relname AND o.relkind = 'r' AND o.oid <> c.oid), "
            f"(SELECT greatest(0, min(open_from) - {NOW}) FROM {names['alive']}) "
            f"FROM pg_class c WHERE c.oid = '{names['table']}'::regclass".encode()
        )
        self._fixed = lru_cache(4096)(_fixed)

    def enter(self, claim: Claim, mode: Mode, channel: str) -> PgStatement:
        """See `Wire.enter`."""
        id, spec, who = claim
        listens = "" if self.deaf or mode not in MODES else channel
        values = (id.encode(), MODES.get(mode, b"try"), listens.encode())
        key, lock, about = self._fixed(spec, who, checked_pid())
        return PgStatement(self._enter, (key, lock, *values, *about), "")

    def entered(self, reply: Sequence[TextRow]) -> EnterResult | None:
        """See `Wire.entered`."""
        state, fence, slot, look_in, waited = reply[0][0].partition("\n")[0].split(" ")
        if state == USING:
            return EnterResult("using", int(fence), slot=int(slot))
        if state == PENDING:
            pause = max(SHORTEST_LEASE_POLL, int(look_in) / MICROS)
            if self.deaf:
                pause = min(pause, LONGEST_POLL, max(SHORTEST_POLL, OF_THE_WAIT * int(waited) / MICROS))
            return EnterResult("pending", poll_after=pause)
        return RUN_ALREADY_DONE if state == "done" else BUSY if state == "more" else None

    def leave(
        self,
        claim: Claim,
        channel: str = "",
        let_in: str = "",
        keep_for: float = 0.0,
        stored_result: str = "",
        before: Sequence[str] = (),
    ) -> PgStatement:
        """See `Wire.leave`."""
        key = hashed(claim.spec.key)
        about = (claim.id.encode(), micros(keep_for), b"f", channel.encode(), stored_result.encode())
        return PgStatement(self._leave, (key, advisory(key), *about), channel)

    def run_result(self, key: str, delete: bool) -> PgStatement:
        """See `Wire.run_result`."""
        return PgStatement(self._kept, (hashed(key), b"t" if delete else b"f"))

    def value(self, reply: Sequence[TextRow]) -> str | None:
        """See `Wire.value`."""
        return reply[0][0][1:] if reply[0][0] else None

    def left(self, reply: Sequence[TextRow]) -> LeaveResult:
        """See `Wire.left`; the result may contain waiters of other processes, which the caller ignores."""
        removed, *told = reply[0][0].splitlines()
        if not told and removed in ("0", "1"):
            return REMOVED if removed == "1" else NOT_THERE
        promoted = [line.split(" ") for line in told]
        more, done = divmod(int(removed), 2)
        return LeaveResult(bool(done), [(id, int(fence), int(slot)) for _, id, fence, slot in promoted], bool(more))

    def renew(self, claims: Sequence[Claim], before: Sequence[Sequence[str]] = ()) -> PgStatement:
        """See `Wire.renew`."""
        keys = array(hashed(claim.spec.key) for claim in claims)
        return PgStatement(self._renew, (keys, array(claim.id.encode() for claim in claims)))

    def renewed(self, claims: Sequence[Claim], reply: Sequence[TextRow]) -> list[Renewed]:
        """See `Wire.renewed`."""
        held_up = StoreError("Another step on this claim has not ended, so the claim was not renewed.")
        found = {id: held_up if answer == "-1" else int(answer) for id, answer in reply}
        return [found.get(claim.id, RENEWAL_GONE) for claim in claims]

    def adopt(self, key: str, id: str, claim: Claim, channel: str, before: Sequence[str] = ()) -> PgStatement:
        """See `Wire.adopt`."""
        hashed_key, _, about = self._fixed(claim.spec, claim.who, checked_pid())
        ids = (id.encode(), claim.id.encode(), channel.encode())
        return PgStatement(self._adopt, (hashed_key, *ids, *about[:2], *about[-3:]), "")

    def adopted(self, reply: Sequence[TextRow]) -> tuple[int, int] | EnterResult | None:
        """See `Wire.adopted`."""
        fence, slot, _ = reply[0]
        return BUSY if fence == "-1" else (int(fence), int(slot)) if fence else None

    def evict(self, key: str, id: str | None, rest: Sequence[str] = ()) -> PgStatement:
        """See `Wire.evict`."""
        about = ((id or "*").encode(), b"0", b"t", b"", b"")
        return PgStatement(self._leave, (hashed(key), advisory(hashed(key)), *about), "")

    def evicted(self, reply: Sequence[TextRow]) -> tuple[int, bool, Sequence[str]]:
        """See `Wire.evicted`."""
        count = int(reply[0][0].partition("\n")[0])
        return max(count, -1 - count), count < 0, ()

    def look(self, key: str) -> PgStatement:
        """Write a request for the claims of a line, or of a namespace."""
        if key.endswith(SEPARATOR):
            words = f'{self._look} AND l.namespace = $1 ORDER BY l.name COLLATE "C", l.number'
            return PgStatement(words.encode(), (key[:-1],))
        return PgStatement(f"{self._look} AND l.key = $1 ORDER BY l.number".encode(), (hashed(key),))

    def views(self, key: str, reply: Sequence[TextRow]) -> list[ClaimView]:
        """Read the reply: the live claims in order."""
        views = [_view(*row) for *row, _ in reply if int(row[9]) > 0]
        views += [record_view(SEPARATOR + row[0], int(row[-1]) / MICROS) for row in reply if int(row[-1]) > 0]
        return sorted(views, key=attrgetter("name"))

    def sweep(self, pages: int, age: float) -> PgStatement:
        """Return the statement that deletes rows unused for `age` seconds, in `pages` pages."""
        return PgStatement(self._sweep, (b"%d" % pages, micros(age)))


def _fixed(spec: LockSpec, who: str, pid: int) -> tuple[bytes, bytes, tuple[Value, ...]]:
    """Return the key, its advisory lock, and the parameters common to all claims of a lock in a thread."""
    namespace, _, name = spec.key.partition(SEPARATOR)
    numbers = (micros(spec.ttl), b"%d" % spec.units, b"%d" % spec.capacity, b"t" if spec.once else b"f")
    key = hashed(spec.key)
    return key, advisory(key), (*numbers, namespace, name, f"{HOST} {pid}", who, spec.label)


def _view(
    name: str, id: str, units: str, capacity: str, fence: str, home: str, who: str, label: str,
    since: str, left: str, held: str,
) -> ClaimView:  # fmt: skip
    host, _, pid = home.rpartition(" ")
    return ClaimView(
        name=name,
        id=id,
        state=PENDING if held == "0" else USING,
        units=int(units),
        capacity=int(capacity),
        fence=None if held == "0" else int(fence),
        host=host,
        pid=int(pid),
        thread=who,
        label=label,
        since=int(since) / MICROS,
        expires_in=int(left) / MICROS,
        held_since=None if held == "0" else int(held) / MICROS,
    )


LINGER = 5.0  # seconds in which the server may perform and undo a request that had no reply
not_ours: set[PGconn] = set()
"""Connections without descriptors: never collected, or libpq would close other files."""


def finish(connection: PGconn, file: OwnedDescriptor) -> None:
    """Close a connection, unless its descriptor belongs to another file now."""
    if file.is_ours() or connection.status == ConnStatus.BAD:  # libpq has closed the socket of a BAD connection
        connection.finish()
    else:
        not_ours.add(connection)


def linger(connection: PGconn, file: OwnedDescriptor) -> None:
    """Close a connection after `LINGER`, in a thread, because its event loop may end before."""
    if start_background("interlock-lingers", _finish_later, connection, file) is None:
        finish(connection, file)


def _finish_later(connection: PGconn, file: OwnedDescriptor) -> None:
    sleep(LINGER)
    finish(connection, file)
