"""A program that uses the databases of the tests in its own process: `python counting.py WORK ROUNDS`."""

import json
import os
import sys
import time

import django


def connect() -> None:
    """Set Django up with the databases that the environment names."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    from django.conf import settings

    settings.DATABASES = json.loads(os.environ["INTERLOCK_TEST_DATABASES"])
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


if __name__ == "__main__":
    connect()
    {"add": add, "hold": hold}[sys.argv[1]](int(sys.argv[2]))
