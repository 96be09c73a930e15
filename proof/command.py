"""The common parts of the subcommands of `python -m proof`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand; it prints the tables of the documentation.

    `add_arguments` declares its options; `run` runs it and returns the exit status.
    """

    name: str
    help: str
    add_arguments: Callable[[ArgumentParser], object]
    run: Callable[[Namespace], int]


def mutants_markdown(caught: Sequence[tuple[Any, Any]]) -> str:
    """Return the table of mutants for the documentation, as Markdown.

    Args:
        caught: each mutant with the verdict on it.
    """
    lines = ["| safeguard removed | what the checker finds |", "|---|---|"]
    lines += [f"| {mutant.name} | {found.wrong or '**nothing**'} |" for mutant, found in caught]
    return "\n".join(lines)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options of commands that check a table of worlds and mutants."""
    parser.add_argument("--large", action="store_true", help="the large worlds, which take minutes to an hour")
    parser.add_argument("--mutants", action="store_true", help="take away each safeguard and show what happens")


def checking(
    name: str,
    help: str,
    worlds: Callable[[bool], list[Any]],
    table: Callable[[Sequence[Any]], str],
    mutants: Callable[[], list[tuple[Any, Any]]],
) -> Command:
    """Return a command that checks a table of worlds.

    Args:
        name, help: the name and help text of the command.
        worlds: returns the verdicts, on request those on the large worlds too.
        table: formats the verdicts.
        mutants: returns each mutant with the verdict on it.
    """

    def run(options: Namespace) -> int:
        if options.mutants:
            caught = mutants()
            print(mutants_markdown(caught))
            return int(any(found.wrong is None for _, found in caught))
        found = worlds(options.large)
        wrong = [each for each in found if each.wrong is not None]
        print(table(found), *wrong, sep="\n\n")
        return int(bool(wrong))

    return Command(name, help, add_arguments, run)
