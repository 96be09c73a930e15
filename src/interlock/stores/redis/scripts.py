"""The scripts that the server runs: each is one atomic step of the line, and stands in a file of its own.

`scripts/line.lua` stands before each of them: it reads and writes the line.
"""

import hashlib
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    """A Lua script.

    Attributes:
        text: its source.
        sha: the name by which the server remembers it.
    """

    text: bytes
    sha: bytes


def _script(name: str) -> Script:
    folder = files("interlock.stores.redis") / "scripts"
    text = (folder / "line.lua").read_bytes() + b"\n" + (folder / f"{name}.lua").read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


ENTER, LEAVE, RENEW, ADOPT, EVICT, LOOK = map(_script, ("enter", "leave", "renew", "adopt", "evict", "look"))
BY_SHA = {script.sha: script.text for script in (ENTER, LEAVE, RENEW, ADOPT, EVICT, LOOK)}
_CALL = b"\r\n$7\r\nEVALSHA\r\n$40\r\n"


def with_source(command: bytes) -> bytes:
    """Return calls of scripts by their shas as ones that bring the source, for a server that forgot it."""
    first, *rest = command.split(_CALL)
    parts = [first]
    for each in rest:
        text = BY_SHA[each[:40]]
        parts.append(b"\r\n$4\r\nEVAL\r\n$%d\r\n%s%s" % (len(text), text, each[40:]))
    return b"".join(parts)
