# needs: valkey
import os

import interlock
import redis

url = os.environ["INTERLOCK_DOCS_VALKEY"]
client = redis.Redis.from_url(url)
ADDRESSES = {"redis://user:password@host:6379/0": url, "redis://host": url}
