"""A waiter whose subscription another thread closes at the moment when it begins to read."""

import socket
from types import SimpleNamespace
from typing import Any

from interlock.runtime.polling import WakePipe
from interlock.stores.redis.subscription import Subscription


def test_a_connection_that_was_just_closed_has_nothing_to_say() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    theirs.close()
    pipe = WakePipe()
    closed: Any = SimpleNamespace(sock=ours)
    try:
        assert Subscription._sleep(pipe, 0.0, closed) is False
    finally:
        pipe.close()
