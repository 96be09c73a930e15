"""The command line of `interlock run`."""

import os
from typing import Any

import click

from interlock.cli import is_given
from interlock.cli.exit_codes import UNAVAILABLE, fail
from interlock.cli.parameters import Duration, completed, name_argument, namespace_option, store_option
from interlock.cli.run_words import can_run, refused, refused_store, start
from interlock.client.tokens import Token, read


class Run(click.Command):
    """A command whose arguments end with another command; its options come before that command."""

    allow_interspersed_args = False

    def invoke(self, ctx: click.Context) -> int:
        """Call the command, if the system and the store support it."""
        if not can_run():
            return fail(UNAVAILABLE, f"{ctx.command_path} needs POSIX or Windows. Use a lock in the program itself.")
        refuse_memory(ctx.params["store"])
        return int(super().invoke(ctx) or 0)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move all options before NAME, and put `--` behind it."""
        try:
            options, rest, given = self._divided(ctx, args)
            name = ["-"]
            if given.isdisjoint(("attach", "one_of")):
                name = rest[:1]
                more, rest, _ = self._divided(ctx, rest[1:])
                options += more
            return super().parse_args(ctx, [*options, "--", *name, *rest])
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"{error.format_message()} If it belongs to COMMAND, write -- before COMMAND.", ctx
            ) from None

    def _divided(self, ctx: click.Context, words: list[str]) -> tuple[list[str], list[str], set[str]]:
        """Return the leading options, the words after them, and the names of the options."""
        alone = click.Command(None, params=[each for each in self.params if isinstance(each, click.Option)])
        given, rest, _ = alone.make_parser(ctx).parse_args(list(words))
        options = words[: len(words) - len(rest)]
        return options[:-1] if options[-1:] == ["--"] else options, rest, set(given)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; after the start of COMMAND, completion offers no options."""
        params = super().get_params(ctx)
        return [each for each in params if isinstance(each, click.Argument)] if ctx.params.get("command") else params


def _refuse(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        raise click.UsageError(f"{' / '.join(option.opts)}: {getattr(option, 'help', '')}", ctx)


command_argument = click.argument(
    "command",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[OPTIONS] [--] COMMAND…",
    shell_complete=completed("programs"),
)


def refuse_memory(store: str | None) -> None:
    """Raise UsageError for a store that only one process can use."""
    why = refused_store(store)
    if why:
        raise click.UsageError(why)


def token_of(text: str, store: str | None) -> tuple[str, Token, str | None]:
    """Return the text of a token, its content, and the URL of its store.

    Args:
        text: "-" reads one line of standard input; the following lines belong to the command.
        store: the value of --store; None for $INTERLOCK_URL, or else the token's own store.
    """
    if text == "-":
        text = b"".join(iter(lambda: os.read(0, 1).strip(b"\n"), b"")).decode(errors="replace").rstrip("\r")
    token = read(text)
    if store is None and not is_given(store):
        known = "" if "***" in token.where or "://" not in token.where else token.where
        store = os.environ.get("INTERLOCK_URL") or known or None
        refuse_memory(store)
    return text, token, store


@click.command(cls=Run)
@click.option("-s", "--shared", is_flag=True, help="Share the lock with other commands that use -s.")
@click.option("-x", "-e", "--exclusive", is_flag=True, help="Hold the lock alone. The default.")
@click.option("--permits", metavar="N", type=click.IntRange(1), help="Use a semaphore of N units.")
@click.option("--units", metavar="K", type=click.IntRange(1), help="Take K units of the semaphore. Default: 1.")
@click.option("-n", "--nb", "--nonblock", "nonblock", is_flag=True, help="Do not wait for the lock.")
@click.option("-w", "--wait", type=Duration(), help="Wait at most SEC seconds for the lock; 0 means -n.")
@click.option(
    "--max-waiters", metavar="N", type=click.IntRange(1), help="Do not wait if N others are already waiting."
)
@click.option(
    "--timeout", type=Duration(), help="Stop the command after SEC seconds: TERM, then KILL. The exit status is 124."
)
@click.option(
    "--attach",
    metavar="TOKEN",
    help="Instead of NAME: take over the lock of `interlock hold`; - reads the token from standard input.",
)
@click.option(
    "--one-of", metavar="NAME=A,B,…", help="Instead of NAME: lock one of these items, and pass it in $INTERLOCK_ITEM."
)
@click.option(
    "-E",
    "--conflict-exit-code",
    "conflict",
    metavar="CODE",
    type=click.IntRange(0, 255),
    default=1,
    show_default=True,
    help="Exit with CODE if the lock was not acquired (-n, -w, --max-waiters).",
)
@click.option(
    "-c",
    "--command",
    "shell",
    metavar="COMMAND",
    help="Run COMMAND with $SHELL, or with /bin/sh if $SHELL is unset; on Windows with cmd.",
)
@click.option(
    "-o",
    "--close",
    is_flag=True,
    expose_value=False,
    help="Accepted for compatibility with flock: the command never inherits the lock.",
)
@click.option("--keep", is_flag=True, help="Hold the lock until every process started by COMMAND has exited.")
@click.option(
    "--at-least",
    type=Duration(),
    default=0.0,
    help="Hold the lock for at least SEC seconds, for commands shorter than the clock skew of the machines.",
)
@click.option(
    "--grace", type=Duration(), default=5.0, help="Seconds from TERM to KILL when the lock is lost. Default: 5."
)
@click.option(
    "--ttl",
    type=Duration(),
    help="Length of the lease in seconds; it is renewed while the command runs. Default: 30, on share:// 60.",
)
@store_option
@namespace_option
@click.option("--label", metavar="TEXT", help="Text for this claim in ls and show. Default: the command's name.")
@click.option("-v", "--verbose", is_flag=True, help="Write each step to standard error, with its time.")
@click.option(
    "-u",
    "--unlock",
    is_flag=True,
    expose_value=False,
    callback=_refuse,
    help="Refused, because it is not needed: the lock is released when COMMAND ends, even if it left processes.",
)
@click.option(
    "-F",
    "--no-fork",
    is_flag=True,
    expose_value=False,
    callback=_refuse,
    help="Refused, because it is not possible: interlock must keep running to renew and release the lock.",
)
@name_argument
@command_argument
def run(**given: Any) -> int:
    """Acquire the lock NAME, run COMMAND, then release the lock. Waiters are served in order.

    COMMAND inherits the terminal and the open files; its environment contains INTERLOCK_NAME and INTERLOCK_FENCE.
    interlock forwards signals to COMMAND, and holds the lock until COMMAND has ended. COMMAND begins after --, or
    with the first word after NAME that is not an option; -c 'SHELL COMMAND' replaces it.

    Exit status: that of COMMAND; 128+n if signal n ended COMMAND or the wait; 1 (or -E) if the lock could not be
    acquired in time, or if the limit of --max-waiters was reached; 124 if --timeout stopped COMMAND; 64 usage error;
    69 COMMAND was not found or is not executable; 70 the lock was lost and COMMAND was stopped; 75 store unavailable
    or unsuitable.

    On Windows, interlock sends CTRL_BREAK_EVENT instead of TERM and Ctrl-C. Instead of KILL, it terminates COMMAND
    and every process that COMMAND started.
    """
    why = refused(given)
    if why:
        raise click.UsageError(why)
    if given["attach"] is not None:
        given["attach"], token, given["store"] = token_of(given["attach"], given["store"])
        given["namespace"] = given["namespace"] or token.namespace
    return start(given)
