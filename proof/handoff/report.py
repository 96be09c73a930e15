"""The verdicts on the local hand-off, for a terminal and as Markdown for the documentation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from proof.command import Command, mutants_markdown
from proof.handoff.configurations import CONFIGURATIONS
from proof.handoff.mutants import MUTANTS, judged
from proof.handoff.verdicts import Verdict, verdict


def markdown(found: Sequence[Verdict]) -> str:
    """Return the table of configurations as the protocol's page has it.

    Args:
        found: a verdict for each.
    """
    lines = ["| world | states | steps | result |", "|---|---:|---:|---|"]
    for each in found:
        result = "safe, live" if each.wrong is None else f"**{each.wrong}**"
        lines.append(f"| {each.configuration.name} | {each.states:,} | {each.steps:,} | {result} |")
    return "\n".join(lines)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--large", action="store_true", help="also the configurations that take minutes")
    parser.add_argument("--mutants", action="store_true", help="remove one safeguard at a time instead")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")


def _run(options: Namespace) -> int:
    if options.mutants:
        caught = [(each, judged(each)) for each in MUTANTS]
        print(
            mutants_markdown(caught) if options.markdown else "\n\n".join(f"{each.name}\n{it}" for each, it in caught)
        )
        return int(any(found.wrong is None for _, found in caught))
    found = []
    for configuration in CONFIGURATIONS:
        if options.large or not configuration.large:
            found.append(verdict(configuration))
            if not options.markdown:
                print(f"{found[-1]}; {found[-1].steps:,} steps, {found[-1].seconds:.1f} s", flush=True)
    if options.markdown:
        print(markdown(found))
    return int(any(each.wrong is not None for each in found))


COMMAND = Command("handoff", "Check the local hand-off.", _add_arguments, _run)
