"""The scripts that the server runs: each one atomic step of the line, and how it is called."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

from interlock.stores.redis.resp import pack


class Script(NamedTuple):
    """A Lua script.

    Attributes:
        name: what it does.
        text: its source.
        sha: the name by which the server remembers it.
    """

    name: str
    text: bytes
    sha: bytes


def _script(name: str, *parts: str) -> Script:
    folder = files("interlock.stores.redis") / "scripts"
    text = b"\n".join((folder / f"{part}.lua").read_bytes() for part in parts)
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


ENTER = _script("enter", "head", "clock", "enter_fast", "common", "enter")
LEAVE = _script("leave", "head", "leave_fast", "clock", "common", "leave")
RENEW = _script("renew", "head", "clock", "common", "renew")
EVICT = _script("evict", "head", "clock", "common", "evict")
LOOK = _script("look", "head", "clock", "look")
BY_SHA = {script.sha: script for script in (ENTER, LEAVE, RENEW, EVICT, LOOK)}


def call(script: Script, keys: tuple[str, ...], *arguments: bytes | str) -> bytes:
    """Return the command that runs `script` by its sha."""
    return pack(b"EVALSHA", script.sha, str(len(keys)), *keys, *arguments)


def prefix(script: Script, keys: tuple[str, ...], arguments: tuple[bytes | str, ...], more: int) -> bytes:
    """Return the beginning of a call, to which `more` arguments are added before it is sent."""
    words = (b"EVALSHA", script.sha, str(len(keys)), *keys, *arguments)
    _, _, rest = pack(*words).partition(b"\r\n")
    return b"*%d\r\n" % (len(words) + more) + rest


FREEING = (LEAVE, RENEW, EVICT)
"""What must be possible when the server has no memory left; it frees some, or takes next to none."""


def with_source(command: bytes, full: bool = False) -> bytes:
    """Return the call of a script by its sha as one that brings the source, for a server that forgot it.

    Args:
        command: the call.
        full: the server has refused it because it has no memory; return it as a call that is excepted from that,
            or nothing if it should not be.
    """
    head, _, rest = command.partition(b"$7\r\nEVALSHA\r\n$40\r\n")
    script = BY_SHA.get(rest[:40])
    if script is None or (full and script not in FREEING):
        return b""
    text = b"#!lua flags=allow-oom\n" + script.text if full else script.text
    return head + b"$4\r\nEVAL\r\n$%d\r\n%s" % (len(text), text) + rest[40:]
