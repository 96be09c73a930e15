"""URLs and settings in messages: without what is secret in them."""

import re
from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from urllib.parse import SplitResult

from interlock.core.errors import InvalidArgument

_BEGIN = re.compile(r"\s*[A-Za-z][\w+.-]*:/*")
_SECRET = re.compile(r"(?i)([?&;][^=&;]*(?:pass|pwd|secret|token)[^=&;]*=)[^&]*")

UNQUOTED = "in user and password, write %23 for #, %25 for %, %2F for /, %3F for ?, %40 for @, %5B for ["
UNTOLD = f"why is not told, as that may repeat a part of the password: {UNQUOTED}"
T = TypeVar("T")


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
    return str(error) if masked(url) == url else f"it can't be read; {UNQUOTED}"


def is_torn(url: SplitResult) -> bool:
    """Tell whether a part of a password may stand where the host, the port, the path or an option is read.

    An unquoted character that ends the host does that; what a library says of such a URL may repeat the part.
    """
    return "@" in whole(url._replace(netloc="")) and masked(whole(url)) != whole(url)


def place_of(url: SplitResult) -> str:
    """Return which database a URL means, without its passwords and options."""
    return masked(whole(url)).partition("?")[0].partition("#")[0]


def whole(url: SplitResult) -> str:
    """Return a URL as it was given: `geturl` leaves out slashes where there is no host."""
    query, fragment = url.query and f"?{url.query}", url.fragment and f"#{url.fragment}"
    return f"{url.scheme}://{url.netloc}{url.path}{query}{fragment}"


def reads_url(reader: Callable[[SplitResult], T]) -> Callable[[SplitResult], T]:
    """Let a reader of URLs tell why it refuses one only where that can't repeat a part of a password.

    Raises:
        InvalidArgument: it refuses, or a # ends the URL.
    """

    @wraps(reader)
    def reading(url: SplitResult) -> T:
        try:
            if url.fragment:
                raise InvalidArgument(f"{place_of(url)}: a # in a password is written %23")
            return reader(url)
        except InvalidArgument:
            if not is_torn(url):
                raise
        # Not while the error is handled: its own text may show the password.
        raise InvalidArgument(f"{place_of(url)!r} can't be read; {UNQUOTED}")

    return reading


def described(found: object) -> str:
    """Return what an object is, without what it holds: the repr of a client or of settings may show passwords."""
    if found is None or isinstance(found, (bool, int, float)):
        return repr(found)
    kind = type(found)
    return f"<{kind.__qualname__}>" if kind.__module__ == "builtins" else f"<{kind.__module__}.{kind.__qualname__}>"
