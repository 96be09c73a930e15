"""The results of the proof as tables for the documentation."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence

from proof.command import Command, add_arguments
from proof.pending.configurations import CI, LARGE, Configuration
from proof.pending.mutants import Mutant, judged
from proof.pending.safeguards import MUTANTS
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
    """Return a finding as text, with the path to it."""
    head = finding.message if finding.message.startswith(finding.kind) else f"{finding.kind}: {finding.message}"
    lines = [head, *(f"    {words}" for words in finding.trace)]
    if finding.round:
        lines += ["  and then again and again:", *(f"    {words}" for words in finding.round)]
    return "\n".join(lines)


def proof(rows: Sequence[Configuration]) -> Iterator[tuple[str, bool]]:
    """Check each configuration in turn.

    Yields:
        The rows of a table, each finding with the path to it, and True if the configuration is right.
    """
    yield "| world | states | steps | verdict |\n|---|---:|---:|---|", True
    for row in rows:
        found = verdict(row.options, live=row.live, fair=row.fair, limit=LIMIT)
        cells = (f"{row.group}: {row.name}", f"{found.states:,}", f"{found.steps:,}", answer(row, found))
        yield f"| {' | '.join(cells)} |", found.finding is None
        if found.finding is not None:
            yield shown(found.finding), False


def mutants(rows: Iterable[Mutant]) -> Iterator[tuple[str, bool]]:
    """Check each mutant in turn.

    Yields:
        The rows of a table, and True if the mutant was caught as expected.
    """
    yield "| taken away | what the checker finds | steps | the way there |\n|---|---|---:|---|", True
    for row in rows:
        found = judged(row, LIMIT).finding
        if found is None:
            yield f"| {row.name} | **nothing** | | |", False
            continue
        way = "; ".join(found.trace)
        way += f"; then again and again: {'; '.join(found.round)}" if found.round else ""
        yield f"| {row.name} | {found.kind} | {len(found.trace)} | {way} |", found.kind == row.expected


def _run(options: Namespace) -> int:
    well = True
    for text, good in mutants(MUTANTS) if options.mutants else proof(LARGE if options.large else CI):
        print(text, flush=True)
        well = well and good
    return 0 if well else 1


COMMAND = Command("pending", "Check the pending protocol, and each of its safeguards.", add_arguments, _run)
