"""The proof as a table for a terminal and as Markdown for the documentation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence

from proof.command import Command
from proof.pending.configurations import CI, LARGE, Configuration
from proof.pending.mutants import Mutant, judged
from proof.pending.safeguards import MUTANTS, NOT_NEEDED
from proof.pending.verdicts import Finding, Verdict, verdict

LIMIT = 20_000_000


def answer(configuration: Configuration, found: Verdict) -> str:
    """Return a verdict in a few words."""
    if found.finding is not None:
        return f"WRONG: {found.finding.kind}"
    if not found.complete:
        return "nothing wrong so far, not complete"
    words = ["safe"]
    if found.live:
        words.append("all finish" if configuration.options.attempts is not None else "live")
    if found.fair:
        words.append("nobody starves")
    return ", ".join(words)


def shown(finding: Finding) -> str:
    """Return a finding in words, with the way to it."""
    head = finding.message if finding.message.startswith(finding.kind) else f"{finding.kind}: {finding.message}"
    lines = [head, *(f"    {words}" for words in finding.trace)]
    if finding.round:
        lines += ["  and then again and again:", *(f"    {words}" for words in finding.round)]
    return "\n".join(lines)


def proof(rows: Sequence[Configuration], *, markdown: bool = False) -> Iterator[tuple[str, bool]]:
    """Check each configuration in turn.

    Args:
        rows: which.
        markdown: as rows of a table.

    Yields:
        Text to print, and whether all is well.
    """
    if markdown:
        yield "| world | states | steps | verdict |\n|---|---:|---:|---|", True
    for row in rows:
        found = verdict(row.options, live=row.live, fair=row.fair, limit=LIMIT)
        words = answer(row, found)
        if markdown:
            yield f"| {row.group}: {row.name} | {found.states:,} | {found.steps:,} | {words} |", found.finding is None
        else:
            name = f"{row.group}: {row.name}"
            yield f"{name:76} {found.states:>10,} {found.seconds:6.1f} s  {words}", found.finding is None
        if found.finding is not None:
            yield shown(found.finding), False


def mutants(rows: Iterable[Mutant], *, markdown: bool = False) -> Iterator[tuple[str, bool]]:
    """Check each mutant in turn.

    Args:
        rows: which.
        markdown: as rows of a table.

    Yields:
        Text to print, and whether the mutant did what was expected of it.
    """
    if markdown:
        yield "| taken away | what the checker finds | steps | the way there |\n|---|---|---:|---|", True
    for row in rows:
        found = judged(row, LIMIT).finding
        kind = found.kind if found else "nothing"
        good = kind == (row.expected or "nothing")
        if markdown and found is not None:
            way = "; ".join(found.trace)
            way += f"; then again and again: {'; '.join(found.round)}" if found.round else ""
            yield f"| {row.name} | {kind} | {len(found.trace)} | {way} |", good
        elif found is not None:
            yield f"{'caught' if good else 'UNEXPECTED'}: {row.name}\n  {shown(found)}", good
        else:
            yield f"{'as expected, no harm' if good else 'NOT CAUGHT'}: {row.name}", good


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--large", action="store_true", help="the large worlds, which take up to an hour")
    parser.add_argument("--mutants", action="store_true", help="take away each safeguard and show what happens")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")


def _run(options: Namespace) -> int:
    if options.mutants:
        rows = MUTANTS if options.markdown else (*MUTANTS, *NOT_NEEDED)
        lines = mutants(rows, markdown=options.markdown)
    else:
        lines = proof(LARGE if options.large else CI, markdown=options.markdown)
    well = True
    for text, good in lines:
        print(text, flush=True)
        well = well and good
    return 0 if well else 1


COMMAND = Command("pending", "Check the pending protocol, and each of its safeguards.", _add_arguments, _run)
