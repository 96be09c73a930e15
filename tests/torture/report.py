"""The report of a run: for a terminal, and as Markdown."""

from tests.torture.judge import Verdict

SHOWN = 20
COLUMNS = (
    "store", "run", "operations", "faults", "violations", "excused", "lost without a fence", "longest stall, s",
)  # fmt: skip


def as_text(verdict: Verdict) -> str:
    """Return a verdict for a terminal."""
    outcomes = verdict.outcomes
    lines = [
        f"seed {verdict.run.plan.seed}: {len(verdict.run.ops)} operations, "
        + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())),
        f"{verdict.faults.total()} faults: "
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


def as_row(verdict: Verdict, store: str, date: str) -> str:
    """Return a verdict as a row of a page.

    Args:
        verdict: the verdict on the run.
        store: the name of the store.
        date: the date of the run.
    """
    plan, outcomes = verdict.run.plan, verdict.outcomes
    cells = (
        store,
        f"{date}, {plan.secs:g} s, {plan.procs} x {plan.threads}, lease {plan.ttl:g} s, seed {plan.seed}",
        f"{len(verdict.run.ops):,}: {outcomes['ok']:,} granted",
        verdict.faults.total(),
        len(verdict.violations),
        verdict.excused,
        verdict.unfenced,
        f"{max(verdict.stalls.values(), default=0.0):.2f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def with_row(page: str, row: str) -> str:
    """Return a page with a row in its table, which replaces an older one on the same store.

    Args:
        page: the page, which ends with the table; empty for a new one.
        row: the row, from `as_row`.
    """
    lines = page.rstrip().splitlines() or [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    first = row[: row.index("|", 1)]
    kept = [line for line in lines if not line.startswith(first)]
    return "\n".join([*kept, row]) + "\n"
