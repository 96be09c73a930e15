"""`interlock ls`, `show` and `watch`: the holders and waiters of locks."""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import click

from interlock import Locks, StoreError
from interlock.cli import called, connect, output
from interlock.cli.exit_codes import CONFLICT, LOCK_LOST, STORE, one_line, say
from interlock.cli.parameters import Duration, completed, json_option, name_argument, namespace_option, store_option
from interlock.core.claims import Check

MAX_OTHERS_SHOWN = 5
MIN_INTERVAL = 0.05  # seconds between two listings


@click.command()
@json_option
@namespace_option
@store_option
def ls(store: str | None, namespace: str, as_json: bool) -> None:
    """List the locks that have a holder or a waiter."""
    name = called(store)
    with connect(store, namespace=namespace) as locks:
        lines = output.lines_of(locks.claims())
        others = "" if as_json else others_of(locks)
    if as_json:
        output.print_json([output.line_json(line) for line in lines])
    else:
        out = output.console()
        out.print(_picture(output.locks_table, out, lines, place_of(name, locks), others))


@click.command()
@name_argument
@json_option
@namespace_option
@store_option
def show(name: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Show the holders of the lock NAME and its waiters, in the order of the line."""
    place = called(store)
    with connect(store, namespace=namespace) as locks:
        line = output.line_of(name, locks.claims(name))
        others = "" if as_json else others_of(locks)
    if as_json:
        output.print_json({**output.line_json(line), "store": place})
    elif line.holders or line.waiters:
        click.echo(f"Store {place_of(place, locks)}")
        width = output.console().width
        click.echo("\n\n".join(output.claim_text(view, width) for view in (*line.holders, *line.waiters)))
    else:
        click.echo(f"{one_line(repr(name))} has no holder and no waiter in {place_of(place, locks)}.")
    if others:
        click.echo(others)


@click.command()
@click.option(
    "--interval",
    type=Duration(),
    default=1.0,
    show_default=True,
    help="Seconds between two listings.",
)
@json_option
@namespace_option
@store_option
def watch(interval: float, store: str | None, namespace: str, as_json: bool) -> None:
    """Show holders and waiters continuously, until Ctrl-C.

    On a terminal one table is updated; otherwise a new table is printed each time.
    """
    name = called(store)
    out = output.console()
    updates = out.is_terminal and not out.is_dumb_terminal and not as_json
    leases: dict[str, float] = {}
    from rich.live import Live

    with suppress(KeyboardInterrupt), connect(store, namespace=namespace) as locks:
        with Live(console=out, auto_refresh=False) if updates else nullcontext() as live:
            while True:
                lines = output.lines_of(locks.claims())
                holders = [view for line in lines for view in line.holders]
                leases = {view.id: max(leases.get(view.id, 0.0), view.expires_in) for view in holders}
                table = partial(output.claims_table, leases=leases)
                picture = _picture(table, out, lines, place_of(name, locks))
                if as_json:
                    found = [output.line_json(line) for line in lines]
                    output.print_json({"time": output.iso(time.time()), "store": name, "locks": found}, compact=True)
                elif live is not None:
                    live.update(picture, refresh=True)
                else:
                    out.print(output.iso(time.time()), picture, "")
                time.sleep(max(interval, MIN_INTERVAL))


def _picture(
    table: Callable[..., Any], out: object, lines: list[output.OutputLine], place: str, more: str = ""
) -> Any:
    """Return a table of claims under the name of their store, and an extra line."""
    if not lines:
        return output.picture_of(f"No lock is held in {place}.", more)
    return output.picture_of(f"Store {place}", table(out, lines), more)


def place_of(store: str, locks: Locks) -> str:
    """Return the name of the store, and the namespace if there is one."""
    return one_line(f"{store}, namespace {locks.namespace!r}" if locks.namespace else store)


def others_of(locks: Locks) -> str:
    """Return a line about claims in other namespaces; "" if there are none."""
    try:
        found = sorted(set(locks.namespaces()) - {locks.namespace})
    except StoreError:
        found = []  # an access list may forbid it
    if not found:
        return ""
    shown = ", ".join(one_line(repr(name)) for name in found[:MAX_OTHERS_SHOWN])
    more = f" and {len(found) - MAX_OTHERS_SHOWN} more" if len(found) > MAX_OTHERS_SHOWN else ""
    return f"Other namespaces have claims (use --namespace): {shown}{more}"


COLOURS = {"fail": "red", "warn": "yellow", "ok": ""}  # the worst first


@click.command()
@click.argument("name", required=False, shell_complete=completed("names"))
@click.argument("id", required=False, shell_complete=completed("ids"))
@click.option("--instance", metavar="TEXT", help="Only claims of processes that connected with this instance=.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@namespace_option
@store_option
def evict(
    name: str | None,
    id: str | None,
    instance: str | None,
    yes: bool,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> int:
    """Remove all claims of the lock NAME, or only the claim ID (`interlock show` lists claims).

    With --instance, only the claims of that instance are removed, of all locks if NAME is omitted.

    The holder of an evicted claim is notified at its next renewal, within a third of the lease; until then it may
    work at the same time as the next holder. On a terminal the command asks first.

    Exit status: 0 if a claim was removed, 1 if none was.
    """
    if name is None and instance is None:
        raise click.UsageError("Give the NAME of a lock, or --instance.")
    what = repr(instance if name is None else name)
    with connect(store, namespace=namespace) as locks:
        asks = not yes and sys.stdin.isatty() and sys.stderr.isatty()
        removes = not asks or _confirmed(locks, name, id, instance, what)
        count = locks.evict(name, id, instance=instance) if removes else 0
    if as_json:
        output.print_json({"name": name, "id": id, "instance": instance, "evicted": count})
    elif count:
        click.echo(f"Removed {_claims(count)} of {one_line(what)}.")
    else:
        say(f"No claim of {what} was removed" + ("." if id is None else f": {id} is not in its line."))
    return 0 if count else CONFLICT


def _confirmed(locks: Locks, name: str | None, id: str | None, instance: str | None, what: str) -> bool:
    views = [
        view
        for view in locks.claims(name)
        if view.id and id in (None, view.id) and instance in (None, view.instance)  # not the record
    ]
    if not views:
        return False
    out = output.console(stderr=True)
    out.print(output.claims_table(out, output.lines_of(views)))
    return click.confirm(f"Remove {_claims(len(views))} of {one_line(what)}?", err=True)


def _claims(count: int) -> str:
    return "1 claim" if count == 1 else f"{count} claims"


@click.command()
@click.option(
    "--race", is_flag=True, help="Let many clients write one object of a bucket at the same time: only one may win."
)
@click.option(
    "--clients", default=64, show_default=True, type=click.IntRange(2, 512), help="Number of clients in the race."
)
@click.option(
    "--rounds", default=50, show_default=True, type=click.IntRange(1, 10_000), help="Number of rounds of the race."
)
@json_option
@namespace_option
@store_option
def doctor(store: str | None, namespace: str, as_json: bool, race: bool, clients: int, rounds: int) -> int:
    """Check whether the store keeps the guarantees that locking needs.

    Use --race before you keep locks in a bucket: many clients write one object at the same moment, each on the
    condition that no other client has written it, and exactly one must win each round.

    Exit status: 0 if all checks passed, with or without warnings; 70 if a check failed: do not use this store; 75 if
    the store cannot be used at all, because it does not reply or refuses everything.
    """
    name = called(store)
    with connect(store, namespace=namespace) as locks:
        racing = getattr(locks._client.store, "race", None)
        if race and racing is None:
            raise click.UsageError(
                f"--race needs a store of conditional writes, such as s3://, not {one_line(name)}."
            )
        checks: list[Check] = racing(clients, rounds) if racing is not None and race else locks.doctor()
    statuses = {check.status for check in checks}
    unusable = statuses == {"fail"} and not race
    worst = next((status for status in COLOURS if status in statuses), "ok")
    if as_json:
        found = [{"name": check.name, "status": check.status, "detail": check.detail} for check in checks]
        output.print_json({"store": name, "status": worst, "checks": found})
    elif unusable:
        say(f"The store cannot be used: {checks[0].detail}")
    else:
        rows = [(check.name, check.status, check.detail) for check in checks]
        click.echo(f"Store {one_line(name)}")
        output.console().print(
            output.table_of(("Check", "Status", "Finding"), rows, (COLOURS[check.status] for check in checks))
        )
    if unusable:
        return STORE
    return LOCK_LOST if worst == "fail" else 0
