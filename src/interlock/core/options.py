"""What the options of a URL or an engine say, which give each value as text.

A store has one table of its options, and reads all of them at once:

    OPTIONS = {"timeout": seconds_in, "max_connections": number_in, "create": flag_in, "table": text_in}

    @classmethod
    def from_url(cls, url: SplitResult) -> "Store":
        found = options_of(url)
        return cls(timeout=found.get("timeout", TIMEOUT), …)

    @reads_url
    def options_of(url: SplitResult) -> dict[str, Any]:
        return read_options(parse_qsl(url.query, keep_blank_values=True), OPTIONS, "redis://")

(`interlock.core.redaction.reads_url` keeps a part of a password out of the messages.)  What reads an option is any
function of its name and its text that returns the value or raises InvalidArgument; `partial(number_in, least=0)` has
another range.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from interlock.core.claims import checked_seconds, said
from interlock.core.errors import InvalidArgument

MOST = 1_000_000
_DIGITS = re.compile("[0-9]{1,7}")  # `int` takes blanks, underscores and other digits too

Reader: TypeAlias = Callable[[str, str], Any]
"""Returns the value of an option, of its name and its text."""


def path_url(path: str, begin: str = "file://") -> str:
    """Return the URL of an absolute path; escape the special characters "%", "?" and "#".

    Args:
        path: as `os.fsdecode` returns it; it need not be UTF-8.
        begin: "file://" or "sqlite:///".
    """
    return begin + quote(path, errors="surrogateescape")


def read_options(given: Iterable[tuple[str, str]], known: Mapping[str, Reader], what: str) -> dict[str, Any]:
    """Return the values of options by their names.

    Args:
        given: names and texts, as `urllib.parse.parse_qsl(query, keep_blank_values=True)` returns them.
        known: what reads each option that there is.
        what: what the options belong to, for messages: "redis://", or the URL without its password.

    Raises:
        InvalidArgument: one is not known, stands there twice, has no value, or one that makes no sense.
    """
    found: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            raise InvalidArgument(f"{what} has no option {said(name)}; {_meant(name, known)}")
        if name in found or not text:
            raise InvalidArgument(f"{what}: give {name} one value")
        try:
            found[name] = known[name](name, text)
        except InvalidArgument as error:
            raise InvalidArgument(f"{what}: {error}") from None
    return found


def _meant(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # slow to load, and few mistake themselves

    options = sorted(known)
    close = get_close_matches(name, options, 1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}there are {', '.join(options)}" if options else "it has none"


def text_in(name: str, text: str) -> str:
    """Return a text as it is."""
    return text


def seconds_in(name: str, text: str) -> float:
    """Return a number of seconds.

    Args:
        name: of the option.
        text: its value.

    Raises:
        InvalidArgument: it is no number, less than a millisecond, or more than ten years.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidArgument(f"{name} is a number of seconds above 0, not {said(text)}")
    return checked_seconds(seconds, name)


def number_in(name: str, text: str, least: int = 1, most: int = MOST) -> int:
    """Return a whole number.

    Args:
        name: of the option.
        text: its value.
        least, most: what makes sense.

    Raises:
        InvalidArgument: it is none from `least` to `most`.
    """
    if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
        raise InvalidArgument(f"{name} is a whole number from {least} to {most}, not {said(text)}")
    return int(text)


def flag_in(name: str, text: str) -> bool:
    """Return what is true or false.

    Args:
        name: of the option.
        text: its value.

    Raises:
        InvalidArgument: it is neither.
    """
    if text not in ("true", "false"):
        raise InvalidArgument(f"{name} is true or false, not {said(text)}")
    return text == "true"
