"""The verdicts on the original scheme as Markdown for the documentation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from proof.command import Command
from proof.seeds.verdicts import Aftermath, Trace, Verdict, verdicts


def markdown(found: Sequence[Sequence[Verdict]]) -> str:
    """Return the table of versions and their counterexamples for a page of the documentation.

    Args:
        found: the verdicts for each number of clients, all in the same order; counterexamples are from the first.
    """
    numbers = ", ".join(f"N={verdicts[0].clients}" for verdicts in found)
    lines = [
        f"| version | states ({numbers}) | two holders | stuck | livelock | a crash blocks the others if it leaves |",
        "|---|---|---|---|---|---|",
    ]
    for row in zip(*found, strict=True):
        states = ", ".join(f"{verdict.states:,}" for verdict in row)
        two_holders, *others = _answers(row[0])
        if row[0].two_holders:
            two_holders = "**yes**"
        lines.append(f"| {' | '.join([row[0].version.title, states, two_holders, *others])} |")
    for row in zip(*found, strict=True):
        if row[0].two_holders or row[0].stuck:
            lines += ["", *_counterexample(row[0])]
    return "\n".join(lines)


def _answers(verdict: Verdict) -> tuple[str, str, str, str]:
    return (
        "yes" if verdict.two_holders else "never",
        "possible" if verdict.stuck else "never",
        "possible" if verdict.livelock else "no",
        "; ".join(_blocking(verdict.crash)) or "-",
    )


def _blocking(crash: dict[str, Aftermath]) -> list[str]:
    """Return the sets of records that block others after a crash; without supersets of blocking sets."""
    always = {left for left, after in crash.items() if not after.go_on}
    cells = []
    for left, after in crash.items():
        parts = left.split(" + ")
        if after.blocked and (len(parts) == 1 or not always.intersection(parts)):
            cells.append(f"{left} (at times)" if after.go_on else left)
    return cells


def _counterexample(verdict: Verdict) -> list[str]:
    lines = [f"**{verdict.version.title}**", ""]
    if verdict.two_holders:
        lines.append(f"- Two holders: {_sentence(verdict.two_holders)}")
    if verdict.stuck:
        lines.append(f"- Stuck for ever: {_sentence(verdict.stuck)}")
    lines.append(f"- The repair: {verdict.version.repair}.")
    return lines


def _sentence(trace: Trace) -> str:
    return "; ".join(trace) + "."


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[2, 3], metavar="N", help="how many clients compete (default: 2 3)"
    )


def _run(options: Namespace) -> int:
    print(markdown([verdicts(clients) for clients in options.clients]))
    return 0


COMMAND = Command("seeds", "Check every version of the original scheme.", _add_arguments, _run)
