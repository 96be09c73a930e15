"""URLs and settings in messages: without what is secret in them."""

import re

_BEGIN = re.compile(r"\s*[A-Za-z][\w+.-]*:/*")
_SECRET = re.compile(r"(?i)([?&;][^=&;]*(?:pass|pwd|secret|token)[^=&;]*=)[^&]*")


def masked(url: str) -> str:
    """Return a URL, perhaps a wrong one, with *** for its passwords: redis://user:***@host.

    Args:
        url: everything before the last @ counts as user and password, since both may be written without quoting.
    """
    url = _SECRET.sub(r"\1***", url)
    found = _BEGIN.match(url)
    begin = found[0] if found else ""
    login, at, rest = url[len(begin) :].rpartition("@")
    if not at or (begin.endswith("///") and (":" not in login or begin.lower().startswith("file:"))):
        return url
    user, colon, _ = login.partition(":")
    return f"{begin}{user + ':' if colon and begin.endswith('/') else ''}***@{rest}"


def why(error: Exception, url: str) -> str:
    """Return what a library says against a URL; where that may repeat a part of a password, only what it may be."""
    if masked(url) == url:
        return str(error)
    return "it can't be read; in user and password, write %23 for #, %2F for /, %3F for ?, %40 for @, %5B for ["


def described(found: object) -> str:
    """Return what an object is, without what it holds: the repr of a client or of settings may show passwords."""
    if found is None or isinstance(found, (bool, int, float)):
        return repr(found)
    kind = type(found)
    return f"<{kind.__qualname__}>" if kind.__module__ == "builtins" else f"<{kind.__module__}.{kind.__qualname__}>"
