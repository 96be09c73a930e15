"""The scripts do what the reference does: the same steps on both leave the same line, and promote the same claims."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from interlock._redis.keys import keys_of_line, line_of
from interlock._redis.scripts import LEAVE, call, with_source
from interlock.core.claims import SEPARATOR, WRITER_UNITS, Claim, LockSpec
from interlock.client.connect import open_store
from interlock.runtime.sync import fresh_id, run
from interlock.stores.base import Store
from interlock.stores.memory import MemoryStore, Space
from tests.servers import RedisServer, need
from tests.support.redis_worlds import write_ahead

DEMANDS = [(1, 1), (1, 3), (2, 3), (3, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS), (1, 2)]
STEPS = ["enter", "enter", "enter", "try", "leave", "leave", "again", "renew", "evict", "ahead"]
STEP = some.tuples(some.sampled_from(STEPS), some.integers(0, 30), some.sampled_from(DEMANDS))
LONG = 600.0
READERS, BATCH = 600, 250
AHEAD = 31  # seconds
KEEP = 60_000  # milliseconds; as in head.lua


class Deaf:
    """A wake-up that nobody listens to."""

    def tell(self, message: object = None) -> None:
        """Do nothing."""


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A private server for these tests."""
    need(request.param)
    with RedisServer(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def store(server: RedisServer) -> Iterator[Store]:
    """A store on it."""
    store = open_store(server.url)
    yield store
    store.close()


def line(store: Store, key: str) -> list[tuple[str, str]]:
    """Return who stands in line, and how; holders in any order, waiters in theirs."""
    views = run(store.look(key))
    holders = sorted(view.id for view in views if view.state == "using")
    return [(id, "using") for id in holders] + [(view.id, "pending") for view in views if view.state == "pending"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=some.lists(STEP, max_size=40))
def test_the_same_steps_leave_the_same_line(
    store: Store, server: RedisServer, steps: list[tuple[str, int, tuple[int, int]]]
) -> None:
    reference = MemoryStore(Space())
    key = SEPARATOR + fresh_id()
    claims: list[Claim] = []
    fences: list[int] = []
    for what, number, (units, capacity) in steps:
        if what in ("enter", "try") or not claims:
            claim = Claim(fresh_id(), LockSpec(key, units, capacity, LONG), "a test")
            claims.append(claim)
            wait = what != "try"
            answers = [run(each.enter(claim, Deaf() if wait else None, wait, False)) for each in (store, reference)]
            assert answers[0].state == answers[1].state
            if answers[0].state == "using":
                fences.append(answers[0].fence)
        elif what == "ahead":
            with server.wire() as wire:
                write_ahead(wire, line_of(key), AHEAD)
        else:
            claim = claims[number % len(claims)]
            steps_of = {
                "leave": lambda each, claim=claim: each.leave(claim),
                "renew": lambda each, claim=claim: each.renew([claim]),
                "evict": lambda each, claim=claim: each.evict(key, claim.id),
                "again": lambda each, claim=claim: each.enter(claim, Deaf(), True, True),
            }
            found = [run(steps_of[what](each)) for each in (store, reference)]
            if what == "again":
                assert found[0].state == found[1].state
            else:
                assert found[0] == found[1]
        assert line(store, key) == line(reference, key)
        until, fence = (server.command("PEXPIRETIME", line_of(key)), server.command("HGET", line_of(key), "fence"))
        assert fence is None or until >= int(fence) // 1000 + KEEP  # then the clock is beyond it
    assert fences == sorted(set(fences))
    for claim in claims:
        run(store.leave(claim))
    assert line(store, key) == []


def _readers_behind_a_writer(store: Store, key: str) -> Claim:
    writer = Claim(fresh_id(), LockSpec(key, WRITER_UNITS, WRITER_UNITS, LONG))
    assert run(store.enter(writer, store.thread_wakeup(), True, False)).state == "using"
    for _ in range(READERS):
        reader = Claim(fresh_id(), LockSpec(key, 1, WRITER_UNITS, LONG))
        assert run(store.enter(reader, store.thread_wakeup(), True, False)).state == "pending"
    return writer


def test_a_crowd_is_promoted_in_batches_by_who_leaves(store: Store) -> None:
    key = SEPARATOR + fresh_id()
    writer = _readers_behind_a_writer(store, key)
    assert run(store.leave(writer)) is True
    assert [state for _, state in line(store, key)] == ["using"] * READERS


def test_a_crowd_is_promoted_when_the_one_before_it_is_evicted(store: Store) -> None:
    key = SEPARATOR + fresh_id()
    writer = _readers_behind_a_writer(store, key)
    assert run(store.evict(key, writer.id)) == 1
    assert [state for _, state in line(store, key)] == ["using"] * READERS


def test_what_is_left_of_a_crowd_is_promoted_by_whoever_comes_next(store: Store, server: RedisServer) -> None:
    key = SEPARATOR + fresh_id()
    writer = _readers_behind_a_writer(store, key)
    with server.wire() as wire:  # it leaves, and is killed before it asks again
        wire._socket.sendall(with_source(call(LEAVE, keys_of_line(line_of(key)), "channel", "", writer.id)))
        assert wire.read() == 3
    states = [state for _, state in line(store, key)]
    assert states == ["using"] * BATCH + ["pending"] * (READERS - BATCH)
    late = Claim(fresh_id(), LockSpec(key, WRITER_UNITS, WRITER_UNITS, LONG))
    assert run(store.enter(late, store.thread_wakeup(), True, False)).state == "pending"
    last = next(id for id, state in line(store, key)[::-1] if state == "pending" and id != late.id)
    assert run(store.renew([Claim(last, LockSpec(key, 1, WRITER_UNITS, LONG))])) == [True]
    assert [state for _, state in line(store, key)] == ["using"] * READERS + ["pending"]


@pytest.mark.parametrize("comes", ["a waiter", "a renewal of the holder", "a renewal of a waiter"])
def test_all_keys_of_a_line_live_equally_long(store: Store, server: RedisServer, comes: str) -> None:
    key = SEPARATOR + fresh_id()
    holder, waiter, late = (Claim(fresh_id(), LockSpec(key, 1, 1, LONG)) for _ in range(3))
    for claim in (holder, waiter):
        run(store.enter(claim, store.thread_wakeup(), True, False))
    longer = LockSpec(key, 1, 1, 4 * 3600.0)  # longer than what they are kept for in any case
    if comes == "a waiter":
        run(store.enter(late._replace(spec=longer), store.thread_wakeup(), True, False))
    else:
        claim = holder if comes == "a renewal of the holder" else waiter
        assert run(store.renew([claim._replace(spec=longer)])) == [True]
    left = [server.command("PTTL", each) for each in keys_of_line(line_of(key))]
    assert min(left) > 4 * 3600 * 1000 - 60_000
    assert max(left) - min(left) < 60_000
    run(store.evict(key, None))
