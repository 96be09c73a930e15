"""The report of a run: for a terminal, and as Markdown."""

from collections.abc import Sequence

from tests.torture.judge import Verdict

SHOWN = 20


def as_text(verdict: Verdict) -> str:
    """Return a verdict for a terminal."""
    outcomes = verdict.outcomes
    lines = [
        f"seed {verdict.run.plan.seed}: {len(verdict.run.ops)} operations, "
        + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())),
        f"{len(verdict.run.faults)} faults: "
        + (", ".join(f"{count} {name}" for name, count in sorted(verdict.faults.items())) or "none"),
        f"held by two after the store had lost its data, as documented: {verdict.excused}; "
        f"updates lost without a fence: {verdict.unfenced}",
        "longest stall, s: " + ", ".join(f"{name} {took:.2f}" for name, took in sorted(verdict.stalls.items())),
        f"{len(verdict.violations)} violations",
    ]
    lines += [f"  {each}" for each in verdict.violations[:SHOWN]]
    if len(verdict.violations) > SHOWN:
        lines.append(f"  … and {len(verdict.violations) - SHOWN} more")
    return "\n".join(lines)


def as_markdown(verdict: Verdict, title: str, command: str, date: str) -> str:
    """Return a verdict as a section of a page.

    Args:
        verdict: the verdict on the run.
        title: the title of the section.
        command: the command that made the run.
        date: the date of the run.
    """
    plan = verdict.run.plan
    facts: Sequence[tuple[str, object]] = (
        ("operations", len(verdict.run.ops)),
        *((f"of them {outcome}", count) for outcome, count in sorted(verdict.outcomes.items())),
        ("faults", len(verdict.run.faults)),
        ("violations", len(verdict.violations)),
        ("two holders after the store had lost its data, as documented", verdict.excused),
        ("updates lost that had no fence", verdict.unfenced),
    )
    lines = [
        f"## {title}", "", f"`{command}`", "",
        f"{date}; {plan.procs} processes of {plan.threads}, {plan.secs:g} s, lease {plan.ttl:g} s, "
        f"seed {plan.seed}.", "",
        "| what | how many |", "|---|---|", *(f"| {what} | {count} |" for what, count in facts), "",
    ]  # fmt: skip
    if verdict.faults or verdict.stalls:
        lines += ["| fault | made | longest stall near it, s |", "|---|---|---|"]
        for name in sorted({*verdict.faults, *verdict.stalls}):
            lines.append(f"| {name} | {verdict.faults[name] or ''} | {verdict.stalls.get(name, 0.0):.2f} |")
        lines.append("")
    if verdict.violations:
        lines += [*(f"- {each}" for each in verdict.violations[:SHOWN]), ""]
    return "\n".join(lines)
