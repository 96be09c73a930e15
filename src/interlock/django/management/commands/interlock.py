"""`manage.py interlock`: the command `interlock` on the locks of INTERLOCK; and `migrate`, one process at a time."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from interlock.cli import main
from interlock.django.conf import DEFAULT, places
from interlock.django.configured import make_locks
from interlock.django.migrating import migrate


class Command(BaseCommand):
    """Hands the words on to the command line of `interlock`, with the configured store."""

    help = "Run a command under a lock, see who holds which, take one away: interlock run NAME -- COMMAND…"
    requires_system_checks: list[str] = []  # a guarded command starts fast; doctor looks

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare --alias, and the words of `interlock`."""
        parser.add_argument("--alias", default=DEFAULT, help="Which entry of INTERLOCK. Default: %(default)s.")
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="run|ls|show|watch|evict|doctor|migrate …")

    def handle(self, *args: object, **options: Any) -> None:
        """Run it; a status that is not 0 ends the process with it."""
        alias = options["alias"]
        if alias not in places():
            raise CommandError(f"INTERLOCK has no {alias!r}; it has: {', '.join(sorted(places()))}", returncode=64)
        if options["words"][:1] == ["migrate"]:
            migrate(options["words"][1:], self.stderr.write)
            return
        status = main(
            options["words"],
            locks=lambda namespace: make_locks(alias, namespace or None),
            called=f"INTERLOCK[{alias!r}]",
        )
        if status:
            raise SystemExit(status)
