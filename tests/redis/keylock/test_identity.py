"""The lock with an identity: document 002 of the original scheme, in one step."""

from typing import Any


def test_release_is_true_if_released_or_free_else_false(house: Any) -> None:
    lock = house.lock("IdentityLock")
    assert house.do(lock.release, "client-1") is True  # free already
    assert house.do(lock.acquire, "client-1", 10) is True
    assert house.eye.get(house.key) == "client-1"
    assert 9 <= house.eye.ttl(house.key) <= 10
    assert house.do(lock.acquire, "client-2", 10) is False
    assert house.do(lock.release, "client-2") is False
    assert house.do(lock.release, "client-1") is True
    assert house.do(lock.release, "client-1") is True
    assert not house.eye.exists(house.key)


def test_the_same_identity_does_not_get_it_twice(house: Any) -> None:
    lock = house.lock("IdentityLock")
    assert house.do(lock.acquire, "me")
    assert house.do(lock.acquire, "me") is False
    assert house.do(lock.owned, "me") is True
    assert house.do(lock.owned, "you") is False
    assert house.do(lock.locked) is True


def test_a_program_that_starts_again_gives_back_what_it_held(house: Any) -> None:
    assert house.do(house.lock("IdentityLock").acquire, "worker-7", None)
    assert house.eye.ttl(house.key) == -1
    assert house.do(house.lock("IdentityLock").release, b"worker-7") is True
    assert not house.eye.exists(house.key)
