"""The scripts that the server runs: each is one atomic step of the line, and stands in a file of its own.

`scripts/line.lua` stands before each of them: it reads and writes the line.  The short cuts of `enter` and `leave`
stand before that, for themselves: a function that is not needed costs the server as much as one that is.
"""

import hashlib
from pkgutil import get_data  # importlib.resources loads a dozen modules
from typing import NamedTuple, cast


class Script(NamedTuple):
    """A Lua script.

    Attributes:
        text: its source.
        sha: the name by which the server remembers it.
    """

    text: bytes
    sha: bytes


def source_of(name: str) -> bytes:
    """Return the source of a script; a file of this package, which may lie in a zip file."""
    return cast(bytes, get_data(__package__, f"scripts/{name}.lua"))


def _script(*names: str) -> Script:
    text = b"\n".join(map(source_of, names))
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


ENTER = _script("enter_short", "line", "enter")
LEAVE = _script("leave_short", "line", "leave")
RENEW, ADOPT, EVICT, LOOK, KEPT = [_script("line", each) for each in ("renew", "adopt", "evict", "look", "kept")]
BY_SHA = {script.sha: script.text for script in (ENTER, LEAVE, RENEW, ADOPT, EVICT, LOOK, KEPT)}
_CALL = b"\r\n$7\r\nEVALSHA\r\n$40\r\n"


def with_source(command: bytes) -> bytes:
    """Return calls of scripts by their shas as ones that bring the source, for a server that forgot it."""
    first, *rest = command.split(_CALL)
    parts = [first]
    for each in rest:
        text = BY_SHA.get(each[:40])
        if text is None:  # a label that looks so
            parts.append(_CALL + each)
        else:
            parts.append(b"\r\n$4\r\nEVAL\r\n$%d\r\n%s%s" % (len(text), text, each[40:]))
    return b"".join(parts)
