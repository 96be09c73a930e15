"""The table of commands that read at once, and the keys that they watch, compared with real servers' COMMAND."""

from contextlib import suppress
from typing import Any

import pytest

from interlock.optimistic.redis import NOT_IN_A_TRANSACTION, READS, keys_read
from tests.servers import RedisServer, Refused

NO_KEYS_TO_WATCH = {"clusterscan", "dbsize", "keys", "lolwut", "randomkey", "scan"}
QUEUED = {"eval_ro", "evalsha_ro", "fcall_ro", "lcs", "xread"}
KEYS_IN_PATTERNS = {"sort_ro"}  # the keys of BY and GET are not known before the read
NEWER_THAN_THE_SERVERS = {"digest"}


def commands(server: RedisServer) -> dict[str, Any]:
    """The server's description of each command: name, arity, flags, positions of keys, ..., subcommands."""
    return {entry[0].lower(): entry for entry in server.command("COMMAND")}


def reads_of(server: RedisServer) -> set[str]:
    """The commands, and parts of commands ("object|freq"), that only read."""
    found = set()
    for entry in commands(server).values():
        for each in [entry, *(entry[9] if len(entry) > 9 else [])]:
            if "readonly" in each[2]:
                found.add(each[0].lower())
    return found


def table() -> set[str]:
    """The same, from our table."""
    return {name.decode().lower() for name in READS}


def test_whatever_we_do_at_once_only_reads(server: RedisServer) -> None:
    unknown = table() - reads_of(server)
    assert unknown & set(commands(server)) == set()
    assert unknown <= NEWER_THAN_THE_SERVERS | {"hexpiretime", "hpexpiretime", "hpttl", "httl"}


def test_whatever_reads_named_keys_is_done_at_once(server: RedisServer) -> None:
    queued = {name for name in reads_of(server) - table() if "|" not in name}  # the parts of commands are queued too
    assert queued == NO_KEYS_TO_WATCH & set(commands(server)) | KEYS_IN_PATTERNS | QUEUED


EXAMPLES = """
GET a
MGET a b c
EXISTS a b
SINTERCARD 2 a b LIMIT 5
ZDIFF 2 a b WITHSCORES
ZINTER 3 a b c WEIGHTS 1 2 3
ZUNION 1 a
ZINTERCARD 2 a b
GEOSEARCH a FROMMEMBER x BYRADIUS 1 km
ZRANGE a 0 -1
BITCOUNT a
PFCOUNT a b
TOUCH a b
XPENDING a group
hgetall a
""".strip().splitlines()


def seen_by(server: RedisServer, example: str) -> list[str]:
    """The keys of a command, according to the server."""
    with suppress(Refused):  # raised for a command without a key
        return list(server.command("COMMAND", "GETKEYS", *example.split()))
    return []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_keys_are_those_that_the_server_sees(server: RedisServer, example: str) -> None:
    words = example.encode().split()
    assert [key.decode() for key in keys_read(words) or ()] == seen_by(server, example)


@pytest.mark.parametrize(
    "words", ["SET a 1", "GETDEL a", "GETEX a", "SPOP a", "KEYS *", "SCAN 0", "OBJECT HELP", "XINFO HELP", "SORT a",
              "EVAL s 1 a", "GET", "MEMORY", "OBJECT", "XREAD STREAMS a 0", "ZDIFF x a", "JSON.GET a"]
)  # fmt: skip
def test_everything_else_is_queued(words: str) -> None:
    assert keys_read(words.encode().split()) is None


def test_what_changes_the_connection_is_in_no_transaction(server: RedisServer) -> None:
    named = {name.decode().lower() for name in NOT_IN_A_TRANSACTION}
    assert named <= set(commands(server))
    kept_out = {name for name, entry in commands(server).items() if {"pubsub", "no_multi"} & set(entry[2])}
    spoken_without_a_subscription = {"publish", "spublish", "pubsub"}
    refused_by_the_server_itself = {"failover", "replconf", "save", "shutdown"}
    assert kept_out - spoken_without_a_subscription - named <= refused_by_the_server_itself
