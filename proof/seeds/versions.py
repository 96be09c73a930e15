"""The table of versions of the original scheme: the store, the protocol, the visibility of records, the repair."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial

from proof.seeds import protocols as steps
from proof.seeds.protocols import Outcome, Part, Status


class Reads(Enum):
    """The records that a look sees."""

    LATEST = "every completed write"
    COMMITTED = "READ COMMITTED: what others have committed by now"
    SNAPSHOT = "REPEATABLE READ: what others had committed at the first look of the transaction"
    SERIALIZABLE = "SERIALIZABLE: the same, and a commit is refused if what was seen has changed since"
    REPLICA = "a replica that catches up at any later time"
    OLD_SNAPSHOT = "what others had committed when the reading transaction began; writes commit at once"


@dataclass(frozen=True, slots=True)
class Version:
    """One implementation of the original scheme.

    `client` makes the endless run of one client; `repair` is the part of the pending protocol that repairs its fault.
    """

    store: str
    name: str
    client: Part[None]
    reads: Reads
    repair: str

    @property
    def title(self) -> str:
        """The store and the name."""
        return f"{self.store}: {self.name}"


def _client(attempt: Part[Outcome], used: Status = Status.USING) -> Part[None]:
    """A client that sends every request outside of transactions."""
    return partial(steps.for_ever, partial(steps.visit, partial(steps.acquire, attempt), used))


def _attempt_in_transaction() -> Part[None]:
    return _client(partial(steps.in_transaction, steps.attempt, Outcome.AGAIN))


def _acquire_in_transaction() -> Part[None]:
    whole = partial(steps.in_transaction, partial(steps.acquire, steps.attempt), False)
    return partial(steps.for_ever, partial(steps.visit, whole))


def _request_in_transaction() -> Part[None]:
    visit = partial(steps.visit, partial(steps.acquire, steps.attempt))
    return partial(steps.for_ever, partial(steps.in_transaction, visit, None))


LEASES = "leases; one waiter is first in line, the others step aside"
ALONE = "each write commits at once, on a connection of its own"
FRESH = "each look reads the latest committed records, from the primary"
ORDER = "pendings are read no later than usings"
ATOMIC = "pending becomes using in one step, or is seen as using before it stops being seen as pending"
OWN_ID = "every exit removes the claim, by its own id"


def _database() -> list[Version]:
    def autocommit(name: str, attempt: Part[Outcome], repair: str, reads: Reads = Reads.LATEST) -> Version:
        return Version("database", name, _client(attempt), reads, repair)

    def transaction(name: str, client: Part[None], reads: Reads, repair: str = ALONE) -> Version:
        return Version("database", name, client, reads, repair)

    reversed_looks = partial(steps.attempt, steps.using_then_pending)
    return [
        autocommit("autocommit, pending then using", steps.attempt, LEASES),
        autocommit("autocommit, one query for both", partial(steps.attempt, steps.both_in_one_query), LEASES),
        autocommit("autocommit, using then pending", reversed_looks, ORDER),
        autocommit(
            "autocommit, giving up leaves the record", partial(steps.attempt, give_up=steps.leave_own), OWN_ID
        ),
        autocommit("looks at a replica", steps.attempt, FRESH, Reads.REPLICA),
        transaction("attempt in a READ COMMITTED transaction", _attempt_in_transaction(), Reads.COMMITTED),
        transaction("attempt in a REPEATABLE READ transaction", _attempt_in_transaction(), Reads.SNAPSHOT),
        transaction("attempt in a SERIALIZABLE transaction", _attempt_in_transaction(), Reads.SERIALIZABLE),
        transaction("acquire in a READ COMMITTED transaction", _acquire_in_transaction(), Reads.COMMITTED),
        transaction("acquire in a REPEATABLE READ transaction", _acquire_in_transaction(), Reads.SNAPSHOT),
        transaction("ATOMIC_REQUESTS, READ COMMITTED", _request_in_transaction(), Reads.COMMITTED),
        transaction("ATOMIC_REQUESTS, REPEATABLE READ", _request_in_transaction(), Reads.SNAPSHOT),
        transaction("looks in the request's old snapshot", _request_in_transaction(), Reads.OLD_SNAPSHOT, FRESH),
    ]


def _redis() -> list[Version]:
    def version(name: str, give_up: Part[None], repair: str) -> Version:
        client = _client(partial(steps.redis_attempt, give_up), Status.KEY)
        return Version("Redis", name, client, Reads.LATEST, repair)

    return [
        version("as written, a new id for each call", steps.leave_own, OWN_ID),
        version("as written, one id for each worker", steps.keep_own, OWN_ID),
        version("giving up removes the id", steps.remove_member, LEASES),
    ]


def _files() -> list[Version]:
    def version(name: str, looks: Part[tuple[bool, bool]], move: Part[None], repair: str) -> Version:
        attempt = partial(steps.attempt, looks, move)
        return Version("files", name, _client(attempt), Reads.LATEST, repair)

    entries = steps.two_folders_entry_by_entry
    return [
        version("rename, pending/ then using/", steps.pending_then_using, steps.promote, LEASES),
        version("the same, folders read entry by entry", entries, steps.promote, LEASES),
        version("rename, using/ then pending/", steps.using_then_pending, steps.promote, ORDER),
        version("create in using/, then delete in pending/", entries, steps.create_then_delete, LEASES),
        version("delete in pending/, then create in using/", entries, steps.delete_then_create, ATOMIC),
        version("one folder, read once", steps.one_folder_once, steps.promote, ORDER),
        version("one folder, read twice", steps.one_folder_twice, steps.promote, LEASES),
    ]


VERSIONS: tuple[Version, ...] = (*_database(), *_redis(), *_files())
