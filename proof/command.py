"""What the subcommands of `python -m proof` have in common."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand.

    `add_arguments` declares its options; `run` does it and returns the exit status.
    """

    name: str
    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]


class Named(Protocol):
    """A mutant."""

    @property
    def name(self) -> str:
        """Which safeguard it lacks."""


class Judged(Protocol):
    """A verdict."""

    @property
    def wrong(self) -> str | None:
        """What is wrong, None if nothing is."""


def mutants_markdown(caught: Sequence[tuple[Named, Judged]]) -> str:
    """Return the table of mutants as the documentation has it.

    Args:
        caught: each mutant with the verdict on it.
    """
    lines = ["| safeguard removed | what the checker finds |", "|---|---|"]
    lines += [f"| {mutant.name} | {found.wrong or '**nothing**'} |" for mutant, found in caught]
    return "\n".join(lines)
