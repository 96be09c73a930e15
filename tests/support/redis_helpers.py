"""Helpers for tests on real Redis and Valkey servers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from interlock.api.connect import open_store
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import KINDS, THREADS, ContractWorld, LockKind, StoreFixture
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.servers import RedisServer, Wire
from tests.support.client_actors import hand_over

SERVERS = ["valkey", "redis"]
EXCLUSIVE = next(kind for kind in KINDS if kind.name == "exclusive")


def servers_with(**how: Any) -> list[Any]:
    """Return the parameters of the fixture `server`: each kind of server, with these arguments."""
    return [pytest.param((kind, how), id=kind) for kind in SERVERS]


def place_of(where: Any) -> StoreFixture:
    """Return a place for a URL, or for a client of a program, in both colours."""
    url = where if isinstance(where, str) else None
    return StoreFixture(open=lambda: open_store(where), url=url, open_for_tasks=lambda: open_store(where, tasks=True))


def connect_to(world: ContractWorld, where: Any, **how: Any) -> Any:
    """Return a client of another place, in the colour of a world, which closes it.

    Args:
        world: the world.
        where: the URL or the client.
        how: namespace and ttl.
    """
    home, world.place = world.place, place_of(where)
    try:
        return world.connect(**how)
    finally:
        world.place = home


def for_interface(world: ContractWorld, of_threads: Any, of_tasks: Any) -> Any:
    """Return one of two values, by the colour of a world."""
    return of_threads if world.sync_or_async == THREADS else of_tasks


def user(server: RedisServer, *rights: str) -> str:
    """Create the user "app" with these rights only; return the URL to connect as it."""
    server.command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights)
    return url_of(server)


def url_of(server: RedisServer) -> str:
    """Return the URL to connect as the user of `user`."""
    return f"redis://app:secret@{server.host}:{server.port}"


def key_of(name: str, namespace: str = "") -> str:
    """Return the key of a name on the server."""
    quoted = name.replace("%", "%25").replace("}", "%7D")
    return f"interlock:2:{{{namespace}:{quoted}}}"


def one_after_another(actors: Sequence[Actor], waiting: Sequence[Any]) -> list[Any]:
    """Let each actor that gets the lock release it, until all had it, one at a time; return the grants in order."""
    left = dict(zip(waiting, actors, strict=True))
    grants = []
    while left:
        done = eventually(lambda: [future for future in left if future.done()])
        held = [future.result() for future in done]
        assert len(held) == 1, "two hold the lock at once"
        actor = left.pop(done[0])
        grants += held
        assert actor.do(grants[-1].release) is True
    return grants


def is_of_use(world: ContractWorld, locks: Any, kind: LockKind = EXCLUSIVE, name: str = "") -> None:
    """Check that a name can be locked, handed over with a higher fence, and released."""
    ann, bob = world.actors(2)
    name = name or world.name
    grant = ann.do(kind.make(locks, name).acquire, timeout=10)
    waiting = bob.start(kind.rival(locks, name).acquire)
    eventually(lambda: len(ann.do(locks.claims, name)) == 2)
    hand_over(ann, grant, bob, waiting)
    assert ann.do(locks.claims, name) == []


def until_lost(world: ContractWorld, grant: Any) -> Any:
    """In the body of a lock: wait until the grant is lost; a task awaits the result, and is cancelled."""
    return for_interface(world, lambda: eventually(lambda: grant.lost), lambda: asyncio.sleep(WAIT_LIMIT))()


class Line:
    """A lock that an actor holds, and those of the same client that wait for it.

    Args:
        locks: the client.
        name: the name of the lock.
        holder: the actor that acquires it.
        how: the options of the lock.

    Attributes:
        grant: of the holder.
    """

    def __init__(self, locks: Any, name: str, holder: Actor, **how: Any) -> None:
        self._lock = locks.lock(name, **how)
        self._kinds: list[str] = []
        locks.subscribe(lambda event: self._kinds.append(event.kind))
        self.grant = holder.do(self._lock.acquire)

    def waits(self, actor: Actor, lock: Any = None, **how: Any) -> Any:
        """Let an actor wait; return its call when its claim knows that it waits, and behind which claim.

        Args:
            actor: the actor.
            lock: a lock of the same name; None for the holder's.
            how: for `acquire`.
        """
        known = self._kinds.count("queued")
        waiting = actor.start((lock or self._lock).acquire, **how)
        eventually(lambda: self._kinds.count("queued") > known)
        return waiting


def client_ids(wire: Wire, kind: str) -> list[int]:
    """Return the ids of the connections of a kind ("normal" or "pubsub") on a server, without `wire`'s own."""
    mine = wire.ask("CLIENT", "ID")
    lines = wire.ask("CLIENT", "LIST", "TYPE", kind).splitlines()
    ids = [int(line.partition("id=")[2].partition(" ")[0]) for line in lines if line]
    return [each for each in ids if each != mine]
