"""The commands, on click; each is imported when it is called."""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

import interlock
from interlock.cli.exit_codes import OUTPUT, USAGE, drop_unwritten, fail, store_failed

COMMANDS = {
    "run": ("run", "Hold a lock while a command runs."),
    "once": ("derived_commands", "Run a command unless an earlier run of it has completed."),
    "lead": ("derived_commands", "Keep a command running on exactly one of several machines."),
    "hold": ("derived_commands", "Hold a lock without a process; print its token."),
    "renew": ("derived_commands", "Renew a lock that hold has taken."),
    "release": ("derived_commands", "Release a lock that hold has taken."),
    "create": ("derived_commands", "Create the tables or files that a store needs."),
    "ls": ("inspect_commands", "List the locks that have a holder or a waiter."),
    "show": ("inspect_commands", "Show the holders and waiters of one lock, in their order."),
    "watch": ("inspect_commands", "Show holders and waiters again and again, until Ctrl-C."),
    "serve": ("serve", "Show holders and waiters in a browser."),
    "evict": ("inspect_commands", "Remove claims of a lock."),
    "doctor": ("inspect_commands", "Check whether a store is fit for locks."),
}
"""Each command: the module in which a function has its name, and what it does."""
HEAD = """\
Locks between processes: run a command under a lock, and see who holds which lock.

--store or $INTERLOCK_URL says where the locks are; without both they are files of this user in
/tmp/interlock-UID.

Exit status: 64 wrong usage, 75 the store cannot be used; the help of each command lists the others.
"""
COMPLETE = "_INTERLOCK_COMPLETE"  # in the environment of what a shell asks for completions


def main(arguments: Sequence[str]) -> int:
    """Run the command with these words; return the exit status."""
    if COMPLETE in os.environ:
        from interlock.cli import completion  # noqa: F401 - its function for bash replaces that of click
    try:
        status: Any = group.main(list(arguments), prog_name="interlock", complete_var=COMPLETE, standalone_mode=False)
    except click.UsageError as error:
        called = next((word for word in arguments if word in COMMANDS), "")
        command = f"interlock {called}".rstrip() if error.ctx is None else error.ctx.command_path
        return fail(USAGE, f"{error.format_message()} (see {command} --help)")
    except click.ClickException as error:
        return fail(error.exit_code, error.format_message())
    except click.Abort:
        return 130
    except interlock.InvalidArgument as error:
        return fail(USAGE, str(error))
    except interlock.LockError as error:
        return store_failed(error)
    except OSError as error:
        drop_unwritten("stdout")
        return fail(OUTPUT, f"can't write the output or use a file: {error.strerror or error}")
    return int(status or 0)


class Lazy(click.Group):
    """A group whose commands have a name and a line of help; the real one is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find and import a command."""
        name, found, rest = super().resolve_command(ctx, args)
        if name is not None:
            found = getattr(import_module(f"interlock.cli.{COMMANDS[name][0]}"), name)
        return name, found, rest


@click.group(
    cls=Lazy,
    commands={name: click.Command(name, short_help=text) for name, (_, text) in COMMANDS.items()},
    help=HEAD,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(interlock.__version__, "--version", "-V", prog_name="interlock", message="%(prog)s %(version)s")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Run the command that is called."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
