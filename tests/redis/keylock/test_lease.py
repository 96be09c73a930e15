"""The lease starts before the request is sent, is renewed on demand, and its loss is reported."""

from typing import Any

import pytest

from interlock import LockLost, LockTimeout


class Stop(Exception):
    """Raised by a body."""


def test_the_lease_is_counted_from_before_the_request(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy), ttl=30)
    house.do(lock.locked)  # connects
    proxy.delay(0.2)
    assert house.do(lock.acquire)
    assert house.do(lambda: lock.expires_in) <= 30 - 0.2


def test_a_reply_after_the_lease_is_no_grant_and_leaves_nothing(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy), ttl=0.15)
    house.do(lock.locked)  # connects
    proxy.delay(0.2)
    assert house.do(lock.acquire) is False
    assert house.do(lambda: lock.token) is None
    assert not house.eye.exists(house.key)


def test_renew_lets_the_lease_begin_again(house: Any) -> None:
    lock = house.lock(ttl=20)
    assert house.do(lock.acquire)
    house.eye.pexpire(house.key, 1000)
    assert house.do(lock.renew) is True
    assert house.eye.pttl(house.key) > 10_000
    assert 19 < house.do(lambda: lock.expires_in) <= 20


def test_renewing_a_lost_lock_is_false_and_leaves_the_next_alone(house: Any) -> None:
    lock, other = house.lock(ttl=20), house.lock(ttl=5)
    assert house.do(lock.acquire)
    house.eye.delete(house.key)
    assert house.do(lock.renew) is False
    assert not house.eye.exists(house.key)
    assert house.do(other.acquire)
    assert house.do(lock.renew) is False
    assert house.eye.pttl(house.key) <= 5000
    assert house.do(lambda: lock.expires_in) == 0.0
    assert house.do(lock.release) is False
    assert house.do(other.owned)


def test_with_runs_its_body_while_the_key_is_there(house: Any) -> None:
    lock = house.lock()
    assert house.actor.within(lock, lambda inside: inside is lock and house.eye.exists(house.key)) == 1
    assert not house.eye.exists(house.key)


def test_with_does_not_run_its_body_without_the_lock(house: Any) -> None:
    house.eye.set(house.key, "somebody")
    ran: list[int] = []
    with pytest.raises(LockTimeout, match=r"Could not acquire lock .* within 0\.05 s"):
        house.actor.within(house.lock(timeout=0.05), lambda _: ran.append(1))
    with pytest.raises(LockTimeout, match=r"Could not acquire lock .* within 0 s"):
        house.actor.within(house.lock(timeout=0), lambda _: ran.append(1))
    assert not ran


def test_with_says_that_the_lock_was_lost(house: Any) -> None:
    with pytest.raises(LockLost, match="ended before its body"):
        house.actor.within(house.lock(), lambda _: house.eye.delete(house.key))


def test_an_error_of_the_body_goes_first_with_a_note_of_the_loss(house: Any) -> None:
    def body(_: Any) -> None:
        house.eye.delete(house.key)
        raise Stop

    with pytest.raises(Stop) as caught:
        house.actor.within(house.lock(), body)
    assert "ended before its body" in caught.value.__notes__[0]
