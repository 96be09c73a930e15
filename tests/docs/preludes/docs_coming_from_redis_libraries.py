# needs: valkey
import os
from typing import TYPE_CHECKING

import redis
from django.conf import settings

if TYPE_CHECKING:  # names that the page or the test runner defines
    from typing import Any

    from interlock import Locks
    from interlock.redis import KeyLock

    locks: Locks

caches = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["INTERLOCK_DOCS_VALKEY"]}
settings.configure(CACHES={"default": caches})
from django.core.cache import cache

client = redis.Redis.from_url(os.environ["INTERLOCK_DOCS_VALKEY"])
made: list[int] = []


def make_report() -> None:
    made.append(1)


def check() -> None:
    assert len(made) == 3
    assert cache.make_key("report") == ":1:report"
    ours = KeyLock(client, ":1:report")
    theirs: Any = cache  # of django-redis, which adds `lock`
    with theirs.lock("report", timeout=60):
        assert not ours.acquire()
        with locks.lock("report", timeout=0):  # the line has keys of its own
            pass
    with ours:
        assert not theirs.lock("report", timeout=60).acquire(blocking=False)
