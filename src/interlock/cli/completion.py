"""Completion by the shell: lock names, namespaces and claims of the store, and programs to run.

Click brings bash, zsh and fish.  Its function for bash gets the words as bash divides them, so that `book:1` and
`redis://host` are three words each; the one here reads the line itself.
"""

import os
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

from interlock import Locks
from interlock.cli import connect
from interlock.runtime import log

COMPLETION_LIMIT = 1.5  # seconds that a completion waits for a store
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


@add_completion_class
class Bash(BashComplete):
    """Completion for bash, also of words with colons, in place of click's own."""

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


def names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of locks that have claims."""
    return _found(ctx.params, incomplete, lambda locks: {view.name for view in locks.claims()})


def ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the claims of the lock named before."""
    name = ctx.params.get("name")  # a record has no id
    return _found(ctx.params, incomplete, lambda locks: {view.id for view in locks.claims(name)} - {""})


def namespaces(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the namespaces that have claims."""
    return _found(ctx.params, incomplete, lambda locks: set(locks.namespaces()))


def programs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the programs that a command may begin with; after its first word, files."""
    found: set[str] = set()
    if incomplete and not ctx.params.get("command"):
        for folder in os.get_exec_path():
            with suppress(OSError):  # the path may name a missing folder
                found.update(each.name for each in Path(folder).iterdir() if each.name.startswith(incomplete))
    return [*map(CompletionItem, sorted(found)), CompletionItem(incomplete, type="file")]


def _found(given: dict[str, Any], incomplete: str, look: Callable[[Locks], set[str]]) -> list[CompletionItem]:
    """Return what a store says, if it says it soon; nothing, and no word, if it can't."""
    found: set[str] = set()

    def ask() -> None:
        with suppress(Exception), connect(given.get("store"), namespace=given.get("namespace") or "") as locks:
            found.update(look(locks))

    log.sink = lambda line: None
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(COMPLETION_LIMIT)
    return [CompletionItem(each) for each in sorted(found) if each.startswith(incomplete) and each.isprintable()]
