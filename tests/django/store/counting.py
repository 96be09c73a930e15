"""A process of its own on the databases of the tests: started by `python counting.py WORK ROUNDS`."""

import json
import os
import sys
import time

import django


def connect() -> None:
    """Set Django up on the databases that the parent tells in the environment."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    from django.conf import settings

    settings.DATABASES = json.loads(os.environ["INTERLOCK_TEST_DATABASES"])
    settings.INTERLOCK = json.loads(os.environ.get("INTERLOCK_TEST_PLACES", "{}"))
    django.setup()


def add(rounds: int) -> None:
    """Read, add one, write the whole row; in a transaction each time."""
    from django.db import transaction
    from store.shelf.models import Item

    from interlock.django import occupy

    for _ in range(rounds):
        with transaction.atomic(), occupy(Item, pk=1, timeout=60) as item:
            seen = item.count
            time.sleep(0)
            item.count = seen + 1
            item.save()


def hold(rounds: int) -> None:
    """Hold a lock until killed."""
    from interlock.django import locks

    with locks.lock("held", ttl=1):
        print("held", flush=True)
        time.sleep(rounds)


def wait_deaf_to_time(rounds: int) -> None:
    """Wait for a lock without ever looking by oneself, once the process is told by others."""
    from interlock.django.waiters import LineWaiters

    pause = LineWaiters.pause
    LineWaiters.pause = lambda self, claim, longest=0.25: 600.0 if longest > 0.25 else pause(self, claim, longest)  # type: ignore[method-assign]
    wait(rounds)


def wait_for_a_neighbour(rounds: int) -> None:
    """Wait for a lock, and after the first look only look when told so; say so when that is the case."""
    from interlock.django import locks
    from interlock.django.waiters import LineWaiters

    looks = iter([0.01])

    def pause(*_: object, **__: object) -> float:
        seconds = next(looks, None)
        if seconds is None:
            print("hears", flush=True)
        return seconds or 600.0

    LineWaiters.pause = pause  # type: ignore[method-assign]
    lock = locks.rwlock("held").read() if rounds > 1 else locks.lock("held", ttl=3000)
    with lock:
        print("had", flush=True)
        sys.stdin.readline()


def listen_for_neighbours(rounds: int) -> None:
    """Wait for a lock where another has the name to listen at; then where it is free; and close."""
    import socket

    from interlock.django import locks
    from interlock.django.neighbours import CHANNEL, neighbours
    from interlock.testing.waiting import eventually

    def listens() -> bool:
        with open("/proc/net/unix") as sockets:
            return any(line.rstrip().endswith("@" + CHANNEL.format(os.getpid())) for line in sockets)

    def wait_a_little() -> None:
        assert locks.lock("held").acquire(timeout=0.05) is None

    def heard() -> bool:
        wait_a_little()
        return bool(neighbours._heard.channel)

    with locks.lock("held"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as before:
            before.bind("\0" + CHANNEL.format(os.getpid()))
            wait_a_little()
            assert not neighbours._heard.channel
        eventually(heard)
        assert listens()
    locks.close()
    eventually(lambda: not listens())
    print("heard", flush=True)


def wait(rounds: int) -> None:
    """Wait for a lock, as a reader if `rounds` is more than 1; say when its release would be heard of."""
    import threading

    from interlock.django import locks
    from interlock.django.listener import NotificationListener
    from interlock.testing.waiting import eventually

    def tell() -> None:
        eventually(lambda: NotificationListener.of("default").hears, 60)
        print("hears", flush=True)

    threading.Thread(target=tell, daemon=True).start()
    lock = locks.rwlock("held").read() if rounds > 1 else locks.lock("held", ttl=3000)
    with lock:
        print("had", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    connect()
    every = (add, hold, wait, wait_deaf_to_time, wait_for_a_neighbour, listen_for_neighbours)
    works = {each.__name__: each for each in every}
    works[sys.argv[1]](int(sys.argv[2]))
