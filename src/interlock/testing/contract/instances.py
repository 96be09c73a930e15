"""Instances: the stable name of a process in its deployment, and what a new process of this name takes over."""

import logging
from typing import Any

import pytest

from interlock.client.events import Event
from interlock.core.claims import MAX_INSTANCE, MAX_LABEL, LockSpec
from interlock.core.errors import InvalidArgument, LockTimeout, StoreError
from interlock.runtime.incarnation import Incarnation, began
from interlock.testing.actors import Actor, results
from interlock.testing.contract.fixtures import needs
from interlock.testing.faults import Counting, Failing, Lossy, Slow
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import eventually

NAME = "worker-7"
LONG_TTL = 60.0
DAY = 86_400_000  # milliseconds
SHORT_PAUSE, PAUSE = 0.3, 1.0  # seconds


def on_another_host(later: int, instance: str = NAME) -> str:
    """Return the thread of a claim that a process of another host has made.

    Args:
        later: the milliseconds by which it started after this process.
        instance: its name.
    """
    return Incarnation(instance, "00000000", 1, 1, began() + later).mark + "a thread"


def left(world: ContractWorld, who: str, name: str | None = None) -> str:
    """Let a process hold a lock and never renew it; return the id of its claim."""
    return world.stale_claim(LockSpec(world.key(name), ttl=LONG_TTL), who=who)


def successor(world: ContractWorld, **how: Any) -> Any:
    """Return the client of a process that takes over."""
    return world.connect(instance=NAME, takeover=True, **how)


@pytest.mark.parametrize("instance", [NAME, "!" * MAX_INSTANCE])
def test_claims_show_the_instance_of_holders_and_waiters(
    world: ContractWorld, ann: Actor, bob: Actor, instance: str
) -> None:
    lock = world.connect(instance=instance).lock(world.name, label="shelf 3")
    grant = ann.do(lock.acquire)
    waiting = world.in_line(bob.start, world.connect().lock(world.name).acquire)
    holder, waiter = world.eye.claims(world.name)
    assert (holder.instance, holder.label, waiter.instance) == (instance, "shelf 3", "")
    assert holder.thread
    assert instance not in holder.thread
    ann.do(grant.release)
    bob.do(waiting.result(20).release)


def test_the_message_of_a_timeout_names_the_instance(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    lock = world.connect(instance=NAME).lock(world.name, timeout=0)
    ann.do(lock.acquire)
    with pytest.raises(LockTimeout, match=NAME):
        bob.within(lock, lambda grant: None)


@pytest.mark.parametrize("instance", ["", "a b", "a\tb", "é", "a" * (MAX_INSTANCE + 1), 7, b"worker-7"])
def test_an_instance_is_a_short_ascii_word(world: ContractWorld, instance: Any) -> None:
    with pytest.raises(InvalidArgument, match="instance must be 1 to 64"):
        world.connect(instance=instance)


def test_takeover_needs_an_instance(world: ContractWorld) -> None:
    with pytest.raises(InvalidArgument, match="takeover=True needs instance="):
        world.connect(takeover=True)
    with pytest.raises(InvalidArgument, match="takeover must be True or False"):
        world.connect(instance=NAME, takeover=1)


# evict


@needs("waiters")
def test_evict_removes_the_claims_of_one_instance(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    names = [world.fresh_name() for _ in range(3)]
    here, elsewhere = world.connect(instance=NAME), world.connect(instance="worker-8")
    grants = [ann.do(here.lock(name).acquire) for name in names]
    other = ann.do(elsewhere.lock(world.name).acquire)
    evict = world.connect().evict
    assert ann.do(evict, names[0], instance="worker-8") == 0  # a store without this refuses it while nobody waits
    waiting = bob.start(here.lock(world.name).acquire)
    world.until_waiting(1)
    assert ann.do(evict, names[0], instance=NAME) == 1
    assert ann.do(evict, names[1], grants[0].id, instance=NAME) == 0
    assert ann.do(evict, instance=NAME) == 3
    assert [view.instance for view in world.holders()] == ["worker-8"]
    assert all(world.nothing_left(name) for name in names)
    assert ann.do(other.release) is True
    bob.do(waiting.result(20).release)  # the evicted waiter has begun again


@needs("waiters")
def test_an_evicted_instance_does_not_hand_over_to_itself(world: ContractWorld) -> None:
    lock, evict = world.connect(instance=NAME).lock(world.name), world.connect().evict
    first, *others = world.actors(3)
    assert first.do(evict, instance="worker-8") == 0  # a store without this refuses it while nobody waits
    grant = first.do(lock.acquire)
    jobs = [actor.start_within(lock, lambda grant: grant.lost) for actor in others]
    world.until_waiting(2)
    assert first.do(evict, instance=NAME) == 3
    assert first.do(grant.release) is False
    assert results(jobs) == [False, False]  # evicted waiters begin again, and hold the lock one after the other


def test_evict_without_name_and_instance_is_refused(world: ContractWorld, locks: Any, ann: Actor) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    with pytest.raises(InvalidArgument, match="needs a name or instance="):
        ann.do(locks.evict)
    with pytest.raises(InvalidArgument, match="instance must be"):
        ann.do(locks.evict, world.name, instance="")
    assert ann.do(grant.release) is True


# takeover


@needs("waiters")
def test_takeover_removes_what_an_earlier_one_left(
    world: ContractWorld, ann: Actor, bob: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    other = world.fresh_name()
    gone = {left(world, on_another_host(-DAY)), left(world, on_another_host(-1), other)}
    locks = successor(world)
    events: list[Event] = []
    locks.subscribe(events.append)
    with caplog.at_level(logging.WARNING, "interlock"):
        grant = ann.do(locks.lock(world.name).acquire, timeout=0)
    assert grant is not None
    assert world.nothing_left(other)
    evicted = [each for each in events if each.kind == "evicted"]
    assert {each.id for each in evicted} == gone
    assert all(NAME in each.reason for each in evicted)
    (message,) = [each.getMessage() for each in caplog.records]
    assert all(each in message for each in (NAME, world.name, other))
    # Once: a second acquire takes nothing over.
    late = left(world, on_another_host(-DAY), other)
    assert bob.do(locks.lock(other).acquire, timeout=0) is None
    assert [view.id for view in world.holders(other)] == [late]
    ann.do(grant.release)


@needs("waiters")
def test_takeover_reads_a_long_instance_beside_a_long_label(world: ContractWorld, ann: Actor) -> None:
    name = "!" * MAX_INSTANCE
    spec = LockSpec(world.key(), ttl=LONG_TTL, label='"' * MAX_LABEL)
    world.stale_claim(spec, who=on_another_host(-DAY, name))
    grant = ann.do(world.connect(instance=name, takeover=True).lock(world.name).acquire, timeout=0)
    ann.do(grant.release)


@needs("waiters")
def test_takeover_removes_waiters_too(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    grant = ann.do(world.connect().lock(world.name).acquire)
    left(world, on_another_host(-DAY))
    lock = successor(world).lock(world.name)
    waiting = bob.start(lock.acquire)
    eventually(lambda: [view.thread == "a thread" for view in world.waiters()] == [False])
    ann.do(grant.release)
    bob.do(waiting.result(20).release)


@pytest.mark.parametrize(
    "who",
    [
        on_another_host(+DAY),
        on_another_host(-DAY, "worker-8"),
        "a thread without an instance",
        f"{NAME}\tcut",
    ],
    ids=["a later one", "another name", "no name", "an unreadable mark"],
)
@needs("waiters")
def test_takeover_leaves_the_claims_of_others(world: ContractWorld, ann: Actor, who: str) -> None:
    id = left(world, who)
    assert ann.do(successor(world).lock(world.name).acquire, timeout=0) is None
    assert [view.id for view in world.holders()] == [id]


@needs("waiters")
def test_takeover_leaves_the_claims_of_its_own_process(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    first, second = successor(world), successor(world)
    grant = ann.do(first.lock(world.name).acquire)
    assert bob.do(second.lock(world.name).acquire, timeout=0) is None
    assert ann.do(grant.release) is True


@needs("waiters")
def test_takeover_is_limited_to_its_namespace(world: ContractWorld, ann: Actor) -> None:
    left(world, on_another_host(-DAY))
    ann.do(ann.do(successor(world, namespace="other").lock(world.name).acquire).release)
    assert len(world.holders()) == 1


@needs("detach", "waiters")
def test_a_detached_claim_belongs_to_no_instance(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    grant = ann.do(world.connect(instance=NAME).lock(world.name, ttl=LONG_TTL).acquire)
    token = ann.do(grant.detach)

    def shown() -> list[str]:
        return [view.instance for view in world.holders()]

    assert shown() == [""]
    locks = world.connect(instance="worker-8")
    assert ann.do(locks.evict, instance=NAME) == 0
    attached = bob.do(locks.attach, token)
    assert shown() == ["worker-8"]
    bob.do(attached.release)


@needs("waiters")
def test_takeover_is_tried_again_after_a_failure(world: ContractWorld, ann: Actor) -> None:
    left(world, on_another_host(-DAY))
    locks, store = world.connect_with(lambda store: Failing(store, "look"), instance=NAME, takeover=True)
    lock = locks.lock(world.name)
    with pytest.raises(StoreError):
        ann.do(lock.acquire, timeout=0)
    assert len(world.holders()) == 1
    store.broken.clear()
    ann.do(ann.do(lock.acquire, timeout=0).release)


@needs("waiters")
def test_takeover_and_evict_list_once(world: ContractWorld, ann: Actor) -> None:
    for who in (on_another_host(-DAY), on_another_host(+DAY)):
        for _ in range(3):
            left(world, who, world.fresh_name())
    locks, counting = world.connect_with(Counting, instance=NAME, takeover=True)
    grant = ann.do(locks.lock(world.name).acquire, timeout=0)
    assert (counting.steps["look"], counting.steps["evict"]) == (1, 3)
    ann.do(grant.release)
    assert ann.do(locks.evict, instance=NAME) == 3
    assert (counting.steps["look"], counting.steps["evict"]) == (2, 6)


class SlowToFail(Slow):
    """Fails late at the first listing."""

    def after(self, step: str, args: Any, answer: Any) -> Any:
        if step == "look" and self.done == 1:
            raise StoreError("by order of the test")
        return answer


@needs("waiters")
def test_simultaneous_first_acquires_take_over_once(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, SHORT_PAUSE, ["look"]), instance=NAME, takeover=True)
    first = ann.start(locks.lock(world.name).acquire, timeout=0)
    eventually(lambda: slow.done == 1)
    second = bob.start(locks.lock(world.fresh_name()).acquire, timeout=0)
    ann.do(first.result(20).release)
    bob.do(second.result(20).release)
    assert slow.done == 1


@needs("waiters")
def test_simultaneous_first_acquires_share_a_failure(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    locks, slow = world.connect_with(lambda store: SlowToFail(store, PAUSE, ["look"]), instance=NAME, takeover=True)
    lock = locks.lock(world.name)
    first = ann.start(lock.acquire, timeout=0)
    eventually(lambda: slow.done == 1)
    second = bob.start(lock.acquire, timeout=0)
    for each in (first, second):
        with pytest.raises(StoreError):
            each.result(20)
    assert slow.done == 1
    ann.do(ann.do(lock.acquire, timeout=0).release)


@needs("waiters")
def test_takeover_survives_a_lost_reply(world: ContractWorld, ann: Actor) -> None:
    id = left(world, on_another_host(-DAY))
    locks, _ = world.connect_with(lambda store: Lossy(store, evict=1), instance=NAME, takeover=True)
    events: list[Event] = []
    locks.subscribe(events.append)
    ann.do(ann.do(locks.lock(world.name).acquire, timeout=0).release)
    assert [each.id for each in events if each.kind == "evicted"] == [id]
