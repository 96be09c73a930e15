"""The world of the original scheme: a store with the visibility of its records, clients, and crashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from proof.automaton import Automaton
from proof.seeds import protocols as ask
from proof.seeds.protocols import Status
from proof.seeds.versions import Reads, Version

NAMES = "ABCDEFGH"
_CREATES = {Status.MEMBER: "adds its id to the set", Status.KEY: "sets using:key"}
_REMOVES = {Status.MEMBER: "removes its id from the set", Status.KEY: "deletes using:key"}
ENTER, CRASH = "enter", "crash"
REPLICA = "replica"


class Row(NamedTuple):
    """An occupancy record; one that was left behind belongs to a call that has returned."""

    owner: int
    status: Status
    left_behind: bool = False


Rows = frozenset[Row]


class Transaction(NamedTuple):
    """The state of a client's transaction.

    `snapshot`: the committed records that its looks see; None if not taken yet, or if they always see the latest.
    `own`: its own uncommitted records; None if its writes are not part of the transaction, but commit at once.
    """

    snapshot: Rows | None
    own: Rows | None


class Reading(NamedTuple):
    """A folder that was read in part: the entries that must still appear unless renamed, and those seen."""

    unread: Rows
    seen: frozenset[Status]


class Session(NamedTuple):
    """One client: its local state in the automaton, and its transaction or reading in progress."""

    local: int
    transaction: Transaction | None = None
    reading: Reading | None = None
    crashed: bool = False


class Effect(NamedTuple):
    """The effect of one request: its text, its result, and the records and the transaction after it.

    With a `reading` the request is not finished and has no result yet.
    """

    words: str
    result: object
    rows: Rows
    transaction: Transaction | None
    reading: Reading | None = None


Step = tuple[str, str | None, Rows, Session]
"""The text and tag of a step, and the records and the client's session after it."""
State = tuple[Any, ...]
"""The records, the replica's records, then the session of each client."""


class World:
    """Clients of one version of the scheme on one store; some of them may crash."""

    def __init__(self, version: Version, clients: int, crashes: int = 0) -> None:
        self.version = version
        self.clients = clients
        self.crashes = crashes
        self.automaton = Automaton(version.client)
        self._known: dict[tuple[Rows, Rows, int, Session], list[Step]] = {}

    def init(self) -> State:
        """Return the state before the first step."""
        return (frozenset(), frozenset(), *[Session(self.automaton.start)] * self.clients)

    def violation(self, state: State) -> str | None:
        """Return the clients in the critical section as text, if there are several."""
        holders = [NAMES[client] for client, session in enumerate(state[2:]) if self._holds(session)]
        return f"two holders: {' and '.join(holders)}" if len(holders) > 1 else None

    def successors(self, state: State) -> Iterator[tuple[object, str, str | None, State]]:
        """Return every step of every client, every crash, and the replica's catching up."""
        rows, replica, *sessions = state
        if self.version.reads is Reads.REPLICA and replica != rows:
            yield REPLICA, "the replica catches up", None, (rows, rows, *sessions)
        may_crash = sum(session.crashed for session in sessions) < self.crashes
        for client, session in enumerate(sessions):
            if session.crashed:
                continue
            before, behind = state[2 : client + 2], state[client + 3 :]
            for label, tag, rows_after, session_after in self._steps(rows, replica, client, session):
                yield client, label, tag, (rows_after, replica, *before, session_after, *behind)
            if may_crash:
                crashed = Session(self.automaton.start, crashed=True)
                label = f"{NAMES[client]} crashes"
                yield (CRASH, client), label, CRASH, (rows, replica, *before, crashed, *behind)

    def _holds(self, session: Session) -> bool:
        return not session.crashed and isinstance(self.automaton.requests[session.local], ask.Work)

    def _steps(self, rows: Rows, replica: Rows, client: int, session: Session) -> list[Step]:
        """The steps of one client; cached, since they do not depend on the other clients' sessions."""
        known = self._known.get((rows, replica, client, session))
        if known is None:
            known = self._known[rows, replica, client, session] = []
            for effect in self._effects(rows, replica, client, session):
                after, tag = self._after(session, effect)
                label = f"{NAMES[client]} {effect.words}{', and holds the lock' if tag else ''}"
                known.append((label, tag, effect.rows, after))
        return known

    def _after(self, session: Session, effect: Effect) -> tuple[Session, str | None]:
        """The session after an effect, and the tag if the client enters the critical section by it."""
        if effect.reading is not None:
            return session._replace(reading=effect.reading), None
        after = Session(self.automaton.step(session.local, effect.result), effect.transaction)
        return after, ENTER if self._holds(after) else None

    def _effects(self, rows: Rows, replica: Rows, client: int, session: Session) -> Iterator[Effect]:
        request = self.automaton.requests[session.local]
        transaction = session.transaction
        match request:
            case ask.Begin() | ask.Commit():
                yield self._bound(rows, client, transaction, request)
            case ask.Look(status):
                seen, after = self._look(rows, replica, client, transaction)
                found = status in seen
                whose = "another's" if found else "no other"
                yield Effect(f"sees {whose} {status}", found, rows, after)
            case ask.LookAtAll():
                seen, after = self._look(rows, replica, client, transaction)
                yield Effect(f"sees {_listed(seen)}", seen, rows, after)
            case ask.ReadFolder():
                yield from _read_folder(rows, client, request, session.reading)
            case ask.CountMembers():
                members = min(sum(row.status is Status.MEMBER for row in rows), 2)
                yield Effect(f"counts {'one id' if members < 2 else 'several ids'}", members, rows, transaction)
            case ask.GetKey():
                used = any(row.status is Status.KEY for row in rows)
                yield Effect(f"finds {'a' if used else 'no'} using:key", used, rows, transaction)
            case ask.Sleep():
                yield Effect("sleeps", None, rows, transaction)
            case ask.Work():
                yield Effect("leaves the critical section", None, rows, transaction)
            case _:
                yield _write(rows, client, transaction, request)

    def _look(
        self, rows: Rows, replica: Rows, client: int, transaction: Transaction | None
    ) -> tuple[frozenset[Status], Transaction | None]:
        """The statuses of the records that are not the client's own of this call, and the transaction after it."""
        reads = self.version.reads
        visible = replica if reads is Reads.REPLICA else rows
        if transaction is not None and reads is not Reads.COMMITTED:
            if transaction.snapshot is None:
                transaction = transaction._replace(snapshot=rows)
            visible = transaction.snapshot or frozenset()
        others = {row for row in visible if row.owner != client} | _own(rows, client, transaction)
        return frozenset(row.status for row in others if not _current(row, client)), transaction

    def _bound(self, rows: Rows, client: int, transaction: Transaction | None, request: object) -> Effect:
        """The beginning and the end of a transaction."""
        own = frozenset(row for row in rows if row.owner == client)
        if transaction is None:
            if self.version.reads is Reads.OLD_SNAPSHOT:
                return Effect("begins a request, its snapshot is taken", None, rows, Transaction(rows, None))
            return Effect("begins a transaction", None, rows, Transaction(None, own))
        if transaction.own is None:
            return Effect("ends the request", True, rows, None)
        others = rows - own
        snapshot = transaction.snapshot
        if self.version.reads is Reads.SERIALIZABLE and snapshot is not None and snapshot - own != others:
            return Effect("commits and is refused: could not serialize", False, rows, None)
        return Effect("commits", True, others | transaction.own, None)


def _current(row: Row, client: int) -> bool:
    return row.owner == client and not row.left_behind


def _listed(seen: frozenset[Status]) -> str:
    return " and ".join(f"another's {status}" for status in sorted(seen)) or "nothing"


def _own(rows: Rows, client: int, transaction: Transaction | None) -> Rows:
    if transaction is not None and transaction.own is not None:
        return transaction.own
    return frozenset(row for row in rows if row.owner == client)


def _write(rows: Rows, client: int, transaction: Transaction | None, request: object) -> Effect:
    """A write, committed at once or inside the client's transaction."""
    own = _own(rows, client, transaction)
    match request:
        case ask.Create(status):
            words, after = _CREATES.get(status, f"creates {status}"), own | {Row(client, status)}
        case ask.Remove(status):
            words, after = _REMOVES.get(status, f"removes {status}"), own - {Row(client, status)}
        case ask.Promote():
            current = {row for row in own if _current(row, client)}
            words, after = "turns pending into using", (own - current) | {Row(client, Status.USING)}
        case ask.LeaveBehind():
            words = "returns and leaves its record"
            after = frozenset(row._replace(left_behind=True) for row in own)
        case _:
            raise TypeError(f"not a request of the original scheme: {request!r}")
    if transaction is not None and transaction.own is not None:
        return Effect(words, None, rows, transaction._replace(own=after))
    others = frozenset(row for row in rows if row.owner != client)
    if Row(client, Status.KEY) in after ^ own:  # there is one key, so a write replaces another client's
        others = frozenset(row for row in others if row.status is not Status.KEY)
    return Effect(words, None, others | after, transaction)


def _read_folder(rows: Rows, client: int, request: ask.ReadFolder, reading: Reading | None) -> Iterator[Effect]:
    """Every way to go on reading a folder.

    According to POSIX an entry that exists from begin to end is read once; one that is created or removed meanwhile
    (a renamed one is both) may be read or missed.
    """
    there = frozenset(row for row in rows if not _current(row, client) and row.status in request.wanted)
    if reading is None:
        yield Effect(f"opens {request.folder}", None, rows, None, Reading(there, frozenset()))
        return
    unread = reading.unread & there
    for row in sorted(there):
        if row in unread or row.status not in reading.seen:
            further = Reading(unread - {row}, reading.seen | {row.status})
            yield Effect(f"reads {NAMES[row.owner]}'s {row.status}", None, rows, None, further)
    if not unread:
        yield Effect(f"ends {request.folder}: {_listed(reading.seen)}", reading.seen, rows, None)
