"""The words of `interlock run`: its usual forms are read here, because click takes longer to load than all the rest.

Help, completion, rare options and every error belong to click, and so does every word that is not understood here.
"""

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from interlock.cli import is_given

MAX_SECONDS = 3.2e9  # seconds, 100 years; the system refuses much longer times
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> float:
    """Return a duration such as 30, 0.5, 30s, 10m, 2h or 1d in seconds.

    Raises:
        ValueError: the text is not a duration.
    """
    seconds = float(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else float(text)
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError
    return seconds


def _number(least: int, most: float = math.inf) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise ValueError
        return int(text)

    return number


FLAGS = {
    **dict.fromkeys(("-s", "--shared"), "shared"),
    **dict.fromkeys(("-x", "-e", "--exclusive"), "exclusive"),
    **dict.fromkeys(("-n", "--nb", "--nonblock"), "nonblock"),
    **dict.fromkeys(("-v", "--verbose"), "verbose"),
    "--keep": "keep",
}
VALUES: dict[str, tuple[str, Callable[[str], object]]] = {
    **dict.fromkeys(("-w", "--wait"), ("wait", seconds_of)),
    **dict.fromkeys(("-E", "--conflict-exit-code"), ("conflict", _number(0, 255))),
    **dict.fromkeys(("-c", "--command"), ("shell", str)),
    "--timeout": ("timeout", seconds_of),
    "--ttl": ("ttl", seconds_of),
    "--grace": ("grace", seconds_of),
    "--at-least": ("at_least", seconds_of),
    "--permits": ("permits", _number(1)),
    "--units": ("units", _number(1)),
    "--max-waiters": ("max_waiters", _number(1)),
    "--store": ("store", str),
    "--namespace": ("namespace", str),
    "--label": ("label", str),
}
"""The options that are read here: flags, and those with a value."""
DEFAULTS = {
    **dict.fromkeys(("shared", "exclusive", "nonblock", "verbose", "keep"), False),
    **dict.fromkeys(("permits", "units", "wait", "max_waiters", "timeout", "attach", "one_of", "shell"), None),
    **dict.fromkeys(("ttl", "store", "label"), None),
    "conflict": 1,
    "at_least": 0.0,
    "grace": 5.0,
    "namespace": "",
}


def read(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the parameters of `run`; None if click must read the words.

    Args:
        words: the words after `run`.
    """
    given: dict[str, Any] = {**DEFAULTS}
    left = list(reversed(words))
    try:
        _take_options(left, given)
        given["name"] = left.pop()
        if given["name"] == "--":
            return None
        _take_options(left, given)
    except (IndexError, KeyError, ValueError):
        return None
    if left[-1:] == ["--"]:
        left.pop()
    given["command"] = tuple(reversed(left))
    return None if not can_run() or refused(given) or refused_store(given["store"]) else given


def can_run() -> bool:
    """Return True if commands can be started on this system."""
    return sys.platform == "win32" or hasattr(os, "fork")


def _take_options(left: list[str], given: dict[str, Any]) -> None:
    """Move the options at the end of `left`, which is reversed, into `given`."""
    while left and len(left[-1]) > 1 and left[-1][0] == "-" and left[-1] != "--":
        word = left.pop()
        if word in FLAGS:
            given[FLAGS[word]] = True
        else:
            spelling, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            name, converted = VALUES[spelling]
            value = value if equals else left.pop()
            if value == "--":  # click takes it for the end of the options in some places
                raise ValueError
            given[name] = converted(value)


def refused(given: Mapping[str, Any]) -> str:
    """Return why the parameters of `run` contradict each other; "" if they do not."""
    chosen = (
        ("-s", given["shared"]), ("-x", given["exclusive"]), ("--permits", given["permits"]),
        ("--attach", given["attach"]), ("--one-of", given["one_of"]),
    )  # fmt: skip
    kinds = [spelling for spelling, is_chosen in chosen if is_chosen]
    shell, command, one_of = given["shell"], given["command"], given["one_of"]
    if len(kinds) > 1:
        return f"{' and '.join(kinds)} contradict each other. Give one of them."
    if given["units"] and not given["permits"]:
        return "--units needs a semaphore. Give its size with --permits."
    if given["nonblock"] and given["wait"]:
        return "-n and -w contradict each other. Give one of them."
    if given["max_waiters"] and given["attach"]:
        return "--max-waiters cannot be combined with --attach: a token's lock is already held. Omit one of them."
    if shell is not None and command:
        return f"-c takes COMMAND as one word. Quote COMMAND, and omit {''.join(command[:1])!r}."
    if shell is None and not command:
        return f"COMMAND is missing for the lock {given['name']!r}. Write COMMAND after --, or pass it to -c."
    if one_of is not None and not all(one_of.partition("=")[2].split(",")):
        return f"--one-of {one_of} has no items. Write NAME=ITEM,ITEM."
    return ""


def refused_store(store: str | None) -> str:
    """Return why a store guards nothing, because only one process can use it; "" for others."""
    url = "" if is_given(store) else store or os.environ.get("INTERLOCK_URL") or ""
    if url.partition(":")[0].lower() == "memory":
        return "memory:// exists in one process only and would guard nothing. Use --store file:///folder."
    return ""


def start(given: dict[str, Any]) -> int:
    """Run the command; return its exit status.

    Args:
        given: the parameters of `run`, without contradictions.
    """
    from interlock.cli.run_locked import Order, run_guarded

    del given["exclusive"]
    if given.pop("nonblock"):
        given["wait"] = 0.0
    shell = given.pop("shell")
    if shell is not None:
        from interlock.cli.child_process import system

        given["command"] = system.shell_words(shell)
    return run_guarded(Order(**given))
