"""`interlock torture`: use locks while faults are made, and judge what came of it."""

import os
import random
import shlex
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from interlock.cli.exits import LOST, STORE, USAGE, fail
from interlock.client.connect import check_url, default_url

FOUND = LOST  # the status for a store that does not keep its promises, as of `doctor`


class ServerOfPid:
    """A server of which only the process is known.

    Args:
        pid: of the process.
    """

    network: Any = None
    can: Collection[str] = ("pause",)
    forgets: Collection[str] = ()

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pause(self) -> None:
        """Stop it."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self._pid, signal.SIGCONT)

    def restart(self) -> None:
        """Never called: nobody said how to start it."""
        raise NotImplementedError

    wipe = empty = deafen = fail_over = restart

    def step(self, seconds: float) -> None:
        """As `restart`."""
        raise NotImplementedError

    def left(self) -> dict[str, list[str]]:
        """Return nothing: nobody said what is left where."""
        return {}


def fault_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each fault that needs nothing but the store and a process id."""
    from interlock.testing.torture.faults import FAULTS

    for name, fault in reversed(FAULTS.items()):
        if fault.where not in ("network", "server") or name == "pause":
            function = click.option(f"--{name}", f"fault_{name}", is_flag=True, help=fault.help + ".")(function)
    return function


@click.command()
@click.option("--store", metavar="URL", help="Where the locks are. Default: $INTERLOCK_URL, else /tmp/interlock-UID.")
@click.option("--procs", type=click.IntRange(1, 1000), default=4, show_default=True, help="Processes.")
@click.option(
    "--threads", type=click.IntRange(1, 1000), default=2, show_default=True, help="Threads of each, or tasks."
)
@click.option("--secs", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds.")
@click.option("--seed", type=int, help="Of all that is drawn. Default: a fresh one, which is printed.")
@click.option("--ttl", type=click.FloatRange(0.3), default=1.0, show_default=True, help="Seconds of lease.")
@click.option("--every", type=click.FloatRange(0.01), default=0.5, show_default=True, help="Seconds between faults.")
@click.option("--colour", type=click.Choice(["threads", "tasks", "both"]), default="both", show_default=True)
@click.option("--namespace", metavar="TEXT", default="torture", show_default=True, help="Of the locks.")
@click.option("--everything", is_flag=True, help="Make all faults that this store can have.")
@fault_options
@click.option("--server-pid", type=int, metavar="PID", help="Of the store's server, for --pause.")
@click.option("--history", metavar="FOLDER", help="Where to write. Default: a new temporary folder.")
@click.option("--markdown", metavar="FILE", help="Append what was found to a page.")
@click.option("--judge", "judged", metavar="FILE", help="Run nothing; judge the history of a run.")
def torture(store: str | None, judged: str | None, server_pid: int | None, **how: Any) -> int:
    """Let processes use locks of a store while faults are made, and judge what they saw.

    Give it a store that nobody else uses. Each process writes what it does to a history; the judge finds two
    holders at a time, fences that repeat or fall, lost updates, who was overtaken, who waited too long, and what is
    left over.

    Exit status: 0 if nothing was found, 70 if something was, 75 if the server could not be struck.
    """
    from interlock.testing.torture.faults import NotMade
    from interlock.testing.torture.history import read
    from interlock.testing.torture.judge import judge
    from interlock.testing.torture.report import as_markdown, as_text

    if judged is not None:
        try:
            verdict = judge(read(judged))
        except (OSError, ValueError) as error:
            return fail(USAGE, f"{judged} can't be judged: {error}")
    else:
        try:
            history = _run(store, server_pid, how)
        except NotMade as error:
            return fail(STORE, str(error))
        click.echo(f"history: {history}")
        verdict = judge(read(history))
    click.echo(as_text(verdict))
    if how["markdown"]:
        command = shlex.join(["interlock", *sys.argv[1:]])
        with open(how["markdown"], "a", encoding="utf-8") as page:
            page.write(as_markdown(verdict, verdict.run.plan.store, command, time.strftime("%Y-%m-%d %H:%M")))
    return FOUND if verdict.violations else 0


def _run(store: str | None, server_pid: int | None, how: dict[str, Any]) -> Path:
    from interlock.testing.torture.coordinator import run
    from interlock.testing.torture.faults import FAULTS, possible
    from interlock.testing.torture.plan import Plan, promises_of

    url = default_url() if store is None else store
    check_url(url)
    server = None if server_pid is None else ServerOfPid(server_pid)
    alone = url.startswith("memory:")
    colour: Any = "threads" if alone and how["colour"] == "both" else how["colour"]
    can = possible(url, colour, server)
    faults = tuple(can) if how["everything"] else tuple(name for name in FAULTS if how.get(f"fault_{name}"))
    if wrong := sorted(set(faults) - set(can)):
        raise click.UsageError(f"this run can't make {', '.join(wrong)}: it has {', '.join(can)}")
    seed = random.SystemRandom().randrange(2**32) if how["seed"] is None else how["seed"]
    click.echo(f"seed: {seed}")
    plan = Plan(
        url,
        procs=1 if alone else how["procs"],
        threads=how["threads"],
        secs=how["secs"],
        seed=seed,
        faults=faults,
        every=how["every"],
        ttl=how["ttl"],
        colour=colour,
        namespace=how["namespace"],
        **promises_of(url),
    )
    return run(plan, how["history"], server)
