"""Removal of secrets from URLs and settings in messages."""

import re
from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from urllib.parse import SplitResult

from interlock.core.errors import InvalidArgument

# Compiled at their first use, by `re`, because most processes write no message.
_BEGIN = r"\s*[A-Za-z][\w+.-]*:/*"
_WORDS = r"(?:pass|pwd|secret|token|(?:access|account|customer|encryption|sas)_key(?!_id))"
_SECRET = rf"(?i)([?&;][^=&;]*{_WORDS}[^=&;]*=)[^&]*"
_SECRET_NAME = rf"(?i){_WORDS}"

UNQUOTED = "In user and password, write %23 for #, %25 for %, %2F for /, %3F for ?, %40 for @, %5B for [."
CAUSE_HIDDEN = f"The cause is hidden, because it may repeat part of the password. {UNQUOTED}"
T = TypeVar("T")


def is_secret(name: str) -> bool:
    """Return True if the value of an option of this name is secret."""
    return re.search(_SECRET_NAME, name) is not None


def masked(url: str) -> str:
    """Return a URL, valid or not, with *** for its passwords: redis://user:***@host.

    Args:
        url: the URL; the text before its last @ counts as user and password, because both may be unquoted.
    """
    url = re.sub(_SECRET, r"\1***", url)
    found = re.match(_BEGIN, url)
    begin = found[0] if found else ""
    login, at, rest = url[len(begin) :].rpartition("@")
    if not at or (begin.endswith("///") and (":" not in login or begin.lower().startswith("file:"))):
        return url
    user, colon, _ = login.partition(":")
    return f"{begin}{user + ':' if colon and begin.endswith('/') else ''}***@{rest}"


def why(error: Exception, url: str) -> str:
    """Return a library's objection to a URL, or general advice if it may repeat a part of the password."""
    return str(error) if masked(url) == url else f"it cannot be parsed. {UNQUOTED}"


def is_torn(url: SplitResult) -> bool:
    """Return True if part of a password may be read as host, port, path or option.

    An unquoted character ends the host too early; a library's error about such a URL may repeat the password.
    """
    return "@" in whole(url._replace(netloc="")) and masked(whole(url)) != whole(url)


def place_of(url: SplitResult) -> str:
    """Return the database that a URL names, without passwords and options."""
    return masked(whole(url)).partition("?")[0].partition("#")[0]


def whole(url: SplitResult) -> str:
    """Return a URL as it was given; `geturl` drops slashes if there is no host."""
    query, fragment = url.query and f"?{url.query}", url.fragment and f"#{url.fragment}"
    return f"{url.scheme}://{url.netloc}{url.path}{query}{fragment}"


def reads_url(reader: Callable[[SplitResult], T]) -> Callable[[SplitResult], T]:
    """Keep parts of a password out of the errors of a URL reader.

    Raises:
        InvalidArgument: the reader refuses the URL, or a # ends it.
    """

    @wraps(reader)
    def reading(url: SplitResult) -> T:
        try:
            if url.fragment:
                raise InvalidArgument(f"{place_of(url)}: write %23 for a # in a password.")
            return reader(url)
        except InvalidArgument:
            if not is_torn(url):
                raise
        # Raised here, because inside the handler the chained error could show the password.
        raise InvalidArgument(f"{place_of(url)!r} cannot be parsed. {UNQUOTED}")

    return reading


def described(found: object) -> str:
    """Return the type of an object: the repr of a client or of settings may show passwords."""
    if found is None or isinstance(found, (bool, int, float)):
        return repr(found)
    kind = type(found)
    return f"<{kind.__qualname__}>" if kind.__module__ == "builtins" else f"<{kind.__module__}.{kind.__qualname__}>"
