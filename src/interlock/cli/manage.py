"""`interlock evict` and `doctor`: take a claim away, and find out whether a store is fit."""

import sys

import click

from interlock import Locks
from interlock.cli import output
from interlock.cli.exits import CONFLICT, LOST, STORE, one_line, say
from interlock.cli.options import completed, json_option, name_argument, namespace_option, store_option
from interlock.cli.where import called, connect

WORST_FIRST = ("fail", "warn", "ok")
COLOURS = {"fail": "red", "warn": "yellow", "ok": ""}


@click.command()
@name_argument
@click.argument("id", required=False, shell_complete=completed("ids"))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@namespace_option
@store_option
def evict(name: str, id: str | None, yes: bool, store: str | None, namespace: str, as_json: bool) -> int:
    """Take the claims of the lock NAME away, or only the one called ID (`interlock show` tells).

    A holder whose claim is evicted notices when it next renews its lease, within a third of the lease; until
    then it may still work beside the next holder. On a terminal the command asks first.

    Exit status: 0 if something was removed, 1 if nothing was.
    """
    with connect(store, namespace=namespace) as locks:
        asks = not yes and sys.stdin.isatty() and sys.stderr.isatty()
        count = locks.evict(name, id) if not asks or _confirmed(locks, name, id) else 0
    if as_json:
        output.print_json({"name": name, "id": id, "evicted": count})
    elif count:
        click.echo(f"Removed {_claims(count)} of {one_line(repr(name))}.")
    else:
        say(f"nothing was removed from {name!r}" + ("" if id is None else f", looking for the claim {id}"))
    return 0 if count else CONFLICT


def _confirmed(locks: Locks, name: str, id: str | None) -> bool:
    views = [view for view in locks.claims(name) if id in (None, view.id)]
    if not views:
        return False
    out = output.console(stderr=True)
    out.print(output.claims_table(out, [output.line_of(name, views)]))
    return click.confirm(f"Remove {_claims(len(views))} of {one_line(repr(name))}?", err=True)


def _claims(count: int) -> str:
    return "1 claim" if count == 1 else f"{count} claims"


@click.command()
@json_option
@namespace_option
@store_option
def doctor(store: str | None, namespace: str, as_json: bool) -> int:
    """Find out whether the store keeps the promises that locking needs.

    Exit status: 0 if it does, with or without warnings; 70 if a check failed: do not use this store; 75 if it
    can't be used at all, because it does not answer or refuses everything.
    """
    name = called(store)
    with connect(store, namespace=namespace) as locks:
        checks = locks.doctor()
    statuses = {check.status for check in checks}
    unusable = statuses == {"fail"}
    worst = next((status for status in WORST_FIRST if status in statuses), "ok")
    if as_json:
        found = [{"name": check.name, "status": check.status, "detail": check.detail} for check in checks]
        output.print_json({"store": name, "status": worst, "checks": found})
    elif unusable:
        say(f"the store can't be used: {checks[0].detail}")
    else:
        rows = [(check.name, check.status, check.detail) for check in checks]
        click.echo(f"Store {one_line(name)}")
        styles = (COLOURS[check.status] for check in checks)
        output.console().print(output.table_of(("Check", "Status", "Finding"), rows, styles))
    if unusable:
        return STORE
    return LOST if worst == "fail" else 0
