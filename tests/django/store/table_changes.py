"""Changes to the table that no step of the store makes: expired leases, deleted rows."""

from django.db import connections

from interlock.core.line import Line, decode, encode


def end_leases(alias: str = "default") -> None:
    """Let the leases of all claims expire, as if their holders had been stopped."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("UPDATE interlock_line SET until = 1 WHERE id <> ''")
            return
        cursor.execute("SELECT k, line FROM interlock_line")
        for key, text in cursor.fetchall():
            line = decode(bytes(text).decode())
            over = Line(tuple(place._replace(until=1) for place in line.places), line.max_fence, line.record_expires)
            cursor.execute(
                "UPDATE interlock_line SET line = %s, version = version + 1 WHERE k = %s", [encode(over), key]
            )


def forget_lines() -> None:
    """Empty the table of the locks, where there is one."""
    for alias in ("default", "other"):
        if connections[alias].vendor != "sqlite":
            with connections[alias].cursor() as cursor:
                cursor.execute("DELETE FROM interlock_line")


def some_lease_is_over() -> bool:
    """Tell, without a step of the store, whether a claim in the table has expired."""
    connection = connections["default"]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT count(*) FROM interlock_line "
                "WHERE id <> '' AND until < extract(epoch FROM clock_timestamp()) * 1e6"
            )
            return bool(cursor.fetchone()[0])
        cursor.execute("SELECT line, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM interlock_line")
        return any(
            place.until < now for text, now in cursor.fetchall() for place in decode(bytes(text).decode()).places
        )
