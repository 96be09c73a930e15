"""What people and programs get to see: tables, words for times, JSON."""

import json
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from interlock import ClaimView
from interlock.cli.exits import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 10_000  # columns where there is no terminal: nothing is cut or wrapped
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


class Line(NamedTuple):
    """The line of one lock.

    Attributes:
        name: of the lock.
        holders, waiters: its claims, first come first.
    """

    name: str
    holders: tuple[ClaimView, ...]
    waiters: tuple[ClaimView, ...]

    @property
    def kinds(self) -> str:
        """The kinds of its claims, in words."""
        return ", ".join(dict.fromkeys(view.kind for view in (*self.holders, *self.waiters)))


def lines_of(views: Iterable[ClaimView]) -> list[Line]:
    """Return the lines that claims make, by name."""
    claims: dict[str, list[ClaimView]] = {}
    for view in views:
        claims.setdefault(view.name, []).append(view)
    return [line_of(name, claims[name]) for name in sorted(claims)]


def line_of(name: str, views: Sequence[ClaimView]) -> Line:
    """Return the line of one lock."""
    return Line(
        name,
        tuple(view for view in views if view.state == "using"),
        tuple(view for view in views if view.state != "using"),
    )


def duration(seconds: float) -> str:
    """Return a time span in its largest unit, rounded down: 45 s, 3 min, 2 h, 5 d."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return "0 s"


def ago(since: float) -> str:
    """Return how long ago a moment was, in words."""
    seconds = time.time() - since
    return f"{duration(seconds)} ago" if seconds >= 1 else "just now"


def iso(moment: float) -> str:
    """Return a moment as ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def who(view: ClaimView) -> str:
    """Return the process of a claim."""
    return f"{view.pid}@{view.host}"


def claim_json(view: ClaimView) -> dict[str, Any]:
    """Return a claim with the documented keys."""
    return {
        "id": view.id,
        "state": view.state,
        "kind": view.kind,
        "units": view.units,
        "capacity": view.capacity,
        "fence": view.fence,
        "host": view.host,
        "pid": view.pid,
        "thread": view.thread,
        "label": view.label,
        "since": iso(view.since),
        "expires_in": round(view.expires_in, 3),
    }


def line_json(line: Line) -> dict[str, Any]:
    """Return a line with the documented keys."""
    return {
        "name": line.name,
        "holders": [claim_json(view) for view in line.holders],
        "waiters": [claim_json(view) for view in line.waiters],
    }


def print_json(value: Any, *, compact: bool = False) -> None:
    """Print JSON: indented, or on one line."""
    click.echo(json.dumps(value, indent=None if compact else 2))


def console(*, stderr: bool = False) -> "Console":
    """Return where tables go: as wide as the terminal, or as wide as they are."""
    from rich.console import Console

    made = Console(highlight=False, stderr=stderr)
    return made if made.is_terminal else Console(highlight=False, stderr=stderr, width=WIDE)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]], styles: Iterable[str] = ()) -> "Table":
    """Return a table of plain text: nothing in it is taken as markup or as a command to the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    style = iter(styles)
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row), style=next(style, None))
    return table


def locks_table(lines: Iterable[Line]) -> "Table":
    """Return a table with a row for each lock."""
    rows = []
    for line in lines:
        first = (*line.holders, *line.waiters)[0]
        counts = (str(len(line.holders)), str(len(line.waiters)))
        rows.append((line.name, line.kinds, *counts, who(first), first.label, ago(first.since)))
    return table_of(("Lock", "Kind", "Holders", "Waiters", "First", "Label", "Since"), rows)


def claims_table(lines: Iterable[Line], *, full: bool) -> "Table":
    """Return a table with a row for each claim.

    Args:
        lines: whose claims.
        full: True for all that is known of one lock; False for the name and the main facts.
    """
    claims = [(line.name, view) for line in lines for view in (*line.holders, *line.waiters)]
    styles = ["bold" if view.state == "using" else "" for _, view in claims]
    if full:
        columns: tuple[str, ...] = (
            "State",
            "Kind",
            "Process",
            "Thread",
            "Label",
            "Since",
            "Lease ends",
            "Fence",
            "ID",
        )
        return table_of(columns, (_all_of(view) for _, view in claims), styles)
    columns = ("Lock", "State", "Kind", "Process", "Label", "Since", "Lease ends")
    return table_of(columns, ((name, *_main_of(view)) for name, view in claims), styles)


def _main_of(view: ClaimView) -> tuple[str, ...]:
    return (_state(view), view.kind, who(view), view.label, ago(view.since), _lease(view))


def _all_of(view: ClaimView) -> tuple[str, ...]:
    head = (_state(view), view.kind, who(view), view.thread, view.label, ago(view.since), _lease(view))
    return (*head, str(view.fence or ""), view.id)


def _state(view: ClaimView) -> str:
    return "holder" if view.state == "using" else "waiter"


def _lease(view: ClaimView) -> str:
    return f"in {duration(view.expires_in)}"
