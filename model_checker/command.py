"""`python -m model_checker NAME`: the proofs, and the tables that the documentation shows."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from model_checker.verdicts import Verdict

NAMES = ("seeds", "pending", "files", "handoff", "share")


@dataclass(frozen=True, slots=True)
class Proof:
    """One proof.

    Attributes:
        worlds: the worlds in which all must be right; each has a `name`, and is `large` if it takes minutes, or
            `rare` if it is for the whole test suite only.
        check: returns the verdict on a world.
        mutants: what must be found wrong; each has a `name`, and its finding begins as `expected`.
        catch: returns the verdict on a mutant.
    """

    worlds: Sequence[Any]
    check: Callable[[Any], Verdict]
    mutants: Sequence[Any]
    catch: Callable[[Any], Verdict]


def proof(name: str) -> Proof:
    """Return a proof by its name."""
    found: Proof = import_module(f"model_checker.{name}").PROOF
    return found


def row_of_world(world: Any, found: Verdict) -> str:
    """Return the line of a world in its table."""
    return f"| {world.name} | {found.states:,} | {found.steps:,} | {found.wrong or found} |"


def row_of_mutant(mutant: Any, found: Verdict) -> str:
    """Return the line of a mutant in its table."""
    return f"| {mutant.name} | {found.wrong or '**nothing**'} | {len(found.trace)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check one proof, and return 1 if a world is wrong, or a mutant is not caught.

    Args:
        arguments: the words after the program's name; None: those of this process.
    """
    parser = ArgumentParser(prog="python -m model_checker", description="The model checker.")
    parser.add_argument("name", choices=NAMES, help="what to check")
    parser.add_argument("--large", action="store_true", help="the large worlds, which take minutes to an hour")
    parser.add_argument("--mutants", action="store_true", help="take away each safeguard and show what happens")
    options = parser.parse_args(arguments)
    one = proof(options.name)
    if options.mutants:
        print("| safeguard removed | what the checker finds | steps |\n|---|---|---:|")
        rows, judge = one.mutants, one.catch
        row_of: Callable[[Any, Verdict], str] = row_of_mutant
    else:
        print("| world | states | steps | verdict |\n|---|---:|---:|---|")
        rows, judge = [each for each in one.worlds if each.large == options.large], one.check
        row_of = row_of_world
    wrong = []
    for row in rows:
        found = judge(row)
        print(row_of(row, found), flush=True)
        if found.wrong is not None:
            wrong.append(found)
    print("", *wrong, sep="\n\n")
    return int(len(wrong) != (len(rows) if options.mutants else 0))
