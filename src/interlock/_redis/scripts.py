"""The scripts that the server runs: each one atomic step of the line, and how it is called."""

import hashlib
import re
from importlib.resources import files
from typing import NamedTuple

from interlock._redis.resp import pack


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
    folder = files("interlock._redis") / "scripts"
    text = b"\n".join((folder / f"{part}.lua").read_bytes() for part in parts)
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


ENTER = _script(
    "enter", "head", "clock", "right", "enter_fast", "lease", "enter_next", "idle", "publish", "common", "enter"
)
LEAVE = _script("leave", "head", "leave_fast", "clock", "right", "idle", "publish", "leave_next", "common", "leave")
RENEW = _script("renew", "head", "clock", "right", "idle", "lease", "publish", "common", "renew")
EVICT = _script("evict", "head", "clock", "right", "idle", "publish", "common", "evict")
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
_STANDS = re.compile(rb"\r\ninterlock:wake:\w+\r\n\$1\r\na\r\n")
"""In the call of ENTER by a claim that stands in line already: its channel, and the mode."""


def with_source(command: bytes) -> bytes:
    """Return the call of a script by its sha as one that brings the source, for a server that forgot it."""
    head, _, rest = command.partition(b"$7\r\nEVALSHA\r\n$40\r\n")
    return head + _evaluated(BY_SHA[rest[:40]].text) + rest[40:]


def without_memory(command: bytes) -> bytes | None:
    """Return the call of a script as one that is excepted from the server's limit of memory.

    Args:
        command: the call, by sha or with the source, that the server refused because it has no memory left.

    Returns:
        The call; None if it is none of those that should be excepted.
    """
    for script in (*FREEING, ENTER) if _STANDS.search(command) else FREEING:
        text = b"#!lua flags=allow-oom\n" + script.text
        for known in (b"$7\r\nEVALSHA\r\n$40\r\n" + script.sha, _evaluated(script.text)):
            if known in command:
                return command.replace(known, _evaluated(text), 1)
    return None


def _evaluated(text: bytes) -> bytes:
    return b"$4\r\nEVAL\r\n$%d\r\n%s" % (len(text), text)
