"""The command line of `interlock run`."""

import os
from collections.abc import Callable
from typing import Any

import click

from interlock.cli import is_given
from interlock.cli.exit_codes import UNAVAILABLE, fail
from interlock.cli.output import Duration, completed, name_argument, namespace_option, store_option
from interlock.client.tokens import Token, read


class Run(click.Command):
    """A command line that ends with another one: options stand before NAME, or between NAME and the command."""

    allow_interspersed_args = False

    def invoke(self, ctx: click.Context) -> int:
        """Call the command, if the system has the processes that it needs, and if these can use the store."""
        if not hasattr(os, "fork"):
            return fail(UNAVAILABLE, f"{ctx.command_path} needs a POSIX system. Use a lock in the program itself")
        refuse_memory(ctx.params["store"])
        return int(super().invoke(ctx) or 0)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put all options before NAME, and `--` after them: all that follows is the command's own."""
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
                f"{error.format_message()} If it is the command's own, write -- before the command", ctx
            ) from None

    def _divided(self, ctx: click.Context, words: list[str]) -> tuple[list[str], list[str], set[str]]:
        """Return the options at the beginning, the words after them (and `--`), and the names of the options."""
        alone = click.Command(None, params=[each for each in self.params if isinstance(each, click.Option)])
        given, rest, _ = alone.make_parser(ctx).parse_args(list(words))
        options = words[: len(words) - len(rest)]
        return options[:-1] if options[-1:] == ["--"] else options, rest, set(given)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; once the command has begun, a shell that completes finds no options any more."""
        params = super().get_params(ctx)
        return [each for each in params if isinstance(each, click.Argument)] if ctx.params.get("command") else params


def _refuse(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        raise click.UsageError(f"{' / '.join(option.opts)}: {getattr(option, 'help', '')}", ctx)


command_argument: Callable[[Any], Any] = click.argument(
    "command",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[OPTIONS] [--] COMMAND…",
    shell_complete=completed("programs"),
)


def refuse_memory(store: str | None) -> None:
    """Raise UsageError for a store that no other process sees."""
    url = "" if is_given(store) else store or os.environ.get("INTERLOCK_URL") or ""
    if url.partition(":")[0].lower() == "memory":
        raise click.UsageError(
            "memory:// is seen by one process only and guards nothing: give --store file:///folder"
        )


def token_of(text: str, store: str | None) -> tuple[str, Token, str | None]:
    """Return the text of a token, its contents, and the URL of its store: --store, $INTERLOCK_URL, or its own.

    Args:
        text: "-" reads one line of standard input; the following lines belong to the command.
        store: of --store.
    """
    if text == "-":
        text = b"".join(iter(lambda: os.read(0, 1).strip(b"\n"), b"")).decode(errors="replace")
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
    "--timeout", type=Duration(), help="Stop the command after SEC seconds: TERM, then KILL. The exit status is 124."
)
@click.option(
    "--attach",
    metavar="TOKEN",
    help="Instead of NAME: take over the lock that hold has taken; - reads the token from standard input.",
)
@click.option(
    "--one-of", metavar="NAME=A,B,…", help="Instead of NAME: lock one of these items; $INTERLOCK_ITEM says which."
)
@click.option(
    "-E",
    "--conflict-exit-code",
    "conflict",
    metavar="CODE",
    type=click.IntRange(0, 255),
    default=1,
    show_default=True,
    help="Exit with CODE if the lock is not obtained.",
)
@click.option(
    "-c", "--command", "shell", metavar="COMMAND", help="Run COMMAND with $SHELL, or with /bin/sh if that is not set."
)
@click.option(
    "-o",
    "--close",
    is_flag=True,
    expose_value=False,
    help="Accepted for compatibility with flock: the command never inherits the lock.",
)
@click.option("--keep", is_flag=True, help="Hold the lock until all processes that the command has started are gone.")
@click.option(
    "--at-least",
    type=Duration(),
    default=0.0,
    help="Hold the lock at least SEC seconds: for commands that end sooner than the machines' clocks differ.",
)
@click.option(
    "--grace", type=Duration(), default=5.0, help="Seconds from TERM to KILL when the lock is lost. Default: 5."
)
@click.option(
    "--ttl",
    type=Duration(),
    help="Length of the lease in seconds; it is renewed while the command runs. Default: 30.",
)
@store_option
@namespace_option
@click.option("--label", metavar="TEXT", help="What ls and show display for this claim. Default: the command's name.")
@click.option("-v", "--verbose", is_flag=True, help="Write each step to standard error, with its time.")
@click.option(
    "-u",
    "--unlock",
    is_flag=True,
    expose_value=False,
    callback=_refuse,
    help="Refused, since it is not needed: the lock is released when the command ends, whatever it leaves running.",
)
@click.option(
    "-F",
    "--no-fork",
    is_flag=True,
    expose_value=False,
    callback=_refuse,
    help="Refused, since it is not possible: interlock must keep running to renew the lock and to release it.",
)
@name_argument
@command_argument
def run(command: tuple[str, ...], exclusive: bool, nonblock: bool, shell: str | None, **given: Any) -> int:
    """Wait in line for the lock NAME, run COMMAND while holding it, and release it.

    COMMAND inherits the terminal and the open files, and has INTERLOCK_NAME and INTERLOCK_FENCE in its environment.
    interlock passes signals on to it, and holds the lock until it has ended. COMMAND begins after --, or with the
    first word after NAME that is not an option; -c 'SHELL COMMAND' replaces it.

    Exit status: that of the command; 128+n if signal n ended the command or the wait; 1 (or -E) if the lock was not
    obtained; 124 if --timeout stopped the command; 64 wrong usage; 69 the command was not found or is not executable;
    70 the lock was lost and the command was stopped; 75 the store cannot be used.
    """
    chosen = (
        ("-s", given["shared"]), ("-x", exclusive), ("--permits", given["permits"]), ("--attach", given["attach"]),
        ("--one-of", given["one_of"]),
    )  # fmt: skip
    kinds = [spelling for spelling, is_chosen in chosen if is_chosen]
    one_of = given["one_of"]
    refused = (
        (len(kinds) > 1, f"{' and '.join(kinds)} contradict each other: give one of them"),
        (
            given["units"] and not given["permits"],
            "--units counts units of a semaphore: say how many there are with --permits",
        ),
        (nonblock and given["wait"], "-n and -w contradict each other: give one of them"),
        (
            shell is not None and command,
            f"-c takes one COMMAND as one word: quote it, and leave out {''.join(command[:1])!r}",
        ),
        (
            shell is None and not command,
            f"which command is to run while {given['name']!r} is locked? Write it after --, or give it to -c",
        ),
        (
            one_of is not None and not all(one_of.partition("=")[2].split(",")),
            f"--one-of {one_of}: no items. Write NAME=ITEM,ITEM",
        ),
    )
    for is_wrong, why in refused:
        if is_wrong:
            raise click.UsageError(why)
    if nonblock:
        given["wait"] = 0.0
    if shell is not None:
        command = (os.environ.get("SHELL") or "/bin/sh", "-c", shell)
    if given["attach"] is not None:
        given["attach"], token, given["store"] = token_of(given["attach"], given["store"])
        given["namespace"] = given["namespace"] or token.namespace
    from interlock.cli.run_locked import Order, run_guarded

    return run_guarded(Order(command=command, **given))
