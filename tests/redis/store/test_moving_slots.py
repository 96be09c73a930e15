"""A name whose slot moves is asked for again; a claim that did not get into the line leaves nothing here."""

from typing import Any

import pytest

import interlock
from interlock._redis.errors import Moving
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.runtime.sync import run
from tests.servers import RedisServer, need


@pytest.fixture
def store() -> Any:
    """A store that hears promotions."""
    need("valkey")
    with RedisServer("valkey") as server, interlock.connect(server.url) as locks:
        with locks.lock("held"):
            assert locks.lock("held").acquire(timeout=0.05) is None
        yield locks._session.store


@pytest.mark.parametrize("subscribed", [False, True])
def test_a_claim_that_was_told_to_try_again_is_not_waited_for(store: Any, subscribed: bool) -> None:
    claim = Claim("a" * 32, LockSpec(f"{SEPARATOR}name"))
    entering = store.enter(claim, store.thread_wakeup() if subscribed else None, True, False)
    next(entering)
    assert claim.id in store._registry.ids  # what comes before the answer is kept for it
    with pytest.raises(StopIteration) as done:
        entering.throw(Moving("TRYAGAIN Multiple keys request during rehashing of slot"))
    assert done.value.value.state == "busy"
    assert not store._registry
    assert run(store.enter(claim, store.thread_wakeup(), True, False)).state == "using"
    assert run(store.leave(claim)) is True
