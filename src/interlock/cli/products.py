"""Commands on top of `interlock run`: once, lead, hold, renew, release, create."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from interlock.cli import connect
from interlock.cli.exits import CONFLICT, fail, say
from interlock.cli.output import Duration, json_option, name_argument, namespace_option, store_option
from interlock.cli.run import Run, command_argument, refuse_memory
from interlock.client.tokens import read

SHORTEST, LONGEST = 1.0, 30.0  # seconds until a command that ended is started again
LASTED = 60.0  # seconds; a command that ran so long has not failed at its start
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if os.name == "posix" else (signal.SIGINT,)


@click.command(cls=Run)
@click.option("--keep", type=Duration(), required=True, help="How long a completed run counts: 10m, 2h, 1d.")
@click.option("-w", "--wait", type=Duration(), help="Wait at most this long for another run to end; 0 does not wait.")
@click.option(
    "--ttl", type=Duration(), help="Length of the lease; it is renewed while the command runs. Default: 30s."
)
@store_option
@namespace_option
@click.option("--label", metavar="TEXT", help="What ls and show display for this claim. Default: the command's name.")
@click.option("-v", "--verbose", is_flag=True, help="Write each step to standard error, with its time.")
@name_argument
@command_argument
def once(keep: float, **given: Any) -> int:
    """Run COMMAND, unless a run of it has completed (exit status 0) within --keep; then print nothing and exit 0.

    A call that comes while COMMAND runs waits for its end. Exit status: as that of interlock run.
    """
    from interlock.cli.guard import Order, run_guarded

    refuse_memory(given["store"])
    return run_guarded(Order(once=keep, **given))


@click.command(cls=Run)
@click.option(
    "--ttl",
    type=Duration(),
    help="Length of the lease: if this machine dies, another one leads after it. Default: 30s.",
)
@click.option(
    "--grace", type=Duration(), default=5.0, help="Time from TERM to KILL when the lead is lost. Default: 5s."
)
@store_option
@namespace_option
@click.option("--label", metavar="TEXT", help="What ls and show display for this claim. Default: the command's name.")
@name_argument
@command_argument
def lead(name: str, command: Sequence[str], store: str | None, **given: Any) -> int:
    """Keep COMMAND running on exactly one of the machines that call this.

    A machine that loses the lead stops COMMAND with TERM, then KILL. Whenever COMMAND has ended, this machine stands
    for election again after 1 to 30 seconds. INT, TERM and HUP are passed on to COMMAND, and end this command.
    """
    from interlock.cli.child import dying_with

    refuse_memory(store)
    options = [] if store is None else ["--store", store]
    for option, value in given.items():
        options += [] if value in (None, "") else [f"--{option}", str(value)]
    words = [sys.executable, "-m", "interlock", "run", *options, name, "--", *command]
    ended: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def end(number: int, frame: object) -> None:
        ended.append(number)
        if child is not None:
            child.send_signal(number)

    for number in FORWARDED:
        signal.signal(number, end)
    dies_with_us, pause = dying_with(os.getpid(), signal.SIGTERM), SHORTEST
    while not ended:
        began = time.monotonic()
        child = subprocess.Popen(words, preexec_fn=dies_with_us)
        if ended:
            child.send_signal(ended[0])
        status = child.wait()
        if ended:
            return status if status >= 0 else 128 - status
        pause = SHORTEST if time.monotonic() - began > LASTED else min(LONGEST, 2 * pause)
        say(f"{command[0]!r} ended with {status}; {name!r} is stood for again in about {pause:g} s")
        until = time.monotonic() + pause * random.uniform(0.5, 1.0)
        while not ended and time.monotonic() < until:
            time.sleep(0.1)
    return 128 + ended[0]


@click.command()
@click.option("--ttl", type=Duration(), help="How long the lock is held unless it is renewed. Default: 30s.")
@click.option("-w", "--wait", type=Duration(), help="Wait at most this long; 0 does not wait.")
@click.option("--label", metavar="TEXT", help="What ls and show display for this claim.")
@store_option
@namespace_option
@json_option
@name_argument
def hold(name: str, ttl: float | None, wait: float | None, label: str | None, store: str | None, namespace: str,
         as_json: bool) -> int:  # fmt: skip
    """Hold the lock NAME without a process; print a token for renew, release and run --attach.

    Every program that has the token can use the lock. Exit status: 1 if the lock was not obtained.
    """
    refuse_memory(store)
    with connect(store, namespace) as locks:
        grant = locks.lock(name, ttl=ttl, label=label, renew=False).acquire(timeout=wait)
        if grant is None:
            return fail(CONFLICT, f"did not obtain {name!r}: others hold it (interlock show {name!r})")
        fence, token = grant.fence, grant.detach()
    click.echo(json.dumps({"name": name, "fence": fence, "token": token}) if as_json else token)
    return 0


def _of_token(text: str, store: str | None) -> tuple[str, Any]:
    """Return a token as text, and the connection to where it is of."""
    text = sys.stdin.readline().strip() if text == "-" else text
    token = read(text)
    known = "" if "***" in token.where or "://" not in token.where else token.where
    return text, connect(store or os.environ.get("INTERLOCK_URL") or known or None, token.namespace)


@click.command()
@click.argument("token")
@click.option("--ttl", type=Duration(), help="New length of the lease, from now on. Default: as before.")
@store_option
def renew(token: str, ttl: float | None, store: str | None) -> int:
    """Renew the lock that `interlock hold` has taken; if TOKEN is -, it is read from standard input.

    Exit status: 1 if the lock is no longer held.
    """
    text, locks = _of_token(token, store)
    with locks:
        return 0 if locks.renew(text, ttl=ttl) else fail(CONFLICT, "not held any more by this token: hold it anew")


@click.command()
@click.argument("token")
@store_option
def release(token: str, store: str | None) -> int:
    """Release the lock that `interlock hold` has taken; if TOKEN is -, it is read from standard input.

    Exit status: 1 if the lock is no longer held.
    """
    text, locks = _of_token(token, store)
    with locks:
        return 0 if locks.release(text) else fail(CONFLICT, "not held any more by this token")


@click.command()
@store_option
def create(store: str | None) -> int:
    """Create the tables or files that a store needs, as a user who may do so; the other users need no such right.

    The URLs of the other users may say ?create=false.
    """
    with connect(store, "") as locks:
        with locks.lock("interlock create", timeout=10, ttl=10):
            pass
        click.echo(f"ready: {locks}")
    return 0
