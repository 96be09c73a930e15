"""`manage.py interlock run|ls|show|watch|evict|doctor|sweep`: the command `interlock`, on the locks of INTERLOCK."""

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from interlock.cli import main
from interlock.core.errors import LockError
from interlock.django.conf import DEFAULT, places
from interlock.django.configured import make_locks
from interlock.stores.driven import original


class Command(BaseCommand):
    """Hands the words on to the command line of `interlock`, with the configured store."""

    help = "Run a command under a lock, see who holds which, take one away: interlock run NAME -- COMMAND…"
    requires_system_checks: list[str] = []  # a guarded command starts fast; doctor looks

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare --alias, and the words of `interlock`."""
        parser.add_argument("--alias", default=DEFAULT, help="Which entry of INTERLOCK. Default: %(default)s.")
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="run|ls|show|watch|evict|doctor|sweep …")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it; a status that is not 0 ends the process with it."""
        alias = options["alias"]
        if alias not in places():
            raise CommandError(f"INTERLOCK has no {alias!r}; it has: {', '.join(sorted(places()))}", returncode=64)
        if options["words"] == ["sweep"]:
            self._sweep(alias)
            return
        status = main(
            options["words"],
            locks=lambda namespace: make_locks(alias, namespace or None),
            called=f"INTERLOCK[{alias!r}]",
        )
        if status:
            raise SystemExit(status)

    def _sweep(self, alias: str) -> None:
        try:
            with make_locks(alias) as locks:
                sweep = getattr(original(locks.store), "sweep", None)  # the others keep no records
                swept = 0 if sweep is None else sweep(sys.maxsize)
        except LockError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"INTERLOCK[{alias!r}]: removed {swept} records of claims that are over.")
