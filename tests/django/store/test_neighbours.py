"""Wake-ups between processes of one host, on databases that tell nobody anything: MariaDB and SQLite."""

import signal
import socket
from contextlib import AbstractContextManager
from typing import Any

from store.test_listening import said_by
from store.test_listening import waiters as waiters_by
from store.test_processes import start

from interlock.django import locks
from interlock.django.neighbours import CHANNEL, neighbours
from interlock.runtime.process import HOST


def waiters(*rounds: int) -> AbstractContextManager[list[Any]]:
    """Processes that wait for the lock `held`, one behind the other, and only look when they are told to."""
    return waiters_by(*rounds, work="wait_for_a_neighbour")


def test_a_waiter_in_another_process_is_woken_and_does_not_poll() -> None:
    with locks.lock("held") as grant, waiters(1) as (child,):
        assert grant.release()
        assert said_by(child) == "had"


def test_each_one_in_the_line_is_woken_when_it_is_its_turn() -> None:
    with locks.lock("held") as grant, waiters(1, 1) as children:
        assert grant.release()
        for child in children:
            assert said_by(child) == "had"
            child.stdin.write("\n")
            child.stdin.flush()


def test_readers_behind_a_writer_are_all_woken() -> None:
    with locks.rwlock("held").write() as grant, waiters(2, 2) as children:
        assert grant.release()
        for child in children:
            while (word := said_by(child)) == "hears":
                pass  # it was woken with the other, and looked before that was in
            assert word == "had"


def test_an_eviction_wakes_the_next() -> None:
    grant = locks.lock("held").acquire()
    with waiters(1) as (child,):
        assert locks.evict("held", grant.id) == 1
        assert said_by(child) == "had"
    assert grant.release() is False


def test_a_process_that_reads_nothing_holds_up_nobody() -> None:
    with locks.lock("held") as grant, waiters(1) as (child,):
        waiter = locks.claims("held")[1]
        child.send_signal(signal.SIGSTOP)
        for _ in range(600):  # more than its socket takes
            neighbours.wake("nobody", HOST, child.pid)
        assert grant.release()
        child.send_signal(signal.SIGCONT)
        for _ in range(600):  # the word of the release was lost: others would look by themselves
            neighbours.wake(waiter.id, HOST, child.pid)
        assert said_by(child) == "had"


def test_what_strangers_say_wakes_nobody_but_whom_they_name() -> None:
    with locks.lock("held"), waiters(1) as (child,):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            for words in (b"", b"\xff\xff", b"x" * 30_000, b"a b c\n\n\n"):
                stranger.sendto(words, "\0" + CHANNEL.format(child.pid))
        assert child.poll() is None
        assert len(locks.claims("held")) == 2


def test_who_can_not_listen_tries_again_and_nobody_listens_when_all_is_closed() -> None:
    child = start("listen_for_neighbours", 1)
    try:
        assert said_by(child) == "heard"
    finally:
        child.kill()
        child.communicate()
