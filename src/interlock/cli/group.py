"""The commands beside `run`, on click; each is imported when it is called."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

import interlock
from interlock.cli.exits import STORE, USAGE, fail

WHERE = {
    "run": "interlock.cli.group:run",
    "ls": "interlock.cli.look:ls",
    "show": "interlock.cli.look:show",
    "watch": "interlock.cli.look:watch",
    "evict": "interlock.cli.manage:evict",
    "doctor": "interlock.cli.manage:doctor",
    "torture": "interlock.cli.torture:torture",
    "demo": "interlock.cli.demo:demo",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command with these words; return the exit status."""
    try:
        status: Any = group.main(list(arguments), prog_name="interlock", standalone_mode=False)
    except click.UsageError as error:
        return fail(USAGE, f"{error.format_message()} (see {_command_of(error)} --help)")
    except click.ClickException as error:
        return fail(error.exit_code, error.format_message())
    except click.Abort:
        return 130
    except interlock.InvalidArgument as error:
        return fail(USAGE, str(error))
    except interlock.StoreError as error:
        return fail(STORE, f"the store can't be used: {error}")
    return int(status or 0)


def _command_of(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx is not None else "interlock"


class Lazy(click.Group):
    """A group that imports a command when somebody asks for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return list(WHERE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none of that name."""
        if cmd_name not in WHERE:
            return None
        module, _, name = WHERE[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


class Plain(click.Command):
    """`run`, whose command line and help do without click."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave the words as they are."""
        ctx.args = list(args)
        return []

    def invoke(self, ctx: click.Context) -> int:
        """Hand them over."""
        from interlock.cli.run import main as run_main

        return run_main(ctx.args)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(interlock.__version__, "--version", "-V", prog_name="interlock", message="%(prog)s %(version)s")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Locks between processes: run a command under one, and see who holds which.

    The locks are where --store or $INTERLOCK_URL says, else in files of the user's own,
    /tmp/interlock-UID.

    Exit status: 64 wrong usage, 75 the store cannot be used; each command's help tells the others.
    """
    if ctx.invoked_subcommand is None:
        raise click.UsageError("which command? interlock run NAME -- COMMAND… guards one", ctx)


run = Plain("run", short_help="Hold a lock while a command runs.", add_help_option=False)
