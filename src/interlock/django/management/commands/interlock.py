"""`manage.py interlock`: the command `interlock` on the locks of INTERLOCK; and `migrate`, one process at a time.

`migrate` runs in one process, the others that start meanwhile wait and go on.  Its lock needs no table, which the
migration may be about to make: it is the server's own, or lies beside the file of SQLite.  It ends with its session,
so a process that is killed keeps it from nobody.
"""

import argparse
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.utils import CursorWrapper

from interlock.cli import main
from interlock.client._sync.locks import Locks
from interlock.client.events import Event
from interlock.django.conf import DEFAULT, places
from interlock.django.configured import make_locks
from interlock.django.databases import DatabaseStore, place_of, vendor_of

PAUSE = 0.25  # seconds between two tries
KEY = int.from_bytes(hashlib.sha256(b"interlock migrate").digest()[:8], "big", signed=True)
PATIENT = (
    "SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false), "
    "set_config('idle_session_timeout', '0', false)"
)


def migrate(words: Sequence[str], say: Callable[[str], object]) -> None:
    """Run `migrate` while no other process does so on the same database.

    Args:
        words: its arguments.
        say: shows a line to people.

    Raises:
        CommandError: there is no lock without a table on this kind of database; or as `migrate`.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--database", default=DEFAULT_DB_ALIAS)
    known, _ = parser.parse_known_args(list(words))
    with alone(known.database, lambda: say(f"Another process migrates {known.database!r}: waiting for it.")):
        call_command("migrate", *words)


@contextmanager
def alone(alias: str, waits: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of migrations on a database.

    Args:
        alias: in DATABASES.
        waits: called once if another process has it.
    """
    vendor = vendor_of(alias)
    if vendor == "sqlite":

        def tell(event: Event) -> None:
            if event.kind == "queued":
                waits()

        with Locks(DatabaseStore(alias)) as locks:
            locks.subscribe(tell)
            with locks.lock("interlock migrate"):
                yield
        return
    if vendor not in TRIES:
        raise CommandError(f"{vendor} has no lock without a table: let one process migrate before the others start")
    connection: Any = connections.create_connection(alias)
    try:
        connection.ensure_connection()
        connection.set_autocommit(True)
        with connection.cursor() as cursor:
            if not TRIES[vendor](cursor, alias):
                waits()
                # One that waited in the server would keep CREATE INDEX CONCURRENTLY from coming to its end.
                while not TRIES[vendor](cursor, alias):
                    sleep(PAUSE)
            yield
    finally:
        connection.close()


def _postgresql(cursor: CursorWrapper, alias: str) -> bool:
    cursor.execute(PATIENT)
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [KEY])
    return bool(cursor.fetchone()[0])


def _mysql(cursor: CursorWrapper, alias: str) -> bool:
    name = hashlib.sha256(repr(place_of(alias)[0]).encode()).hexdigest()[:40]
    cursor.execute("SELECT GET_LOCK(%s, 0)", [f"interlock migrate {name}"])
    return bool(cursor.fetchone()[0])


TRIES: dict[str, Callable[[Any, str], bool]] = {"postgresql": _postgresql, "mysql": _mysql}


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
