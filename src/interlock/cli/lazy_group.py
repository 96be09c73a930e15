"""The commands, on click; a command's module is imported when it is called."""

import os
from collections.abc import Sequence
from importlib import import_module

import click

import interlock
from interlock.cli import COMPLETE
from interlock.cli.exit_codes import USAGE, fail

COMMANDS = {
    "run": ("run", "Hold a lock while a command runs."),
    "once": ("derived_commands", "Run a command once; skip it if it has already completed."),
    "lead": ("derived_commands", "Keep a command running on exactly one of several machines."),
    "hold": ("derived_commands", "Hold a lock without a process; print its token."),
    "renew": ("derived_commands", "Renew a lock of `interlock hold`."),
    "release": ("derived_commands", "Release a lock of `interlock hold`."),
    "create": ("derived_commands", "Create the tables or files that a store needs."),
    "ls": ("inspect_commands", "List the locks that have a holder or a waiter."),
    "show": ("inspect_commands", "Show the holders and waiters of one lock, in their order."),
    "watch": ("inspect_commands", "Show holders and waiters continuously, until Ctrl-C."),
    "serve": ("serve", "Show holders and waiters in a browser."),
    "evict": ("inspect_commands", "Remove claims of a lock."),
    "doctor": ("inspect_commands", "Check whether a store is suitable for locks."),
}
"""Each command: the module of its function, and its short help."""
HEAD = """\
Lock between processes: run a command under a lock, and list the holders of locks.

Choose the store with --store or $INTERLOCK_URL. The default is a per-user directory,
/tmp/interlock-UID; on Windows %LOCALAPPDATA%\\interlock\\locks.

Exit status: 64 usage error; 75 store unavailable or unsuitable. The help of each command lists
the others.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status."""
    if COMPLETE in os.environ:
        from interlock.cli import completion  # noqa: F401 - its function for bash replaces that of click
    try:
        status = group.main(list(arguments), prog_name="interlock", complete_var=COMPLETE, standalone_mode=False)
    except click.UsageError as error:
        called = next((word for word in arguments if word in COMMANDS), "")
        command = f"interlock {called}".rstrip() if error.ctx is None else error.ctx.command_path
        return fail(USAGE, f"{error.format_message()} See {command} --help.")
    except click.ClickException as error:
        return fail(error.exit_code, error.format_message())
    except click.Abort:
        return 130
    return int(status or 0)


class Lazy(click.Group):
    """A group that imports the module of a command when the command is called."""

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
