"""The options of a URL or an engine, which give each value as text.

Each store has one table of its options, and reads all of them together:

    OPTIONS = {"timeout": seconds_in, "max_connections": number_in, "create": flag_in, "table": text_in}

    @classmethod
    def from_url(cls, url: SplitResult) -> "Store":
        found = options_of(url)
        return cls(timeout=found.get("timeout", TIMEOUT), …)

    @reads_url
    def options_of(url: SplitResult) -> Options:
        return read_options(parse_qsl(url.query, keep_blank_values=True), OPTIONS, "redis://")

(`interlock.core.redaction.reads_url` keeps a part of a password out of the messages.)  A reader is any function of
an option's name and text that returns the value or raises InvalidArgument.  `partial(number_in, least=0)` changes
the range.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from interlock.core.claims import checked_seconds, shown_value
from interlock.core.errors import InvalidArgument

MAX_NUMBER = 1_000_000
_DIGITS = re.compile("[0-9]{1,7}")  # `int` takes blanks, underscores and other digits too

Options: TypeAlias = dict[str, Any]
"""The keyword arguments of a function of a library."""
Reader: TypeAlias = Callable[[str, str], Any]
"""A function of an option's name and text that returns its value."""


def path_url(path: str, begin: str = "file://") -> str:
    """Return the URL of an absolute path; escape the special characters "%", "?" and "#".

    Args:
        path: as `os.fsdecode` returns it; it need not be UTF-8.
        begin: "file://" or "sqlite:///".
    """
    if path[1:3] == ":\\" or path[1:3] == ":/":  # of Windows
        return f"{begin.rstrip('/')}///{path[:2]}{quote(path[2:].replace(chr(92), '/'))}"
    return begin + quote(path, errors="surrogateescape")


def read_options(given: Iterable[tuple[str, str]], known: Mapping[str, Reader], what: str) -> Options:
    """Return the values of options by name.

    Args:
        given: names and texts, as `urllib.parse.parse_qsl(query, keep_blank_values=True)` returns them.
        known: the reader of each known option.
        what: the owner of the options, for messages: "redis://", or the URL without its password.

    Raises:
        InvalidArgument: an option is unknown, repeated, empty or invalid.
    """
    found: Options = {}
    for name, text in given:
        if name not in known:
            raise InvalidArgument(f"{what} has no option {shown_value(name)}. {_meant(name, known)}")
        if name in found or not text:
            raise InvalidArgument(f"{what}: give {name} exactly one value.")
        try:
            found[name] = known[name](name, text)
        except InvalidArgument as error:
            raise InvalidArgument(f"{what}: {error}") from None
    return found


def _meant(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # slow to load, and needed only for a wrong option

    options = sorted(known)
    close = get_close_matches(name, options, 1)
    meant = f"Did you mean {close[0]}? " if close else ""
    return f"{meant}Options: {', '.join(options)}." if options else "It has no options."


def text_in(name: str, text: str) -> str:
    """Return the text unchanged."""
    return text


def seconds_in(name: str, text: str) -> float:
    """Return a number of seconds.

    Args:
        name, text: the option's name and value.

    Raises:
        InvalidArgument: the text is not a number, less than a millisecond, or more than ten years.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidArgument(f"{name} must be a number of seconds above 0, not {shown_value(text)}.")
    return checked_seconds(seconds, name)


def number_in(name: str, text: str, least: int = 1, most: int = MAX_NUMBER) -> int:
    """Return a whole number.

    Args:
        name, text: the option's name and value.
        least, most: the range.

    Raises:
        InvalidArgument: the text is not a whole number in the range.
    """
    if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
        raise InvalidArgument(f"{name} must be a whole number from {least} to {most}, not {shown_value(text)}.")
    return int(text)


def flag_in(name: str, text: str) -> bool:
    """Return True for "true", False for "false".

    Args:
        name, text: the option's name and value.

    Raises:
        InvalidArgument: the text is neither.
    """
    if text not in ("true", "false"):
        raise InvalidArgument(f"{name} must be true or false, not {shown_value(text)}.")
    return text == "true"
