"""The verdicts on the file store, for a terminal and as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from proof.command import checking
from proof.files.configurations import CONFIGURATIONS, Configuration
from proof.files.mutants import MUTANTS
from proof.files.verdicts import Verdict, verdict


def wakers(configuration: Configuration) -> str:
    """Return as text what wakes the waiters of a configuration."""
    if configuration.deaf:
        return "only their own looks"
    if configuration.looks:
        return "wake-ups, deaths, own looks"
    return "wake-ups, deaths, ends of leases" if configuration.heartbeats else "wake-ups and deaths only"


def markdown(found: Sequence[Verdict]) -> str:
    """Return the table of configurations for the store's page.

    Args:
        found: a verdict for each.
    """
    lines = ["| configuration | waiters are woken by | states | steps | result |", "|---|---|---|---|---|"]
    for each in found:
        result = "safe, live" if each.wrong is None else f"**{each.wrong}**"
        cells = [each.configuration.name, wakers(each.configuration), f"{each.states:,}", f"{each.steps:,}", result]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


COMMAND = checking(
    "files",
    "Check the folded line of the file store.",
    lambda large: [verdict(each) for each in CONFIGURATIONS if large or not each.large],
    markdown,
    lambda: [(each, verdict(each.configuration, each.production())) for each in MUTANTS],
)
