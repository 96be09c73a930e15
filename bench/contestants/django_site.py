"""A Django project of the benchmark's own, on private servers, and the locks that Django projects use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_context
from typing import Any

from bench.contestants import needs
from bench.model import Facts, Place, Unavailable

NAME = "shop.plain:1"
Batch = Callable[[int], object]
PGLOCK = ("pgactivity", "pglock")


@contextmanager
def stage() -> Iterator[Facts]:
    """A PostgreSQL server with the project's tables, and a Valkey server."""
    from tests.servers import Missing, PostgresServer, RedisServer

    try:
        database, cache = PostgresServer(), RedisServer("valkey")
    except Missing as missing:
        raise Unavailable(str(missing)) from missing
    with database, cache:
        facts = {"host": database.host, "port": str(database.port), "user": database.user, "url": cache.url}
        # In another process, since Django's settings can be set only once in each.
        making = get_context("spawn").Process(target=make_tables, args=(facts,))
        making.start()
        making.join()
        if making.exitcode:
            raise Unavailable("the tables could not be made; see above")
        yield facts


def configure(facts: Facts) -> None:
    """Set Django up for this process."""
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "postgres",
                "HOST": facts["host"],
                "PORT": facts["port"],
                "USER": facts["user"],
            }
        },
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": facts["url"]}},
        INTERLOCK={"redis": {"LOCATION": facts["url"]}},
        INSTALLED_APPS=["interlock.django", "bench.contestants.shop", *(PGLOCK if has_pglock() else ())],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
    django.setup()


def has_pglock() -> bool:
    """Return True if django-pglock is installed."""
    try:
        needs.module("pglock")()
    except Unavailable:
        return False
    return True


def make_tables(facts: Facts) -> None:
    """Create the tables, and a row."""
    configure(facts)
    from django.core.management import call_command

    from bench.contestants.shop.models import Plain

    call_command("migrate", run_syncdb=True, verbosity=0, skip_checks=True)
    Plain.objects.create()


def site(make: Callable[[], Callable[[], object]]) -> Callable[[Place], Batch]:
    """Return a function that takes and releases a lock many times on the site.

    Args:
        make: called when Django is ready; returns a function that takes and releases once.
    """

    def build(place: Place) -> Batch:
        configure(place.facts)
        from django.db import connections

        place.closing.callback(connections.close_all)
        turn = make()

        def batch(times: int) -> None:
            for _ in range(times):
                turn()

        return batch

    return build


def plain_row() -> Any:
    """Return the row."""
    from bench.contestants.shop.models import Plain

    return Plain.objects.get(pk=1)


class Entered:
    """A context manager as a lock with acquire and release."""

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make = make
        self._entered: AbstractContextManager[object] | None = None

    def acquire(self) -> object:
        """Enter a new context manager."""
        entered = self._make()
        answer = entered.__enter__()
        self._entered = entered
        return answer

    def release(self) -> object:
        """Leave the context manager."""
        entered, self._entered = self._entered, None
        assert entered is not None
        return entered.__exit__(None, None, None)


def entered(make: Callable[[], Callable[[], AbstractContextManager[object]]]) -> Callable[[Place], Entered]:
    """Return a function that makes a lock on the site.

    Args:
        make: called when Django is ready; returns a function that makes a context manager.
    """

    def build(place: Place) -> Entered:
        configure(place.facts)
        from django.db import connections

        place.closing.callback(connections.close_all)
        return Entered(make())

    return build


def our_lock(alias: str = "default") -> Callable[[], AbstractContextManager[object]]:
    """The lock alone."""
    from interlock.django import locks

    lock = locks[alias].lock(NAME)
    return lambda: lock


def our_row(alias: str = "default") -> Callable[[], AbstractContextManager[object]]:
    """The lock, and a new read of the row."""
    from interlock.django import occupy

    row = plain_row()
    return lambda: occupy(row, locks=alias)


def pg_lock() -> Callable[[], AbstractContextManager[object]]:
    """django-pglock's advisory lock alone."""
    import pglock  # type: ignore[import-untyped, unused-ignore]

    return lambda: pglock.advisory(NAME)


def redis_lock() -> Callable[[], AbstractContextManager[object]]:
    """django-redis' lock alone, which is redis-py's."""
    from django.core.cache import cache

    return lambda: cache.lock(NAME, timeout=30)  # type: ignore[attr-defined, unused-ignore]


def reads(make: Callable[[], Callable[[], AbstractContextManager[object]]]) -> Callable[[], Callable[[], Any]]:
    """A peer's lock, and a new read of the row."""

    def with_row() -> Callable[[], Any]:
        lock, row = make(), plain_row()

        @contextmanager
        def occupied() -> Iterator[object]:
            with lock():
                row.refresh_from_db()
                yield row

        return occupied

    return with_row


def blocks(make: Callable[[], Callable[[], AbstractContextManager[object]]]) -> Callable[[Place], Batch]:
    """`with` such a lock, many times."""

    def turns() -> Callable[[], object]:
        lock = make()

        def turn() -> None:
            with lock():
                pass

        return turn

    return site(turns)


def read_only() -> Callable[[], object]:
    """No lock: only Django's read of the row."""
    row = plain_row()
    return lambda: row.refresh_from_db()
