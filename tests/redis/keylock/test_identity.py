"""The lock with an identity: document 002 of the original scheme, in one step."""

from typing import Any


def test_release_is_true_if_released_or_free_else_false(env: Any) -> None:
    lock = env.lock("IdentityLock")
    assert env.do(lock.release, "client-1") is True  # free already
    assert env.do(lock.acquire, "client-1", 10) is True
    assert env.eye.get(env.key) == "client-1"
    assert 9 <= env.eye.ttl(env.key) <= 10
    assert env.do(lock.acquire, "client-2", 10) is False
    assert env.do(lock.release, "client-2") is False
    assert env.do(lock.release, "client-1") is True
    assert env.do(lock.release, "client-1") is True
    assert not env.eye.exists(env.key)


def test_the_same_identity_does_not_get_it_twice(env: Any) -> None:
    lock = env.lock("IdentityLock")
    assert env.do(lock.acquire, "me")
    assert env.do(lock.acquire, "me") is False
    assert env.do(lock.owned, "me") is True
    assert env.do(lock.owned, "you") is False
    assert env.do(lock.locked) is True


def test_a_program_that_starts_again_gives_back_what_it_held(env: Any) -> None:
    assert env.do(env.lock("IdentityLock").acquire, "worker-7", None)
    assert env.eye.ttl(env.key) == -1
    assert env.do(env.lock("IdentityLock").release, b"worker-7") is True
    assert not env.eye.exists(env.key)
