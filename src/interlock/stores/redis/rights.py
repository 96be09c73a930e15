"""doctor: may this user do all that locks need?  Each right is used, and a message goes round."""

from importlib.resources import files
from time import time
from typing import Any

from interlock._redis.errors import code_of
from interlock._redis.keys import keys_of_line, line_of
from interlock._redis.message import Message
from interlock._redis.resp import ReplyError, pack
from interlock._redis.scripts import LOOK, call
from interlock.core.claims import SEPARATOR, Check
from interlock.core.effects import FRESH_ID, NOW, Ask, Op, Subscribe, Wait
from interlock.core.errors import LockError
from interlock.stores.redis.views import nodes_of

NAMES = 4  # tried for each node of a cluster, so that hardly any is left out
IO_TIMEOUT = 6.0  # seconds for a message
TRIES = 3
SPARED = {
    "publish": "waiters of other processes are not told, and hear by their own look, up to 5 s late",
    "scan": "claims() can't list all names",
    "info": "nothing is known about the server, and that another one took its place may be noticed late",
    "role": "the server's role can't be asked for",
    "ping": "claims() can't list all names",
}
"""The rights without which locks still work, and what is missing then."""


def examine_rights(queue: Any) -> Op[list[Check]]:
    """Use each right that locks need, and let a message go round.

    Args:
        queue: the store.
    """
    pool = queue._pool
    missing: dict[str, None] = {}
    message = yield from _message(queue, missing)
    try:
        nodes = yield from nodes_of(pool)
        for node in nodes:
            yield from _try_directly(pool, node, missing)
        for _ in range(NAMES * len(nodes) if nodes != [""] else 1):
            yield from _try_scripts(pool, (yield FRESH_ID), queue._channel, missing)
    except LockError as error:
        return [Check("rights", "fail", str(error)), message]
    return [_rights(list(missing)), message]


def _rights(missing: list[str]) -> Check:
    if not missing:
        return Check("rights", "ok", "this user may do all that locks need")
    allow = " ".join(each if each[0] in "~&" else f"+{each}" for each in missing)
    spared = [SPARED[each] for each in missing if each in SPARED]
    return Check(
        "rights", "warn" if len(spared) == len(missing) else "fail",
        "; ".join([f"the access list forbids {', '.join(missing)}", *spared, f"allow this user: {allow}"]),
    )  # fmt: skip


def _try_directly(pool: Any, node: str, missing: dict[str, None]) -> Op[None]:
    commands = {"ping": ("PING",), "info": ("INFO", "server"), "role": ("ROLE",), "scan": ("SCAN", "0", "COUNT", "1")}
    if node:
        commands["asking"] = ("ASKING",)
    for name, words in commands.items():
        try:
            yield Ask(pool, Message(pack(*words), node))
        except LockError as error:
            _mark(error, name, missing)


def _try_scripts(pool: Any, id: str, channel: str, missing: dict[str, None]) -> Op[None]:
    line = line_of(f"{SEPARATOR}interlock doctor {id}")
    keys = keys_of_line(line)
    text = (files("interlock._redis") / "scripts" / "rights.lua").read_bytes()
    soon = str(int(time() * 1000) + 60_000)
    refused: list[bytes] = []
    try:
        refused = yield Ask(pool, Message(pack("EVAL", text, str(len(keys)), *keys, soon, channel), line))
    except LockError as error:
        _mark(error, "~interlock:*" if "key" in str(error.__cause__) else "eval", missing)
    try:
        yield Ask(pool, Message(call(LOOK, keys), line))
    except LockError as error:
        if "evalsha" in str(error.__cause__):  # else it is what was found already
            missing["evalsha"] = None
    for name, why in zip(refused[::2], refused[1::2], strict=True):
        if code_of(ReplyError(why.decode(errors="replace"))) == "NOPERM":
            missing["&interlock:*" if b"channel" in why else name.decode()] = None


def _message(queue: Any, missing: dict[str, None]) -> Op[Check]:
    """Subscribe, publish and receive, as a waiter that is promoted is told."""
    id = yield FRESH_ID
    began = yield NOW
    step = "subscribe"
    try:
        yield Ask(queue._subscription, None)
        waiter = yield Subscribe(queue)
        queue._registry.register(id, waiter)
        step = "publish"
        message = None
        for _ in range(TRIES):  # one message may be lost, as when a node has just joined its cluster
            yield Ask(queue._pool, Message(pack("PUBLISH", queue._channel, f"{id} 1"), ""))
            message = yield Wait(waiter, IO_TIMEOUT / TRIES)
            if message is not None:
                break
    except LockError as error:
        if not _is_forbidden(error):
            return Check("messages", "fail", str(error))
        missing["&interlock:*" if "channel" in str(error.__cause__).lower() else step] = None
        return Check(
            "messages",
            "warn" if step == "publish" else "fail",
            f"the access list forbids to {step}: {error.__cause__}",
        )
    finally:
        queue._registry.withdraw(id)
    took = ((yield NOW) - began) * 1000
    if message is None:
        return Check(
            "messages", "fail",
            f"what was published did not arrive within {IO_TIMEOUT:g} s: waiters hear only by their own look",
        )  # fmt: skip
    return Check("messages", "ok", f"subscribed, published and received within {took:.1f} ms")


def _mark(error: LockError, name: str, missing: dict[str, None]) -> None:
    if not _is_forbidden(error):
        raise error
    missing[name] = None


def _is_forbidden(error: LockError) -> bool:
    return isinstance(error.__cause__, ReplyError) and code_of(error.__cause__) == "NOPERM"
