"""The keys of a name on the server, and what a person may read in them."""

from interlock.core.claims import SEPARATOR

PREFIX = "interlock:{"
ORDER, WAITERS = ":order", ":waiters"


def _quoted(text: str, special: str) -> str:
    for each in "%" + special:
        if each in text:
            text = text.replace(each, f"%{ord(each):02X}")
    return text


def _plain(text: str) -> str:
    for each in "}:":
        text = text.replace(f"%{ord(each):02X}", each)
    return text.replace("%25", "%")


def line_of(key: str) -> str:
    """Return the server's key of a line; its name, in braces, is the hash tag that keeps all its keys in one slot."""
    namespace, _, name = key.partition(SEPARATOR)
    return f"{PREFIX}{_quoted(namespace, '}:')}:{_quoted(name, '}')}}}"


def keys_of_line(line: str) -> tuple[str, str, str]:
    """Return the three keys of a line."""
    return line, line + ORDER, line + WAITERS


EVERY_LINE = "interlock:{*}"
"""The pattern that all lines match."""


def pattern_of(namespace: str) -> str:
    """Return the pattern that the lines of a namespace match."""
    quoted = _quoted(namespace, "}:")
    for each in "\\*?[]":
        quoted = quoted.replace(each, "\\" + each)
    return f"interlock:{{{quoted}:*}}"


def key_of(line: str) -> str:
    """Return the key (namespace and name) that a line belongs to."""
    namespace, _, name = line[len(PREFIX) : -1].partition(":")
    return _plain(namespace) + SEPARATOR + _plain(name)
