"""Commands on top of `interlock run`: once, lead, hold, renew, release, create."""

import errno
import json
import os
import sys
from typing import Any

import click

from interlock.cli import connect
from interlock.cli.exit_codes import CONFLICT, OUTPUT, drop_unwritten, fail
from interlock.cli.output import announced_wait
from interlock.cli.parameters import Duration, json_option, name_argument, namespace_option, store_option
from interlock.cli.run import Run, command_argument, refuse_memory, token_of


@click.command(cls=Run)
@click.option("--keep", type=Duration(), required=True, help="How long a completed run is remembered: 10m, 2h, 1d.")
@click.option("-w", "--wait", type=Duration(), help="Wait at most this long for another run to end; 0 does not wait.")
@click.option(
    "--ttl",
    type=Duration(),
    help="Length of the lease; it is renewed while the command runs. Default: 30s, on share:// 60s.",
)
@store_option
@namespace_option
@click.option("--label", metavar="TEXT", help="Text for this claim in ls and show. Default: the command's name.")
@click.option("-v", "--verbose", is_flag=True, help="Write each step to standard error, with its time.")
@name_argument
@command_argument
def once(keep: float, **given: Any) -> int:
    """Run COMMAND once within --keep; if it has already completed (exit status 0), exit 0 without output.

    While COMMAND runs, another call waits for its end. A run stopped by HUP, INT, QUIT or TERM does not count.
    Exit status: that of interlock run; 128+n after signal n, even if COMMAND returned 0.
    """
    from interlock.cli.run_locked import Order, run_guarded

    return run_guarded(Order(once=keep, **given))


@click.command(cls=Run)
@click.option(
    "--ttl",
    type=Duration(),
    help="Lease: if this machine crashes, another leads after this time. Default: 30s, on share:// 60s.",
)
@click.option(
    "--grace", type=Duration(), default=5.0, help="Time from TERM to KILL when the lead is lost. Default: 5s."
)
@store_option
@namespace_option
@click.option("--label", metavar="TEXT", help="Text for this claim in ls and show. Default: the command's name.")
@name_argument
@command_argument
def lead(**given: Any) -> int:
    """Keep COMMAND running on exactly one of the machines that run this command.

    A machine that loses the lead stops COMMAND with TERM, then KILL. Whenever COMMAND has ended, this machine becomes
    a candidate again after 1 to 30 seconds. Signals reach COMMAND; HUP, INT, QUIT and TERM also end this command as
    soon as COMMAND has ended. A signal that was ignored at the start (nohup) stays ignored.
    """
    from interlock.cli.run_locked import Order, run_guarded

    return run_guarded(Order(wait=None, again=True, **given))


@click.command()
@click.option(
    "--ttl", type=Duration(), help="Length of the lease; only renew extends it. Default: 30s, on share:// 60s."
)
@click.option("-w", "--wait", type=Duration(), help="Wait at most this long; 0 does not wait.")
@click.option("--label", metavar="TEXT", help="Text for this claim in ls and show.")
@store_option
@namespace_option
@json_option
@name_argument
def hold(name: str, ttl: float | None, wait: float | None, label: str | None, store: str | None, namespace: str,
         as_json: bool) -> int:  # fmt: skip
    """Hold the lock NAME without a process; print a token for renew, release and run --attach.

    Every program that has the token can use the lock. Exit status: 1 if the lock could not be acquired; 74 if the
    token cannot be written (the lock is then released).
    """
    refuse_memory(store)
    with connect(store, namespace) as locks:
        with announced_wait(locks, name, repr(name)):
            grant = locks.lock(name, ttl=ttl, label=label, renew=False).acquire(timeout=wait)
        if grant is None:
            return fail(CONFLICT, f"Could not acquire {name!r}: others hold it. Run `interlock show {name!r}`.")
        fence, token = grant.fence, ""
        try:  # an interrupt after `detach` must not leave a lock without a known token
            token = grant.detach()
            if sys.stdout is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            click.echo(json.dumps({"name": name, "fence": fence, "token": token}) if as_json else token)
        except BaseException as error:
            if token:
                locks.release(token)
            if not isinstance(error, OSError):
                raise
            drop_unwritten("stdout")
            return fail(OUTPUT, f"The token cannot be written: {error.strerror}. {name!r} was released.")
    return 0


@click.command()
@click.argument("token")
@click.option("--ttl", type=Duration(), help="New length of the lease, from now on. Default: as before.")
@store_option
def renew(token: str, ttl: float | None, store: str | None) -> int:
    """Renew a lock of `interlock hold`; TOKEN - reads the token from standard input.

    The store is --store, or else $INTERLOCK_URL, or else the store named in the token.

    Exit status: 1 if the lock is no longer held.
    """
    text, content, store = token_of(token, store)
    with connect(store, content.namespace) as locks:
        return (
            0 if locks.renew(text, ttl=ttl) else fail(CONFLICT, "This token no longer holds the lock. Hold it again.")
        )


@click.command()
@click.argument("token")
@store_option
def release(token: str, store: str | None) -> int:
    """Release a lock of `interlock hold`; TOKEN - reads the token from standard input.

    The store is --store, or else $INTERLOCK_URL, or else the store named in the token.

    Exit status: 1 if the lock is no longer held.
    """
    text, content, store = token_of(token, store)
    with connect(store, content.namespace) as locks:
        return 0 if locks.release(text) else fail(CONFLICT, "This token no longer holds the lock.")


@click.command()
@store_option
def create(store: str | None) -> int:
    """Create the tables or files of a store, as a user who may create them; other users need no such right.

    The URLs of the other users can contain ?create=false.
    """
    with connect(store, "") as locks:
        with locks.lock("interlock create", timeout=10, ttl=10):
            pass
        click.echo(f"ready: {locks}")
    return 0
