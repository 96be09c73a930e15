"""The verdicts on the file store's folded line, for a terminal and as Markdown for the documentation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence

from proof.command import Command, mutants_markdown
from proof.files.configurations import CONFIGURATIONS, Configuration
from proof.files.mutants import MUTANTS, Mutant
from proof.files.verdicts import Verdict, verdict


def wakers(configuration: Configuration) -> str:
    """Return what wakes the waiters of a configuration, in words."""
    if configuration.deaf:
        return "only their own looks"
    if configuration.looks:
        return "wake-ups, deaths, own looks"
    return "wake-ups, deaths, ends of leases" if configuration.heartbeats else "wake-ups and deaths only"


def markdown(found: Sequence[Verdict]) -> str:
    """Return the table of configurations as the store's page has it.

    Args:
        found: a verdict for each.
    """
    lines = ["| configuration | waiters are woken by | states | steps | result |", "|---|---|---|---|---|"]
    for each in found:
        result = "safe, live" if each.wrong is None else f"**{each.wrong}**"
        cells = [each.configuration.name, wakers(each.configuration), f"{each.states:,}", f"{each.steps:,}", result]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def examine(configurations: Sequence[Configuration]) -> Iterator[Verdict]:
    """Yield the verdict on each configuration."""
    for configuration in configurations:
        yield verdict(configuration)


def hunt(mutants: Sequence[Mutant] = MUTANTS) -> Iterator[tuple[Mutant, Verdict]]:
    """Yield each mutant with the verdict on it."""
    for mutant in mutants:
        yield mutant, verdict(mutant.configuration, mutant.production())


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--large", action="store_true", help="also the configurations that take minutes")
    parser.add_argument("--mutants", action="store_true", help="remove one safeguard at a time instead")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")


def _run(options: Namespace) -> int:
    if options.mutants:
        return _run_mutants(options.markdown)
    chosen = [each for each in CONFIGURATIONS if options.large or not each.large]
    found = []
    for each in examine(chosen):
        found.append(each)
        if not options.markdown:
            print(f"{each}; {each.steps:,} steps, {each.seconds:.1f} s", flush=True)
    if options.markdown:
        print(markdown(found))
    return int(any(each.wrong is not None for each in found))


def _run_mutants(as_markdown: bool) -> int:
    caught = []
    for mutant, found in hunt():
        caught.append((mutant, found))
        if not as_markdown:
            print(f"{mutant.name}\n{found}\n", flush=True)
    if as_markdown:
        print(mutants_markdown(caught))
    return int(any(found.wrong is None for _, found in caught))


COMMAND = Command("files", "Check the folded line of the file store.", _add_arguments, _run)
