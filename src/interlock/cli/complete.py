"""Completion by the shell: lock names, namespaces and claims of the store, and the command line of `run`.

Click brings bash, zsh and fish.  Its function for bash gets the words as bash divides them, so that `book:1` and
`redis://host` are three words each; the one here reads the line itself.
"""

import os
import shlex
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

from interlock import Locks
from interlock.cli.options import BY_SPELLING, OPTIONS, Option
from interlock.cli.where import connect
from interlock.runtime import log

LONGEST = 1.5  # seconds that somebody who presses TAB waits for a store
BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    while IFS=',' read -r type value; do
        if [[ $type == file ]]; then
            compopt -o default
        elif [[ $type == plain ]]; then
            COMPREPLY+=("$value")
        fi
    done < <(INTERLOCK_LINE="${COMP_LINE:0:COMP_POINT}" INTERLOCK_BREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completion for bash, also of words with colons in them."""

    source_template = BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the finished words after `interlock`, and the one before the cursor."""
        line = os.environ.get("INTERLOCK_LINE", "")
        words = split_arg_string(line)[1:]
        return (words, "") if not words or line[-1:].isspace() else (words[:-1], words[-1])

    def format_completion(self, item: CompletionItem) -> str:
        """Return what bash puts in the place of what it takes for the word before the cursor."""
        typed = self.get_completion_args()[1]
        value = item.value if item.value.startswith(typed) else typed
        breaks = os.environ.get("INTERLOCK_BREAKS", "")
        start = max((index + 1 for index, char in enumerate(typed) if char in breaks and char in ":="), default=0)
        return f"{item.type},{shlex.quote(value[start:]) if item.type == 'plain' else value}"


def teach_bash() -> None:
    """Let click use the function for bash that is here."""
    add_completion_class(Bash)


def names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of locks that have claims."""
    return _found(ctx.params, incomplete, lambda locks: {view.name for view in locks.claims()})


def ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the claims of the lock that stands before."""
    name = ctx.params.get("name") or ""
    return _found(ctx.params, incomplete, lambda locks: {view.id for view in locks.claims(name)})


def namespaces(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the namespaces that have claims."""
    return _found(ctx.params, incomplete, _namespaces_of)


def of_run(words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Return what may come after `interlock run` and these words."""
    place = _place_after(words)
    if isinstance(place.what, Option):
        return _found(place.given, incomplete, _namespaces_of) if place.what.key == "namespace" else []
    if incomplete.startswith("-") and place.what in ("name", "command"):
        spellings = ((each, option.help) for option in OPTIONS for each in option.spellings)
        found = [CompletionItem(each, help=text) for each, text in spellings if each.startswith(incomplete)]
        return [*found, CompletionItem("--")] if place.what == "command" and incomplete in ("-", "--") else found
    if place.what in ("name", "only name"):
        return _found(place.given, incomplete, lambda locks: {view.name for view in locks.claims()})
    programs = _programs(incomplete) if place.what in ("command", "only command") and incomplete else []
    return [*programs, CompletionItem(incomplete, type="file")]


class _Position(NamedTuple):
    """Where in the command line of `run` one is: what comes next, and the options before it."""

    what: "Option | str"
    given: dict[str, str]


def _place_after(words: Sequence[str]) -> _Position:
    given: dict[str, str] = {}
    rest = list(words)
    what = "name"
    while rest:
        word = rest.pop(0)
        if word == "--" and what in ("name", "command"):
            what = f"only {what}"
        elif word.startswith("-") and len(word) > 1 and what in ("name", "command"):
            option, equals, value = _option_of(word)
            if option is None or not option.value:
                continue
            if not equals and not rest:
                return _Position(option, given)
            given[option.key] = value if equals else rest.pop(0)
        else:
            what = "command" if what in ("name", "only name") else "argument"
    return _Position(what, given)


def _option_of(word: str) -> tuple[Option | None, bool, str]:
    """Return the option of a word, whether its value is a part of it, and that value."""
    if word.startswith("--"):
        spelling, equals, value = word.partition("=")
        return BY_SPELLING.get(spelling), bool(equals), value
    for index, letter in enumerate(word[1:], 2):
        option = BY_SPELLING.get(f"-{letter}")
        if option is not None and option.value:
            return option, index < len(word), word[index:]
    return None, False, ""


def _programs(incomplete: str) -> list[CompletionItem]:
    found: set[str] = set()
    for folder in os.get_exec_path():
        try:
            found.update(each.name for each in Path(folder).iterdir() if each.name.startswith(incomplete))
        except OSError:
            pass  # the path may name what is not there
    return [CompletionItem(each) for each in sorted(found)]


def _namespaces_of(locks: Locks) -> set[str]:
    return set(locks.namespaces())


def _found(given: dict[str, Any], incomplete: str, look: Callable[[Locks], set[str]]) -> list[CompletionItem]:
    """Return what a store says, if it says it soon; nothing, and no word, if it can't."""
    found: set[str] = set()

    def ask() -> None:
        try:
            with connect(given.get("store"), namespace=given.get("namespace") or "") as locks:
                found.update(look(locks))
        except Exception:
            pass

    log.divert(lambda line: None)
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(LONGEST)
    return [CompletionItem(each) for each in sorted(found) if each.startswith(incomplete) and each.isprintable()]
