"""What the demo shows: a progress bar while it runs, then a table and what it means, or JSON."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo.race import RacePlan, Round

OWN_FOLDER = "a temporary folder of the demo's own"
PASSWORD = re.compile(r"(?<=:)[^:/@]+(?=@)")


@contextmanager
def progress(title: str, updates: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if that is a terminal.

    Args:
        title: what is going on.
        updates: the number at which the bar is full.
        shown: False shows nothing.

    Returns: a context manager; it gives the function to call with the number of updates so far.
    """
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )
    with bar:
        task = bar.add_task(title, total=updates)
        yield lambda done: bar.update(task, completed=done)


def title(locked: bool) -> str:
    """Return the name of a round."""
    return "with interlock" if locked else "without a lock"


def as_json(plan: RacePlan, url: str | None, rounds: list[Round]) -> str:
    """Return the result as one JSON object; times in seconds, `store` null for the demo's own folder."""
    return json.dumps(
        {
            "ok": all(each.lost == 0 for each in rounds if each.locked),
            "store": None if url is None else PASSWORD.sub("***", url),
            "students": plan.students,
            "administrators": plan.administrators,
            "books": plan.books,
            "rounds": [
                {
                    "round": title(each.locked),
                    "locked": each.locked,
                    "updates": each.updates,
                    "lost": each.lost,
                    "lost_status": each.lost_status,
                    "lost_name": each.lost_name,
                    "seconds": round(each.seconds, 3),
                    "updates_per_second": round(each.rate, 1),
                    "longest_wait": round(each.longest_wait, 6) if each.locked else None,
                }
                for each in rounds
            ],
        },
        indent=2,
    )


def show(plan: RacePlan, url: str | None, rounds: list[Round]) -> None:
    """Print the table of the rounds and what it means."""
    console = Console(highlight=False)
    table = Table(
        title=f"{plan.students} students and {plan.administrators} administrators at {plan.books} books",
        title_justify="left",
    )
    table.add_column("round")
    for heading in ("updates", "lost", "seconds", "updates/s", "longest wait"):
        table.add_column(heading, justify="right")
    for each in rounds:
        colour = "red" if each.lost else "green"
        table.add_row(
            title(each.locked),
            str(each.updates),
            f"[{colour}]{each.lost}[/{colour}]",
            f"{each.seconds:.2f}",
            f"{each.rate:.0f}",
            f"{each.longest_wait * 1000:.0f} ms" if each.locked else "-",
        )
    console.print(table)
    for each in rounds:
        console.print(meaning(each), soft_wrap=True, markup=False)
    console.print(
        f"Locks were in {OWN_FOLDER if url is None else PASSWORD.sub('***', url)}.", soft_wrap=True, markup=False
    )


def meaning(result: Round) -> str:
    """Return what a round's numbers mean, in a sentence."""
    if result.locked and result.lost:
        return (
            f"With interlock {result.lost} of {result.updates} updates were lost: this store does not keep "
            "its promises; ask `interlock doctor` about it."
        )
    if result.locked:
        return (
            f"With interlock all {result.updates} updates are there: the book's lock was held from reading "
            "the row to saving it."
        )
    if result.lost:
        return (
            f"Without a lock {result.lost} of {result.updates} updates were saved and then overwritten by "
            f"somebody's stale copy of the row: {result.lost_status} of students, {result.lost_name} of "
            "administrators."
        )
    return "Without a lock nothing was lost this time, by luck: try fewer books, or more people or updates."
