"""The listener that hears datagrams: it ends whole, whatever happened before."""

import gc
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from interlock.stores.sql import datagrams
from interlock.stores.sql.datagrams import UNTOLD, DatagramListener
from interlock.stores.sql.waiters import Waiters
from interlock.testing.waiting import eventually
from tests.support.moments import folder_of, in_time, interrupted


class Wakeup:
    """Counts what it is told."""

    told = 0

    def tell(self, message: Any = None) -> None:
        """As of a waiter."""
        self.told += 1


@pytest.fixture
def channel() -> str:
    """A name that nobody else has."""
    return f"interlock_{uuid4().hex}"


@pytest.fixture
def listener(channel: str) -> Iterator[DatagramListener]:
    """A listener that hears."""
    waiters = Waiters()
    waiters.add("one", Wakeup())
    listener = DatagramListener()
    listener.start(channel, waiters)
    listener.ask(None)
    yield listener
    listener.close()
    eventually(lambda: not threads())


def threads() -> list[threading.Thread]:
    """The threads that listen."""
    return [thread for thread in threading.enumerate() if thread.name == "interlock-listens"]


def hears(listener: DatagramListener, channel: str) -> bool:
    """Tell whether a datagram comes in."""
    (waiter,) = listener._waiters._waiters.values()
    before = waiter.told
    listener.tell({channel: ["one 1"]}, 1.0)
    return bool(eventually(lambda: waiter.told > before))


def test_who_was_doubted_and_heard_something_listens_on(listener: DatagramListener, channel: str) -> None:
    for _ in range(UNTOLD):
        listener.suspect()
    assert not listener.live
    assert hears(listener, channel)
    listener.ask(None)
    assert listener.live
    assert len(threads()) == 1
    assert hears(listener, channel)


@pytest.mark.parametrize("handler", ["ask", "close"])
def test_a_handler_in_the_middle_of_the_opening_hangs_nowhere_and_leaves_no_second_thread(
    handler: str,
) -> None:
    def run(at: int) -> bool:
        channel = f"interlock_{uuid4().hex}"
        waiters, listener = Waiters(), DatagramListener()
        waiters.add("one", Wakeup())
        listener.start(channel, waiters)
        second = (lambda: listener.ask(None)) if handler == "ask" else listener.close
        _, struck = interrupted(lambda: listener.ask(None), at, second, folder_of(datagrams))
        if handler == "ask":
            assert listener.live
            assert len(threads()) == 1
            assert hears(listener, channel)
        listener.close()
        assert not listener.live
        eventually(lambda: not threads())
        return struck

    at = 0
    while in_time(lambda at=at: run(at)):  # type: ignore[misc]
        at += 1
    assert at >= 5


def test_an_interrupt_while_it_begins_leaves_no_socket_and_it_may_begin_again(channel: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def begin(at: int) -> bool:
        waiters = Waiters()
        waiters.add("one", Wakeup())
        listener = DatagramListener()
        listener.start(f"{channel}{at}", waiters)
        struck = True
        try:
            _, struck = interrupted(lambda: listener.ask(None), at, interrupt, folder_of(datagrams))
        except KeyboardInterrupt:
            pass
        eventually(lambda: listener.ask(None) or listener.live)
        assert hears(listener, f"{channel}{at}")
        listener.close()
        eventually(lambda: not threads())
        return struck

    at = 0
    while in_time(lambda at=at: begin(at)):  # type: ignore[misc]
        at += 1
        gc.collect()  # which warns of a socket that nobody closed
    assert at > 5
