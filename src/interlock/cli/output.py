"""Output for people and programs: tables, durations, JSON."""

import math
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock import ClaimView, Locks
from interlock.cli.exit_codes import one_line, say
from interlock.core.claims import DONE

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SAY_AFTER = 1.0  # seconds of waiting until the terminal shows the holder
WIDE = 10_000  # columns without a terminal: nothing is cut or wrapped
FOLDED = frozenset(("Lock", "Process", "Holder", "Label", "Finding"))  # columns that are folded when space is short
SPARE = (  # left out in this order rather than that a name is folded
    "Label",
    "Since",
    "Longest wait",
    "Holder",
    "Lease ends",
)
SPARE_LATER = ("Kind", "Process")  # left out where names would not even have this space:
NAME_SPACE = 16  # columns
INDENT = 8 * " "
LONG, VERY_LONG = 60.0, 600.0  # seconds of waiting from which a waiter is coloured
BAR = 10  # characters of the bar of a lease
SPANS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


class OutputLine(NamedTuple):
    """The claims of one lock.

    Attributes:
        name: the lock's name.
        holders, waiters: its claims, in the order of the line.
    """

    name: str
    holders: tuple[ClaimView, ...]
    waiters: tuple[ClaimView, ...]

    @property
    def kinds(self) -> str:
        """The kinds of its claims, as text; for a semaphore the units in use, of its capacity."""
        views = (*self.holders, *self.waiters)
        used = sum(view.units for view in self.holders if view.state != DONE)
        limit = min((view.capacity for view in views if view.kind.startswith("semaphore")), default=0)
        full = f"semaphore {used} of {limit}"
        return ", ".join(dict.fromkeys(full if view.kind.startswith("semaphore") else view.kind for view in views))


def lines_of(views: Iterable[ClaimView]) -> list[OutputLine]:
    """Return the claims grouped by lock, sorted by name."""
    by_name = attrgetter("name")
    return [line_of(name, [*claims]) for name, claims in groupby(sorted(views, key=by_name), by_name)]


def line_of(name: str, views: Sequence[ClaimView]) -> OutputLine:
    """Return the claims of one lock."""
    return OutputLine(
        name,
        tuple(view for view in views if view.state != "pending"),
        tuple(view for view in views if view.state == "pending"),
    )


def duration(seconds: float) -> str:
    """Return a time span in its largest unit, rounded down: 45 s, 3 min, 2 h, 5 d."""
    return next((f"{int(seconds / size)} {unit}" for size, unit in SPANS if seconds >= size), "0 s")


def ago(since: float) -> str:
    """Return how long ago a moment was, as text."""
    seconds = time.time() - since
    return f"{duration(seconds)} ago" if seconds >= 1 else "just now"


def iso(moment: float | None) -> str | None:
    """Return a moment as ISO 8601, UTC, with milliseconds; None for None."""
    if moment is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def claim_json(view: ClaimView) -> dict[str, Any]:
    """Return a claim as JSON with the documented keys."""
    return {
        "id": view.id,
        "state": view.state,
        "kind": view.kind,
        "units": view.units,
        "capacity": view.capacity,
        "fence": view.fence,
        "host": view.host,
        "pid": None if view.state == DONE else view.pid,
        "instance": view.instance,
        "thread": view.thread,
        "label": view.label,
        "since": iso(view.since),
        "waiting_since": iso(view.waiting_since),
        "held_since": iso(view.held_since),
        "expires_in": round(view.expires_in, 3),
    }


def line_json(line: OutputLine) -> dict[str, Any]:
    """Return the claims of a lock as JSON with the documented keys."""
    return {
        "name": line.name,
        "holders": [claim_json(view) for view in line.holders],
        "waiters": [claim_json(view) for view in line.waiters],
    }


def print_json(value: object, *, compact: bool = False) -> None:
    """Print JSON: indented, or on one line."""
    import json

    import click

    click.echo(json.dumps(value, indent=None if compact else 2))


def console(*, stderr: bool = False) -> "Console":
    """Return the console for tables; without a terminal it has no width limit."""
    from rich.console import Console

    made = Console(highlight=False, stderr=stderr)
    return made if made.is_terminal else Console(highlight=False, stderr=stderr, width=WIDE)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]], styles: Iterable[str] = ()) -> "Table":
    """Return a table of plain text, without markup and control characters."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in FOLDED)
    style = iter(styles)
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row), style=next(style, None))
    return table


def fitting(
    out: "Console", columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
) -> "Table":
    """Return a table without the columns for which the terminal is too narrow.

    Args:
        out: the terminal.
        columns, rows, styles: as for `table_of`; the first column has the names.
    """

    def width(kept: Sequence[int], most: int) -> int:
        cut = [[one_line(row[0])[:most], *row[1:]] for row in rows]
        table = table_of([columns[i] for i in kept], [[row[i] for i in kept] for row in cut])
        return out.measure(table, options=out.options.update(width=WIDE)).maximum

    kept = list(range(len(columns)))
    for spare, most in ((SPARE, WIDE), (SPARE_LATER, NAME_SPACE)):
        for name in spare:
            if name in columns and width(kept, most) > out.width:
                kept.remove(columns.index(name))
    return table_of([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], styles)


def locks_table(out: "Console", lines: Sequence[OutputLine]) -> "Table":
    """Return a table with a row for each lock."""
    columns = ["Lock", "Kind", "Holder", "Label", "Since", "Waiters", "Longest wait"]
    rows = []
    for line in lines:
        holders = sum(view.state != DONE for view in line.holders)
        process = label = since = lease = ""
        if line.holders:
            _, _, process, label, since, lease = _main_facts(min(line.holders, key=lambda view: view.state == DONE))
        more = f" and {holders - 1} more" if holders > 1 else ""
        waits = duration(max(_waited(view) for view in line.waiters)) if line.waiters else ""
        rows.append((line.name, line.kinds, process + more, label, since or lease, str(len(line.waiters)), waits))
    return fitting(out, columns if any(line.waiters for line in lines) else columns[:-1], rows)


def claims_table(out: "Console", lines: Iterable[OutputLine], leases: Mapping[str, float] | None = None) -> "Table":
    """Return a table with a row for each claim.

    Args:
        out: the terminal.
        lines: the claims.
        leases: the longest lease seen of each holder, in seconds by id, for a bar of what is left; None for no bar.
    """
    rows, styles = [], []
    for line in lines:
        for view in (*line.holders, *line.waiters):
            *facts, lease = _main_facts(view)
            if leases is not None and view.state == "using":
                lease = f"{_bar(view.expires_in / max(leases[view.id], 0.001), out)} {lease}"
            rows.append((line.name, *facts, lease))
            styles.append(_style(view))
    return fitting(out, ("Lock", "State", "Kind", "Process", "Label", "Since", "Lease ends"), rows, styles)


def _bar(share: float, out: "Console") -> str:
    full, empty = "#-" if out.options.ascii_only else "█░"
    length = math.ceil(min(max(share, 0.0), 1.0) * BAR)
    return full * length + empty * (BAR - length)


def _waited(view: ClaimView) -> float:
    return time.time() - (view.since or time.time())


def _style(view: ClaimView) -> str:
    """Return the style of a claim's row: bold for a holder, a colour for a long wait."""
    if view.state != "pending":
        return "bold" if view.state == "using" else ""
    waited = _waited(view)
    return "red" if waited >= VERY_LONG else "yellow" if waited >= LONG else ""


def picture_of(*parts: "str | Table") -> object:
    """Return tables and lines of plain text, one below the other, without empty lines."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(part, overflow="fold") if isinstance(part, str) else part for part in parts if part))


def claim_text(view: ClaimView, width: int) -> str:
    """Return all facts about a claim, in a few rows for a terminal of `width` columns."""
    state, kind, process, label, since, lease = _main_facts(view)
    if view.state == DONE:
        return f"{state}  {kind}  {lease}"
    fence = "" if view.fence is None else f"fence {view.fence}, "
    rows = (
        f"{state}  {kind}  {process}" + (f"  {label}" if label else ""),
        f"since {since}, lease ends {lease}",
        f"{fence}thread {view.thread}, id {view.id}",
    )
    from textwrap import TextWrapper

    wrapper = TextWrapper(max(width, 20), "", INDENT, break_on_hyphens=False)
    first, *others = (one_line(row) for row in rows)
    return "\n".join((wrapper.fill(first), *(wrapper.fill(INDENT + row) for row in others)))


def process_of(view: ClaimView) -> str:
    """Return the process of a claim, with its instance if it has one."""
    return f"{view.pid}@{view.host}" + (f" ({view.instance})" if view.instance else "")


def _main_facts(view: ClaimView) -> tuple[str, str, str, str, str, str]:
    if view.state == DONE:
        return "record", "once", "", "", "", f"kept for {duration(view.expires_in)}"
    return (
        "holder" if view.state == "using" else "waiter",
        view.kind,
        process_of(view),
        view.label,
        ago(view.held_since or view.since or 0),
        f"in {duration(view.expires_in)}",
    )


@contextmanager
def announced_wait(locks: Locks, name: str, shown: str) -> Iterator[None]:
    """Print the holder of a lock on a terminal if the body waits longer than 1 s.

    Args:
        locks: the connection, which other threads may use too.
        name: the lock's name.
        shown: the name as printed.
    """

    def tell() -> None:
        who = "earlier waiters are ahead"
        with suppress(Exception):  # the store does not know the holders, or is unavailable
            views = [view for view in locks.claims(name) if view.state == "using"]
            who = _holders(views) if views else who
        if not timer.finished.is_set():  # after the wait the terminal belongs to the command
            say(f"Waiting for {shown}: {who}. Press Ctrl-C to stop.")

    timer = threading.Timer(SAY_AFTER, tell)
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _holders(views: Sequence[ClaimView]) -> str:
    (pid, host, label), more = (views[0].pid, views[0].host, views[0].label), len(views) - 1
    held = duration(time.time() - (views[0].held_since or views[0].since or math.inf))
    return f"held by {pid}@{host}{label and f' ({label})'} for {held}{f' and {more} more' if more else ''}"
