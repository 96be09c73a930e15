"""The verdicts on the local hand-off, for a terminal and as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from proof.command import checking
from proof.handoff.configurations import CONFIGURATIONS
from proof.handoff.mutants import MUTANTS, judged
from proof.handoff.verdicts import Verdict, verdict


def markdown(found: Sequence[Verdict]) -> str:
    """Return the table of configurations for the protocol's page.

    Args:
        found: a verdict for each.
    """
    lines = ["| world | states | steps | result |", "|---|---:|---:|---|"]
    for each in found:
        result = "safe, live" if each.wrong is None else f"**{each.wrong}**"
        lines.append(f"| {each.configuration.name} | {each.states:,} | {each.steps:,} | {result} |")
    return "\n".join(lines)


COMMAND = checking(
    "handoff",
    "Check the local hand-off.",
    lambda large: [verdict(each) for each in CONFIGURATIONS if large or not each.large],
    markdown,
    lambda: [(each, judged(each)) for each in MUTANTS],
)
