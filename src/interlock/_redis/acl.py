"""The rights that a user needs whom the server's access list restricts: tests use exactly these."""

SERVER = (
    "~interlock:* &interlock:* +evalsha +eval +subscribe +publish +time +hmget +hget +hset +hsetnx +hdel +hgetall "
    "+exists +pexpireat +zadd +zrem +zpopmin +zrange +zrank +scan +ping +info +role"
)
"""On a single server, and on those that Sentinel watches."""
DATABASE = "+select"
"""For a database other than 0."""
CLUSTER = "+cluster|slots +command +asking"
"""On each node of a cluster, besides those of a server; `command` is what the library asks for, in threads."""
SENTINEL = "+sentinel|masters +ping +info"
"""On the Sentinels, for the user with whom they are asked."""
