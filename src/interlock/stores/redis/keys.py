"""The key of a name on the server, in a form that people can read."""

from interlock.core.claims import SEPARATOR

PREFIX = "interlock:2:{"  # 2 is the version of the format of a line


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
    """Return the server's key of a line; the part in braces is the hash tag of a cluster."""
    namespace, _, name = key.partition(SEPARATOR)
    return f"{PREFIX}{_quoted(namespace, '}:')}:{_quoted(name, '}')}}}"


def pattern_of(prefix: str) -> str:
    """Return the SCAN pattern of all lines whose keys begin with `prefix`: "", or a namespace and the separator."""
    if not prefix:
        return PREFIX + "*}"
    quoted = _quoted(prefix[:-1], "}:")
    for each in "\\*?[]":
        quoted = quoted.replace(each, "\\" + each)
    return f"{PREFIX}{quoted}:*}}"


def key_of(line: str) -> str:
    """Return the key (namespace and name) of a line."""
    namespace, _, name = line[len(PREFIX) : -1].partition(":")
    return _plain(namespace) + SEPARATOR + _plain(name)
