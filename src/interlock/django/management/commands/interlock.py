"""`manage.py interlock`: the command `interlock` with the store of INTERLOCK; and `migrate`, one process at a time.

`migrate` runs in one process; others wait, and then find nothing to do.  Its lock needs no
table, since the migration may create that table: it is a lock of the database server, or in a folder beside the file
of SQLite.  The lock ends with its session, so a killed process does not block others.
"""

import argparse
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from time import sleep
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.utils import CursorWrapper

from interlock.api._sync.locks import Locks
from interlock.cli import main
from interlock.django.conf import DEFAULT, places
from interlock.django.configured import make_locks
from interlock.django.databases import DatabaseStore, place_of, vendor_of

RETRY_PAUSE = 0.25  # seconds between two tries
MIGRATION_KEY = int.from_bytes(hashlib.sha256(b"interlock migrate").digest()[:8], "big", signed=True)
PATIENT = (
    "SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false), "
    "set_config('idle_session_timeout', '0', false)"
)


def migrate(words: Sequence[str], say: Callable[[str], object]) -> None:
    """Run `migrate` while no other process does so on the same database.

    Args:
        words: the arguments of `migrate`.
        say: prints a line.

    Raises:
        CommandError: this kind of database has no lock without a table, or `migrate` raised it.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--database", default=DEFAULT_DB_ALIAS)
    known, _ = parser.parse_known_args(list(words))
    with alone(known.database, lambda: say(f"Waiting for another process that migrates {known.database!r}.")):
        call_command("migrate", *words)


@contextmanager
def alone(alias: str, waits: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of migrations on a database.

    Args:
        alias: the alias in DATABASES.
        waits: called once if another process has the lock.
    """
    vendor = vendor_of(alias)
    if vendor not in DATABASE_LOCKS:
        raise CommandError(f"{vendor} has no lock without a table. Let one process migrate before the others start.")
    with DATABASE_LOCKS[vendor](alias) as obtained:
        if not obtained():
            waits()
            # Poll: a session that waits in the server would block CREATE INDEX CONCURRENTLY.
            while not obtained():
                sleep(RETRY_PAUSE)
        yield


@contextmanager
def _sqlite(alias: str) -> Iterator[Callable[[], object]]:
    with Locks(DatabaseStore(alias)) as locks:
        yield partial(locks.lock("interlock migrate").acquire, blocking=False)


@contextmanager
def _session(asks: Callable[..., bool], alias: str) -> Iterator[Callable[[], object]]:
    connection: Any = connections.create_connection(alias)
    with closing(connection):
        connection.ensure_connection()
        connection.set_autocommit(True)
        with connection.cursor() as cursor:
            yield partial(asks, cursor, alias)


def _postgresql(cursor: CursorWrapper, alias: str) -> bool:
    cursor.execute(PATIENT)
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [MIGRATION_KEY])
    return bool(cursor.fetchone()[0])


def _mysql(cursor: CursorWrapper, alias: str) -> bool:
    name = hashlib.sha256(repr(place_of(alias)[0]).encode()).hexdigest()[:40]
    cursor.execute("SELECT GET_LOCK(%s, 0)", [f"interlock migrate {name}"])
    return bool(cursor.fetchone()[0])


DATABASE_LOCKS: dict[str, Callable[[str], AbstractContextManager[Callable[[], object]]]] = {
    "sqlite": _sqlite,
    "postgresql": partial(_session, _postgresql),
    "mysql": partial(_session, _mysql),
}
"""How to connect; what is yielded tries to take the lock, and is true if it has."""


class Command(BaseCommand):
    """Runs the command line of `interlock` with the configured store."""

    help = "Run a command under a lock, list holders, evict claims: interlock run NAME -- COMMAND…"
    requires_system_checks: list[str] = []  # a guarded command must start fast; `doctor` runs checks

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare --alias, and the arguments of `interlock`."""
        parser.add_argument("--alias", default=DEFAULT, help="Entry of INTERLOCK. Default: %(default)s.")
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="run|ls|show|watch|evict|doctor|migrate …")

    def handle(self, *args: object, **options: Any) -> None:
        """Run `interlock`; exit with its status if that is not 0."""
        alias = options["alias"]
        if alias not in places():
            raise CommandError(f"INTERLOCK has no {alias!r}. It has: {', '.join(sorted(places()))}.", returncode=64)
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
