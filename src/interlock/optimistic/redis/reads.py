"""Which commands only read, and which keys they read: those are done at once, all others are queued.

Commands that read without naming the keys (KEYS, SCAN, SORT_RO with patterns, ...) are not here, because what they
read can't be watched.
"""

from collections.abc import Callable, Sequence

Words = Sequence[bytes]


def _first(words: Words) -> Words:
    return words[1:2]


def _second(words: Words) -> Words:
    return words[2:3]


def _two(words: Words) -> Words:
    return words[1:3]


def _all(words: Words) -> Words:
    return words[1:]


def _counted(words: Words) -> Words:
    return words[2 : 2 + _number(words[1:2])]


def _counted_after_script(words: Words) -> Words:
    return words[3 : 3 + _number(words[2:3])]


def _streams(words: Words) -> Words:
    upper = [word.upper() for word in words]
    if b"STREAMS" not in upper:
        return ()
    rest = words[upper.index(b"STREAMS") + 1 :]
    return rest[: len(rest) // 2]


def _number(words: Words) -> int:
    return int(words[0]) if words and words[0].isdigit() else 0


READS: dict[bytes, Callable[[Words], Words]] = {
    **dict.fromkeys(
        b"""
        BITCOUNT BITFIELD_RO BITPOS DIGEST DUMP EXPIRETIME GEODIST GEOHASH GEOPOS GEORADIUS_RO GEORADIUSBYMEMBER_RO
        GEOSEARCH GET GETBIT GETRANGE HEXISTS HEXPIRETIME HGET HGETALL HKEYS HLEN HMGET HPEXPIRETIME HPTTL HRANDFIELD
        HSCAN HSTRLEN HTTL HVALS LINDEX LLEN LPOS LRANGE PEXPIRETIME PTTL SCARD SISMEMBER SMEMBERS SMISMEMBER
        SRANDMEMBER SSCAN STRLEN SUBSTR TTL TYPE XLEN XPENDING XRANGE XREVRANGE ZCARD ZCOUNT ZLEXCOUNT ZMSCORE
        ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN
        ZSCORE
        """.split(),
        _first,
    ),
    **dict.fromkeys(b"EXISTS MGET PFCOUNT SDIFF SINTER SUNION TOUCH".split(), _all),
    **dict.fromkeys(b"SINTERCARD ZDIFF ZINTER ZINTERCARD ZUNION".split(), _counted),
    **dict.fromkeys(b"EVAL_RO EVALSHA_RO FCALL_RO".split(), _counted_after_script),
    b"LCS": _two,
    b"XREAD": _streams,
}

READS_OF_A_PART: dict[tuple[bytes, bytes], Callable[[Words], Words]] = dict.fromkeys(
    [
        *((b"OBJECT", part) for part in b"ENCODING FREQ IDLETIME REFCOUNT".split()),
        (b"MEMORY", b"USAGE"),
        *((b"XINFO", part) for part in b"CONSUMERS GROUPS STREAM".split()),
    ],
    _second,
)

NOT_IN_A_TRANSACTION = frozenset(
    b"""
    WATCH UNWATCH MULTI EXEC DISCARD SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE SUNSUBSCRIBE MONITOR
    SYNC PSYNC QUIT RESET HELLO AUTH SELECT CLIENT ASKING READONLY READWRITE
    """.split()
)
"""Commands that would change what the connection is."""


def keys_read(words: Words) -> Words | None:
    """Return the keys that a command reads; None if it is no command that only reads named keys."""
    name = words[0].upper()
    keys = READS.get(name)
    if keys is None and len(words) > 1:
        keys = READS_OF_A_PART.get((name, words[1].upper()))
    return (keys(words) or None) if keys is not None else None
