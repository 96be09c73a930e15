# needs: valkey
import os

import redis
from django.conf import settings

cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["INTERLOCK_DOCS_VALKEY"]}
settings.configure(CACHES={"default": cache})
from django.core.cache import cache

client = redis.Redis.from_url(os.environ["INTERLOCK_DOCS_VALKEY"])
made = []


def make_report():
    made.append(1)


def check():
    assert len(made) == 3
    assert cache.make_key("report") == ":1:report"
    ours = KeyLock(client, ":1:report")
    with cache.lock("report", timeout=60):
        assert not ours.acquire()
        with locks.lock("report", timeout=0):  # the line has keys of its own
            pass
    with ours:
        assert not cache.lock("report", timeout=60).acquire(blocking=False)
