"""The original scheme of the seed documents, as published, and what is wrong with each of its versions.

A lock made of occupancy records: create a record `pending`; look for another client's `pending`, then for another
client's `using`. If there is a `using`, give up. If there is another `pending`, remove the own record, sleep for a
random time, and try again. Otherwise change the own record from pending to using.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from model_checker.automaton import Automaton
from model_checker.command import Proof
from model_checker.explore import Actor, Successor, Tag, put
from model_checker.verdicts import Verdict, World, verdict

PENDING, USING = "pending", "using"
NAMES = "ABC"
ENTER, CRASH = "enter", "crash"


class Ask(NamedTuple):
    """A request of a client: "create", "remove", "look", "leave" behind, "promote", "sleep" or "work"."""

    verb: str
    status: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the scheme, with what is wrong with it.

    Attributes:
        name: a description.
        expected: the kind of the nearest fault.
        looks: the statuses that each look asks for.
        move: the requests by which the own record becomes `using`.
        give_up: what happens to the own record if another client uses the lock.
        claims: False if nobody sees the claim before the end of the client's transaction.
        crashes: how many clients die.
    """

    name: str
    expected: str
    looks: tuple[tuple[str, ...], ...] = ((PENDING,), (USING,))
    move: tuple[Ask, ...] = (Ask("promote"),)
    give_up: str = "remove"
    claims: bool = True
    crashes: int = 0


CREATE, DELETE = Ask("create", (USING,)), Ask("remove", (PENDING,))
BOTH = ((PENDING, USING),)
VERSIONS = (
    Version("pending, then using", "livelock"),
    Version("pending, then using; a client dies", "stuck", crashes=1),
    Version("both in one query", "livelock", looks=BOTH),
    Version("using, then pending (as on files)", "two holders", looks=((USING,), (PENDING,))),
    Version("giving up leaves the record (as in the code)", "stuck", give_up="leave"),
    Version("in a READ COMMITTED transaction", "two holders", move=(CREATE,), claims=False),
    Version("in a REPEATABLE READ transaction", "two holders", looks=BOTH, move=(CREATE,), claims=False),
    Version("Redis, as written", "stuck", move=(CREATE, DELETE), give_up="leave"),
    Version("Redis, giving up removes the id", "livelock", move=(CREATE, DELETE)),
    Version("files, create in using/, then delete in pending/", "livelock", move=(CREATE, DELETE)),
    Version("files, delete in pending/, then create in using/", "two holders", move=(DELETE, CREATE)),
)


def client(version: Version) -> Generator[Ask, Any, None]:
    """Visit the lock, for ever; a look is answered with the statuses of others' records."""
    while True:
        if version.claims:
            yield Ask("create", (PENDING,))
        seen = frozenset[str]()
        for statuses in version.looks:
            seen |= yield Ask("look", statuses)
        if USING in seen:
            yield Ask(version.give_up, (PENDING,))
        elif PENDING in seen:
            yield DELETE
            yield Ask("sleep")
        else:
            yield from version.move
            yield Ask("work")
            yield Ask("remove", (USING,))


Record = tuple[str, str]
"""The owner and the status; the owner of a record that was left behind has finished its call, and is in small."""
State = tuple[Any, ...]
"""The records, then the local state of each client, None if it is dead."""


class Clients(World):
    """Three clients of one version on a store that performs one request at a time."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.automaton = Automaton(partial(client, version))

    def init(self) -> State:
        """Return the state before the first step."""
        return (frozenset[Record](), *[self.automaton.start] * len(NAMES))

    def successors(self, state: State) -> Iterator[Successor[State]]:
        """Return every step of every client, and every crash."""
        records, *clients = state
        for number, local in enumerate(clients):
            if local is None:
                continue
            ask = self.automaton.requests[local]
            after, words, answer = _performed(records, NAMES[number], ask)
            target = self.automaton.step(local, answer)
            enters = self._works(target)
            words += ", and holds the lock" if enters else ""
            yield number, words, ENTER if enters else None, (after, *put(clients, number, target))
            if clients.count(None) < self.version.crashes:
                yield CRASH, f"{NAMES[number]} crashes", CRASH, (records, *put(clients, number, None))

    def _works(self, local: int | None) -> bool:
        return local is not None and self.automaton.requests[local].verb == "work"

    def violation(self, state: State) -> str | None:
        """Return the clients in the critical section as text, if there are several."""
        holders = [name for name, local in zip(NAMES, state[1:], strict=True) if self._works(local)]
        return f"two holders: {' and '.join(holders)}" if len(holders) > 1 else None

    def good(self, actor: Actor, tag: Tag) -> bool:
        """Return True if a client enters."""
        return tag == ENTER

    def limited(self, actor: Actor, tag: Tag) -> bool:
        """Return True for a crash."""
        return tag == CRASH

    def fair(self, actor: Actor) -> bool:
        """Return True for a client."""
        return actor != CRASH


def _performed(records: frozenset[Record], me: str, ask: Ask) -> tuple[frozenset[Record], str, Any]:
    """Return the records after a request, the request as text, and its answer."""
    mine = {(me, status) for status in ask.status}
    words = " ".join([f"{me} {ask.verb}s", *ask.status])
    match ask.verb:
        case "create":
            return records | mine, words, None
        case "remove":
            return records - mine, words, None
        case "leave":
            return records - mine | {(me.lower(), PENDING)}, f"{words} behind", None
        case "promote":
            return records - {(me, PENDING)} | {(me, USING)}, f"{me} turns pending into using", None
        case "look":
            seen = frozenset(status for owner, status in records if owner != me and status in ask.status)
            return records, f"{words}: sees {' and '.join(sorted(seen)) or 'nothing'}", seen
        case _:
            return records, words, None


def judged(version: Version) -> Verdict:
    """Return the verdict on a version: safety first, in all states, then whether somebody can always enter."""
    return verdict(Clients(version))


PROOF = Proof((), judged, VERSIONS, judged)
