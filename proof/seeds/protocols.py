"""The original scheme, exactly as published, on each store that it names, as generators of requests.

A lock made of occupancy records: create a record `pending`; look for another client's `pending`, then for another
client's `using`. If there is a `using`, give up. If there is another `pending`, remove the own record, sleep for a
random time, and try again. Otherwise change the own record from pending to using.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class Status(StrEnum):
    """The status of a record: an occupancy record, or (Redis) a member of the set, or the key."""

    PENDING = "pending"
    USING = "using"
    MEMBER = "id in the set"
    KEY = "using:key"


@dataclass(frozen=True, slots=True)
class Create:
    """Create the own record; on files, a file in the folder of that status."""

    status: Status


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the own record."""

    status: Status


@dataclass(frozen=True, slots=True)
class Promote:
    """Change the own record from pending to using, in one step."""


@dataclass(frozen=True, slots=True)
class LeaveBehind:
    """Return without removing the own record; the next call creates a new one."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ask whether another client has a record with this status; the answer is a bool."""

    status: Status


@dataclass(frozen=True, slots=True)
class LookAtAll:
    """Ask for the statuses of the records of others, in one query; the answer is a frozenset."""


@dataclass(frozen=True, slots=True)
class ReadFolder:
    """Ask which of the wanted statuses the records of others have, by reading a folder entry by entry."""

    folder: str
    wanted: frozenset[Status]


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a transaction."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit; the answer is False if the database aborts the transaction instead."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Sleep for a random time."""


@dataclass(frozen=True, slots=True)
class Work:
    """Be in the critical section."""


@dataclass(frozen=True, slots=True)
class CountMembers:
    """SCARD; the answer is 1, or 2 for more than one."""


@dataclass(frozen=True, slots=True)
class GetKey:
    """GET using:key; the answer is a bool."""


Request = (
    Create | Remove | Promote | LeaveBehind | Look | LookAtAll | ReadFolder | Begin | Commit | Sleep | Work
) | (CountMembers | GetKey)
Steps = Generator[Request, Any, T]
Part = Callable[[], Steps[T]]


class Outcome(Enum):
    """The result of one attempt."""

    HELD = "held"
    BUSY = "somebody uses it"
    AGAIN = "try again"


# ---- the two looks: each returns (another is pending, another is using)


def pending_then_using() -> Steps[tuple[bool, bool]]:
    """The order that the original scheme requires."""
    pending = yield Look(Status.PENDING)
    using = yield Look(Status.USING)
    return pending, using


def using_then_pending() -> Steps[tuple[bool, bool]]:
    """The order in the text of the original scheme for files."""
    using = yield Look(Status.USING)
    pending = yield Look(Status.PENDING)
    return pending, using


def both_in_one_query() -> Steps[tuple[bool, bool]]:
    """One SELECT for both statuses."""
    seen = yield LookAtAll()
    return Status.PENDING in seen, Status.USING in seen


def two_folders_entry_by_entry() -> Steps[tuple[bool, bool]]:
    """Read pending/ to its end, then using/."""
    pending = yield ReadFolder("pending/", frozenset({Status.PENDING}))
    using = yield ReadFolder("using/", frozenset({Status.USING}))
    return bool(pending), bool(using)


def one_folder_once() -> Steps[tuple[bool, bool]]:
    """Read one folder once; the status is in the file names."""
    seen = yield ReadFolder("the folder", frozenset({Status.PENDING, Status.USING}))
    return Status.PENDING in seen, Status.USING in seen


def one_folder_twice() -> Steps[tuple[bool, bool]]:
    """Read one folder for names with pending, then again for names with using."""
    pending = yield ReadFolder("the folder", frozenset({Status.PENDING}))
    using = yield ReadFolder("the folder", frozenset({Status.USING}))
    return bool(pending), bool(using)


# ---- from pending to using


def promote() -> Steps[None]:
    """One UPDATE of one row, or one rename of one file."""
    yield Promote()


def create_then_delete() -> Steps[None]:
    """Create the file in using/ before deleting the one in pending/."""
    yield Create(Status.USING)
    yield Remove(Status.PENDING)


def delete_then_create() -> Steps[None]:
    """Delete the file in pending/ before creating the one in using/."""
    yield Remove(Status.PENDING)
    yield Create(Status.USING)


# ---- giving up


def remove_own() -> Steps[None]:
    """Remove the own record, as in the scheme's table of states."""
    yield Remove(Status.PENDING)


def leave_own() -> Steps[None]:
    """`return` without a removal, as in the scheme's code."""
    yield LeaveBehind()


def remove_member() -> Steps[None]:
    """Remove the own member in Redis, which the scheme's code does not do."""
    yield Remove(Status.MEMBER)


def keep_own() -> Steps[None]:
    """`return` with the worker's id, which is the same at every call, still in the set."""
    yield from ()


# ---- whole calls


def attempt(
    looks: Part[tuple[bool, bool]] = pending_then_using,
    move: Part[None] = promote,
    give_up: Part[None] = remove_own,
) -> Steps[Outcome]:
    """One attempt on occupancy records."""
    yield Create(Status.PENDING)
    pending, using = yield from looks()
    if using:
        yield from give_up()
        return Outcome.BUSY
    if pending:
        yield Remove(Status.PENDING)
        return Outcome.AGAIN
    yield from move()
    return Outcome.HELD


def redis_attempt(give_up: Part[None]) -> Steps[Outcome]:
    """One attempt on a Redis set of pending ids and a key for the one that uses."""
    yield Create(Status.MEMBER)
    members = yield CountMembers()
    if members >= 2:
        yield Remove(Status.MEMBER)
        return Outcome.AGAIN
    used = yield GetKey()
    if used:
        yield from give_up()
        return Outcome.BUSY
    yield Create(Status.KEY)
    yield Remove(Status.MEMBER)
    return Outcome.HELD


def acquire(attempt: Part[Outcome]) -> Steps[bool]:
    """Repeat attempts until the lock is held, or found in use."""
    while True:
        outcome = yield from attempt()
        if outcome is not Outcome.AGAIN:
            return outcome is Outcome.HELD
        yield Sleep()


def in_transaction(body: Part[T], if_aborted: T) -> Steps[T]:
    """Run a part inside one transaction; return `if_aborted` if the database aborts it."""
    yield Begin()
    result = yield from body()
    committed = yield Commit()
    return result if committed else if_aborted


def visit(acquire: Part[bool], used: Status = Status.USING) -> Steps[None]:
    """Acquire, work, release; or give up."""
    held = yield from acquire()
    if held:
        yield Work()
        yield Remove(used)


def for_ever(body: Part[None]) -> Steps[None]:
    """Repeat a part without end."""
    while True:
        yield from body()
