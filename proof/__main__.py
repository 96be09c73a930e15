"""`python -m proof COMMAND`: run the model checker by hand."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence
from importlib import import_module

from proof.command import Command

COMMANDS = ("seeds", "pending", "files", "handoff")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status.

    Args:
        arguments: the words after the program's name; None: those of this process.
    """
    parser = ArgumentParser(prog="python -m proof", description="The model checker.")
    parser.add_argument("command", choices=COMMANDS, help="what to check; each has its own --help")
    parser.add_argument("options", nargs=REMAINDER)
    chosen = parser.parse_args(arguments)
    command: Command = import_module(f"proof.{chosen.command}.report").COMMAND
    parser = ArgumentParser(prog=f"python -m proof {command.name}", description=command.help)
    command.add_arguments(parser)
    return command.run(parser.parse_args(chosen.options))


if __name__ == "__main__":
    sys.exit(main())
