"""The key of a name on the server, and what a person may read in it."""

from interlock.core.claims import SEPARATOR

PREFIX = "interlock:2:{"  # the number is that of the form of a line


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
    """Return the server's key of a line; what is in braces is the hash tag of a cluster."""
    namespace, _, name = key.partition(SEPARATOR)
    return f"{PREFIX}{_quoted(namespace, '}:')}:{_quoted(name, '}')}}}"


def pattern_of(prefix: str) -> str:
    """Return the pattern that the lines match whose keys begin with a prefix: "" or a namespace and the separator."""
    if not prefix:
        return PREFIX + "*}"
    quoted = _quoted(prefix[:-1], "}:")
    for each in "\\*?[]":
        quoted = quoted.replace(each, "\\" + each)
    return f"{PREFIX}{quoted}:*}}"


def key_of(line: str) -> str:
    """Return the key (namespace and name) that a line belongs to."""
    namespace, _, name = line[len(PREFIX) : -1].partition(":")
    return _plain(namespace) + SEPARATOR + _plain(name)
