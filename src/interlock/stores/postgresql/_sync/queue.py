# Generated from _async/queue.py by tools/unasync.py; change that one.
"""The queue on PostgreSQL."""

from itertools import count
from typing import Literal

from interlock.core.claims import MICROS, Check, Claim, ClaimView
from interlock.core.errors import StoreError
from interlock.runtime import _threads as rt
from interlock.runtime import clock, log
from interlock.storekit._sync.pool import Pool
from interlock.storekit._sync.server_queue import ServerQueue
from interlock.stores.postgresql._sync.connection import Server
from interlock.stores.postgresql.options import PostgresOptions
from interlock.stores.postgresql.wire import PgStatement, PostgresWire, TextRow

SWEEP_EVERY = 64  # releases
SWEEP_PAGES = 64
SWEEP_AGE = 60.0  # seconds without use, after which a name may be deleted
OLDEST = 140000
SKEW = 1.0  # seconds; doctor warns if the clocks differ by more


class PostgresQueue(ServerQueue[PgStatement, list[TextRow]]):
    """A queue in a PostgreSQL database.

    Args:
        options: how to connect, and the table.
    """

    def __init__(self, options: PostgresOptions) -> None:
        channel = f"interlock_{rt.fresh_id()}"
        self._statements = PostgresWire(options)
        server = Server(options, self._statements, channel)
        pool = Pool(server.open, options.where, options.max_connections, self._statements.leave)
        super().__init__(self._statements, pool, server.subscribe, channel)
        self._releases = count(1)

    def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        """See `Queue.leave`; each `SWEEP_EVERY` releases also delete old names."""
        removed = super().leave(claim, keep_for, stored_result)
        if next(self._releases) % SWEEP_EVERY == 0:
            try:
                self._ask(self._statements.sweep(SWEEP_PAGES, SWEEP_AGE))
            except StoreError as error:
                log.warn("Could not delete old names, retrying later: %s", error)
        return removed

    def look(self, key: str) -> list[ClaimView]:
        """See `Queue.look`; a whole namespace also takes one request."""
        return self._statements.views(key, self._ask_twice(self._statements.look(key)))

    def namespaces(self) -> list[str]:
        """List the namespaces with a holder or a waiter."""
        return [name for (name,) in self._ask_twice(self._statements.namespaces)]

    def doctor(self) -> list[Check]:
        """Check a server's version, role, durability, clock, round trip and table."""
        self._ask(self._statements.evict("doctor", "nobody"))  # connects, and creates the table
        sent = clock.now()
        ((version, replica, fsync, pages, number, now),) = self._ask(self._statements.about)
        took = clock.now() - sent
        (schema, others, grace), *_ = self._ask(self._statements.place)
        skew = clock.time_of_day() - int(now) / MICROS
        crashed = int(grace or 0) / MICROS
        found: list[tuple[str, Literal["ok", "warn", "fail", ""], str]] = [
            ("version", "ok" if int(number) >= OLDEST else "fail", f"PostgreSQL {version}. Locks need 14 or newer."),
            ("role", "fail" if replica != "0" else "", "The server is a read-only replica. Connect to the primary."),
            (
                "persistence", "warn" if "off" in (fsync, pages) else "",
                f"fsync is {fsync}, full_page_writes {pages}: after a crash of the machine two may hold a lock.",
            ),
            (
                "clock", "ok" if abs(skew) <= SKEW else "warn",
                f"The server's clock differs from this machine's by {skew * 1000:.0f} ms. Leases depend on the "
                f"server's clock alone, which must not jump. Let NTP slew the clock.",
            ),
            ("server", "ok", f"The server replies in {took * MICROS:.0f} us."),
            ("table", "ok", f"The table is in schema {schema}. Clients of another schema share no locks."),
            (
                "tables", "warn" if others else "",
                f"Another table of this name is in {others}, so clients with another search_path are not excluded. "
                f"Let all clients use ?schema={schema}.",
            ),
            (
                "grace", "warn" if crashed > 0 else "",
                f"The server has crashed. It grants locks again in {crashed:.0f} s.",
            ),
        ]  # fmt: skip
        return [Check(name, status, detail) for name, status, detail in found if status]
