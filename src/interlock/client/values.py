"""The record of a completed run for later callers: its result as JSON, beside the fence of the run."""

import json
from typing import Any

from interlock.core.claims import checked_seconds
from interlock.core.errors import InvalidArgument, NotKept

MOST = 65_536  # characters of JSON
LONGEST_KEEP = 366 * 86400.0  # seconds
UNKEPT = ""
"""Stands for a result that could not be kept."""


def checked_keep(keep: object) -> float:
    """Return for how many seconds a record is kept, else raise InvalidArgument."""
    return checked_seconds(keep, "keep", most=LONGEST_KEEP)


def written(name: str, result: object) -> tuple[str, InvalidArgument | None]:
    """Return a result as text, and what is wrong with it, if it can't be kept.

    Args:
        name: of the run.
        result: anything that JSON can say.
    """
    try:
        text = json.dumps(result)
    except (TypeError, ValueError, RecursionError) as error:
        wrong = f"is no JSON ({error})"
    else:
        if len(text) <= MOST:
            return text, None
        wrong = f"has {len(text)} characters as JSON, {MOST} is the most"
    return UNKEPT, InvalidArgument(
        f"the result of {name!r} {wrong}: the run counts as done, and who comes later gets NotKept; let it return a "
        f"short answer, as where the result is"
    )


def read(name: str, text: str) -> Any:
    """Return the result in a text.

    Raises:
        NotKept: it could not be kept.
    """
    if text == UNKEPT:
        raise NotKept(
            f"{name!r} was done, but its result could not be kept, since it was too large or no JSON; do without it, "
            f"or locks.forget({name!r}) and let it run again"
        )
    return json.loads(text)
