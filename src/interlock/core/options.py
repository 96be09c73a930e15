"""What the options of a URL or an engine say, which give each value as text."""

import math
import re

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument

MOST = 1_000_000
_DIGITS = re.compile("[0-9]{1,7}")  # `int` takes blanks, underscores and other digits too


def seconds_in(name: str, text: str) -> float:
    """Return a number of seconds.

    Args:
        name: of the option.
        text: its value.

    Raises:
        InvalidArgument: it is no number above 0.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidArgument(f"{name} is a number of seconds above 0, not {said(text)}")
    return seconds


def number_in(name: str, text: str, least: int = 1) -> int:
    """Return a whole number.

    Args:
        name: of the option.
        text: its value.
        least: the smallest that makes sense.

    Raises:
        InvalidArgument: it is none from there to a million.
    """
    if not _DIGITS.fullmatch(text) or not least <= int(text) <= MOST:
        raise InvalidArgument(f"{name} is a whole number from {least} to {MOST}, not {said(text)}")
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
