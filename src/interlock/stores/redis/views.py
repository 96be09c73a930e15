"""The line as people see it."""

from typing import Any

from interlock._redis.keys import EVERY_LINE, key_of, keys_of_line, line_of, pattern_of
from interlock._redis.message import Message
from interlock._redis.resp import pack
from interlock._redis.routing import Reading
from interlock._redis.scripts import LOOK, call
from interlock.core.claims import SEPARATOR, ClaimView, namespace_of
from interlock.core.effects import Ask, Op
from interlock.stores.redis.failed import ask_twice

TOTALS = frozenset(
    (b"fence", b"kept", b"sole", b"units", b"capacity", b"ends", b"mixed", b"quick", b"made", b"more", b"mark")
)


def claims_of(pool: Any, key: str) -> Op[list[ClaimView]]:
    """Return what a `Queue` sees when it looks at a key."""
    lines = [line_of(key)]
    if key.endswith(SEPARATOR):
        lines = yield from lines_like(pool, pattern_of(key[:-1]))
    views: list[ClaimView] = []
    for line in lines:
        views += yield from _look_at(pool, line)
    return views


def namespaces_in(pool: Any) -> Op[list[str]]:
    """Return the namespaces in which somebody holds a lock or waits."""
    found: list[str] = []
    for line in (yield from lines_like(pool, EVERY_LINE)):
        namespace = namespace_of(key_of(line))
        if namespace not in found and (yield from _look_at(pool, line)):
            found.append(namespace)
    return found


def _look_at(pool: Any, line: str) -> Op[list[ClaimView]]:
    return views_of(line, (yield from ask_twice(pool, Message(call(LOOK, keys_of_line(line)), line))))


def nodes_of(pool: Any) -> Op[list[str]]:
    """Return what stands for each server that has keys, in the place of a line; a cluster's map is read anew."""
    if pool.nodes is None:
        return [""]
    nodes: list[str] = yield Ask(pool.nodes, Reading())
    return nodes


def lines_like(pool: Any, pattern: str) -> Op[list[str]]:
    """Return the lines that match a pattern, by SCAN: it looks at every key of the database, in small steps."""
    found: set[str] = set()
    for node in (yield from nodes_of(pool)):
        cursor = b"0"
        while True:
            command = pack("SCAN", cursor, "MATCH", pattern, "COUNT", "1000")
            cursor, names = yield Ask(pool, Message(command, node))
            found.update(name.decode() for name in names)
            if cursor in (b"0", 0):
                break
    return sorted(found, key=key_of)


def views_of(line: str, reply: Any) -> list[ClaimView]:
    """Return the live claims of a line, holders first, from the answer to look."""
    now = int(reply[0])
    held, waiting = _pairs(reply[1]), _pairs(reply[3])
    if b"sole" in held:
        id, _, held[id] = held[b"sole"].partition(b" ")
    name = key_of(line).partition(SEPARATOR)[2]
    holders = [(int(_fence(record)), id, record) for id, record in held.items() if id not in TOTALS]
    views = [_view(name, id.decode(), record, now, True) for _, id, record in sorted(holders)]
    views += [_view(name, id.decode(), waiting[id], now, False) for id in reply[2] if id in waiting]
    return [view for view in views if view.expires_in > 0]


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _fence(record: bytes) -> bytes:
    return record.split(b" ", 4)[3]


def _view(name: str, id: str, record: bytes, now: int, holds: bool) -> ClaimView:
    ends, units, capacity, fence, since, _, rest = record.decode(errors="replace").split(" ", 6)
    left = int(ends) - now
    host, pid, who, label = rest.split("\n", 3)
    waiting_since, _, held_since = since.partition(":")
    return ClaimView(
        name=name,
        id=id,
        state="using" if holds else "pending",
        units=int(units),
        capacity=int(capacity),
        fence=int(fence) if holds else None,  # a successor has one already
        host=host,
        pid=int(pid),
        thread=who,
        label=label,
        since=int(waiting_since) / 1000,
        expires_in=min(left, max(1, left - 1)) / 1000,  # the server rounds up
        held_since=int(held_since or waiting_since) / 1000 if holds else None,
    )
