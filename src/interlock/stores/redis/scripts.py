"""The Lua scripts that the server runs: each is one atomic step of the line, in its own file.

Each script is preceded by `scripts/line.lua`, which reads and writes the line.  `enter` and `leave` begin with a
short cut for the common cases that uses no function of `line.lua`: the server pays for each function it defines.
"""

import hashlib
from pkgutil import get_data  # importlib.resources loads a dozen modules
from typing import NamedTuple, cast


class Script(NamedTuple):
    """A Lua script.

    Attributes:
        text: the source.
        sha: the SHA-1 of the source, by which EVALSHA calls it.
    """

    text: bytes
    sha: bytes


def source_of(name: str) -> bytes:
    """Return the source of a script, a file of this package, which may be in a zip file."""
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
    """Replace EVALSHA by EVAL with the source, for a server that does not have the script."""
    first, *rest = command.split(_CALL)
    parts = [first]
    for each in rest:
        text = BY_SHA.get(each[:40])
        if text is None:  # the text of a label that looks like a call
            parts.append(_CALL + each)
        else:
            parts.append(b"\r\n$4\r\nEVAL\r\n$%d\r\n%s%s" % (len(text), text, each[40:]))
    return b"".join(parts)
