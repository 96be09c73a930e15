"""`python -m proof COMMAND`: run the model checker by hand."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from proof.command import Command
from proof.files import report as files
from proof.handoff import report as handoff
from proof.pending import report as pending
from proof.seeds import report as seeds

COMMANDS: tuple[Command, ...] = (seeds.COMMAND, pending.COMMAND, files.COMMAND, handoff.COMMAND)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status.

    Args:
        arguments: the words after the program's name; None: those of this process.
    """
    parser = ArgumentParser(prog="python -m proof", description="The model checker.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = commands.add_parser(command.name, help=command.help, description=command.help)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
