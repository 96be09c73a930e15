"""Handing over a held lock: detach and attach."""

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Generator
from typing import Any

import pytest

from interlock.client.tokens import BEGINS, read
from interlock.core.claims import USING
from interlock.core.errors import InvalidArgument, LockLost, NotHeld, StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.cancellation import MOMENTS, cancelled_at
from interlock.testing.contract.fixtures import needs, of_tasks
from interlock.testing.faults import Lossy, Stepwise
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually, throughout

LONG_TTL = 60.0
ROUNDS = 20


@needs("detach")
def test_a_detached_lock_stays_held_and_goes_on_elsewhere(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    grant = ann.do(world.connect().lock(world.name, label="release 7", ttl=LONG_TTL).acquire)
    token = ann.do(grant.detach)
    assert not grant.held
    assert not grant.lost
    assert ann.do(grant.release) is False
    (view,) = world.holders()
    assert (view.label, view.fence, view.expires_in > LONG_TTL / 2) == ("release 7", grant.fence, True)
    other = world.connect()
    assert bob.do(other.lock(world.name).acquire, blocking=False) is None
    attached = bob.do(other.attach, token)
    assert (attached.fence, attached.name, attached.held) == (grant.fence, world.name, True)
    assert attached.id != grant.id
    assert bob.do(attached.release) is True
    assert world.nothing_left()


@needs("detach")
def test_an_attached_lock_is_renewed(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    token = ann.do(ann.do(world.connect().lock(world.name, ttl=LONG_TTL).acquire).detach)
    attached = bob.do(world.connect().attach, token, ttl=RENEWED)
    throughout(RENEWED + 0.5, lambda: attached.held)
    assert bob.do(attached.release) is True


@needs("detach")
def test_a_detached_lock_is_renewed_by_nobody(world: ContractWorld, locks: Any, ann: Actor) -> None:
    token = ann.do(ann.do(locks.lock(world.name, ttl=0.5).acquire).detach)
    eventually(lambda: not ann.do(locks.claims, world.name))  # by her own client: the clocks of two may differ
    with pytest.raises(LockLost, match="used before"):
        ann.do(locks.attach, token)
    assert ann.do(locks.renew, token) is False
    assert ann.do(locks.release, token) is False


@needs("detach")
def test_a_token_is_used_once(world: ContractWorld, locks: Any) -> None:
    ann, bob, cyd = world.actors(3)
    token = ann.do(ann.do(world.connect().lock(world.name, ttl=LONG_TTL).acquire).detach)
    attached = bob.do(locks.attach, token)
    with pytest.raises(LockLost) as caught:
        cyd.do(locks.attach, token)
    secret = read(token).id
    assert secret not in str(caught.value)
    assert token not in str(caught.value)
    assert cyd.do(locks.release, token) is False
    assert attached.held
    assert bob.do(attached.renew) is True


def moved(token: str, where: str) -> str:
    """Return a token that names another store."""
    told = read(token)._replace(where=where)
    return BEGINS + urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")


@needs("detach")
@pytest.mark.parametrize("act", ["attach", "renew", "release"])
def test_a_token_of_another_store_is_refused_by_name(world: ContractWorld, locks: Any, ann: Actor, act: str) -> None:
    other = "redis://elsewhere.example/7"
    token = moved(ann.do(ann.do(locks.lock(world.name, ttl=LONG_TTL).acquire).detach), other)
    assert ann.do(locks.renew, token) is True  # the URL may be another spelling of the same store
    assert ann.do(locks.release, token) is True
    if "://" in repr(locks):
        with pytest.raises(InvalidArgument, match=re.escape(other)):
            ann.do(getattr(locks, act), token)
    elif act != "attach":
        assert ann.do(getattr(locks, act), token) is False


@needs("detach")
def test_a_token_is_renewed_and_released_by_itself(world: ContractWorld, locks: Any, ann: Actor) -> None:
    token = ann.do(ann.do(locks.lock(world.name, ttl=LONG_TTL).acquire).detach)
    assert ann.do(locks.renew, token, ttl=10 * LONG_TTL) is True
    assert world.holders()[0].expires_in > 9 * LONG_TTL
    waiting = world.in_line(world.actor().start, locks.lock(world.name).acquire)
    assert ann.do(locks.release, token) is True
    assert waiting.result(20).held


@needs("detach")
def test_a_token_keeps_the_kind_and_the_slot(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.semaphore(world.name, 3, ttl=LONG_TTL)
    first, second = (ann.do(lock.acquire) for _ in range(2))
    attached = ann.do(locks.attach, ann.do(second.detach))
    assert (first.slot, attached.slot) == (0, 1)
    assert [view.capacity for view in world.holders()] == [3, 3]


@needs("detach")
def test_a_body_that_detaches_ends_without_a_loss(world: ContractWorld) -> None:
    tokens: list[Any] = []

    def body(grant: Any) -> Generator[Any, Any, None]:
        tokens.append((yield from world.result(grant.detach())))

    world.actor().within(world.connect().lock(world.name, ttl=LONG_TTL), world.function(body))
    assert [view.state for view in world.eye.claims(world.name)] == [USING]
    assert world.eye.release(tokens[0]) is True


@needs("detach")
def test_what_is_not_held_cant_be_detached(world: ContractWorld, ann: Actor) -> None:
    locks = world.connect(ttl=RENEWED)
    grant = ann.do(locks.lock(world.name).acquire)
    world.eye.evict(world.name)
    with pytest.raises(LockLost):
        ann.do(grant.detach)
    assert grant.lost
    grant = ann.do(locks.lock(world.name).acquire)
    ann.do(grant.release)
    with pytest.raises(NotHeld):
        ann.do(grant.detach)


@needs("detach")
def test_a_token_shows_nothing_and_a_wrong_one_is_refused(world: ContractWorld, locks: Any, ann: Actor) -> None:
    token = ann.do(ann.do(locks.lock(world.name).acquire).detach)
    assert read(token).id not in repr(read(token))
    for wrong in ("", "secret-word", "interlock1.secret-word", 7, token[:-9]):
        with pytest.raises(InvalidArgument, match="not a token") as caught:
            ann.do(locks.attach, wrong)
        assert "secret-word" not in str(caught.value)
    with pytest.raises(InvalidArgument, match="namespace"):
        ann.do(world.connect(namespace="other").attach, token)


@needs("detach")
def test_a_closed_connection_takes_no_token(world: ContractWorld, locks: Any, ann: Actor) -> None:
    closed = world.connect()
    token = ann.do(ann.do(locks.lock(world.name, ttl=LONG_TTL).acquire).detach)
    ann.do(closed.claims)
    ann.do(closed.close)
    for call in (closed.attach, closed.renew, closed.release):
        with pytest.raises(StoreError, match="closed"):
            ann.do(call, token)
    assert ann.do(locks.release, token) is True


@needs("detach")
def test_a_lost_reply_to_a_change_of_hands_leaves_nothing(world: ContractWorld, ann: Actor) -> None:
    locks, lossy = world.connect_with(Lossy)
    token = ann.do(ann.do(locks.lock(world.name, ttl=LONG_TTL).acquire).detach)
    lossy.losses["adopt"] = 1
    with pytest.raises(StoreError, match="was lost"):
        ann.do(locks.attach, token)
    assert world.nothing_left()
    grant = ann.do(locks.lock(world.name, ttl=LONG_TTL).acquire)
    lossy.losses["adopt"] = 1
    with pytest.raises(StoreError, match="was lost"):
        ann.do(grant.detach)
    assert world.nothing_left()


@needs("detach")
@of_tasks
def test_detach_and_attach_cancelled_at_any_moment_leave_nothing(world: ContractWorld) -> None:
    locks = world.connect(Stepwise)

    async def story(moment: int) -> None:
        grant = await locks.lock(world.name, ttl=LONG_TTL).acquire()
        token = await cancelled_at(moment, grant.detach())
        await (grant.release() if token is None else locks.release(token))
        token = await (await locks.lock(world.name, ttl=LONG_TTL).acquire()).detach()
        attached = await cancelled_at(moment, locks.attach(token))
        if attached is None:
            await locks.release(token)
        else:
            await attached.release()

    for moment in range(MOMENTS):
        world.run(story(moment))
        assert world.nothing_left(), moment


@needs("detach")
def test_a_renewal_after_detach_is_not_reported_as_a_loss(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lost: list[Any] = []
    grant = ann.do(locks.lock(world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    token = ann.do(grant.detach)
    assert ann.do(grant.renew) is False
    attached = ann.do(locks.attach, token)
    eventually(lambda: attached.expires_in > 0)
    assert lost == []


def _detached(world: ContractWorld, lock: Any) -> Any:
    """Return a function for an actor that acquires, detaches immediately, and returns the token."""

    def steps() -> Generator[Any, Any, Any]:
        grant = yield from world.result(lock.acquire())
        return (yield from world.result(grant.detach()))

    return world.function(steps)


@needs("detach")
def test_a_detach_right_after_a_hand_over_is_no_loss(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    lock = locks.lock(world.name, ttl=LONG_TTL)
    for _ in range(ROUNDS):
        grant = ann.do(lock.acquire)
        waiting = world.in_line(bob.start, _detached(world, lock))
        assert ann.do(grant.release) is True
        token = waiting.result(20)
        assert [view.id for view in world.holders()] == [read(token).id]
        assert ann.do(locks.release, token) is True
        assert world.nothing_left()


@pytest.mark.parametrize("where", ["the same client", "another client"])
@needs("detach")
def test_a_used_token_lets_nobody_in(world: ContractWorld, locks: Any, where: str) -> None:
    ann, bob, cyd = world.actors(3)
    token = ann.do(ann.do(locks.lock(world.name, ttl=LONG_TTL).acquire).detach)
    waiting = world.in_line(bob.start, locks.lock(world.name).acquire)
    attached = cyd.do((locks if where == "the same client" else world.connect()).attach, token)
    assert ann.do(locks.release, token) is False
    throughout(0.2, lambda: not waiting.done())
    assert attached.held
    assert cyd.do(attached.renew) is True
    assert cyd.do(attached.release) is True
    assert waiting.result(20).held


@needs("detach")
def test_a_released_token_lets_in_the_next_in_line(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    # Without this, no waiter remains.
    ann.do(locks.release, ann.do(ann.do(locks.lock(world.fresh_name()).acquire).detach))
    grant = ann.do(locks.lock(world.name, ttl=LONG_TTL).acquire)
    waiting = world.in_line(bob.start, locks.lock(world.name).acquire)
    token = ann.do(grant.detach)
    throughout(0.2, lambda: not waiting.done())
    assert ann.do(grant.release) is False
    assert not waiting.done()
    assert ann.do(locks.release, token) is True
    assert waiting.result(20).held
    assert ann.do(locks.release, token) is False
    assert waiting.result().held
