"""The lease starts before the request is sent, is renewed on demand, and its loss is reported."""

from typing import Any

import pytest

from interlock import LockLost, LockTimeout


class Stop(Exception):
    """Raised by a body."""


def test_the_lease_is_counted_from_before_the_request(env: Any) -> None:
    proxy = env.proxy()
    lock = env.lock(client=env.client_through(proxy), ttl=30)
    env.do(lock.locked)  # connects
    proxy.delay(0.2)
    assert env.do(lock.acquire)
    assert env.do(lambda: lock.expires_in) <= 30 - 0.2


def test_a_reply_after_the_lease_is_no_grant_and_leaves_nothing(env: Any) -> None:
    proxy = env.proxy()
    lock = env.lock(client=env.client_through(proxy), ttl=0.15)
    env.do(lock.locked)  # connects
    proxy.delay(0.2)
    assert env.do(lock.acquire) is False
    assert env.do(lambda: lock.token) is None
    assert not env.eye.exists(env.key)


def test_renew_lets_the_lease_begin_again(env: Any) -> None:
    lock = env.lock(ttl=20)
    assert env.do(lock.acquire)
    env.eye.pexpire(env.key, 1000)
    assert env.do(lock.renew) is True
    assert env.eye.pttl(env.key) > 10_000
    assert 19 < env.do(lambda: lock.expires_in) <= 20


def test_renewing_a_lost_lock_is_false_and_leaves_the_next_alone(env: Any) -> None:
    lock, other = env.lock(ttl=20), env.lock(ttl=5)
    assert env.do(lock.acquire)
    env.eye.delete(env.key)
    assert env.do(lock.renew) is False
    assert not env.eye.exists(env.key)
    assert env.do(other.acquire)
    assert env.do(lock.renew) is False
    assert env.eye.pttl(env.key) <= 5000
    assert env.do(lambda: lock.expires_in) == 0.0
    assert env.do(lock.release) is False
    assert env.do(other.owned)


def test_with_runs_its_body_while_the_key_is_there(env: Any) -> None:
    lock = env.lock()
    assert env.actor.within(lock, lambda inside: inside is lock and env.eye.exists(env.key)) == 1
    assert not env.eye.exists(env.key)


def test_with_does_not_run_its_body_without_the_lock(env: Any) -> None:
    env.eye.set(env.key, "somebody")
    ran: list[int] = []
    with pytest.raises(LockTimeout, match=r"Could not acquire lock .* within 0\.05 s"):
        env.actor.within(env.lock(timeout=0.05), lambda _: ran.append(1))
    with pytest.raises(LockTimeout, match=r"Could not acquire lock .* within 0 s"):
        env.actor.within(env.lock(timeout=0), lambda _: ran.append(1))
    assert not ran


def test_with_says_that_the_lock_was_lost(env: Any) -> None:
    with pytest.raises(LockLost, match="ended before its body"):
        env.actor.within(env.lock(), lambda _: env.eye.delete(env.key))


def test_an_error_of_the_body_goes_first_with_a_note_of_the_loss(env: Any) -> None:
    def body(_: Any) -> None:
        env.eye.delete(env.key)
        raise Stop

    with pytest.raises(Stop) as caught:
        env.actor.within(env.lock(), body)
    assert "ended before its body" in caught.value.__notes__[0]
