"""Where a server is: what URLs and engines of SQLAlchemy say, and how libpq reads them."""

from collections.abc import Collection, Iterable
from contextvars import ContextVar
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described, masked, place_of, whole, why


def options_in(url: SplitResult) -> list[tuple[str, str]]:
    """Return the options of a URL, in which a + is a +."""
    return parse_qsl(url.query.replace("+", "%2B"), keep_blank_values=True)


def conninfo_of(url: SplitResult, options: Iterable[tuple[str, str]]) -> str:
    """Return a URL for libpq, which can read it.

    Args:
        url: where the server is; the last @ ends the password, as on all stores.
        options: what stands behind the ? instead.

    Raises:
        InvalidArgument: libpq can't read it.
        ImportError: psycopg is not installed.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    login, at, hosts = url.netloc.rpartition("@")
    netloc = login.replace("@", "%40") + at + hosts
    query = urlencode(list(options), quote_via=quote)
    conninfo = whole(url._replace(scheme="postgresql", netloc=netloc, query=query))
    try:
        conninfo_to_dict(conninfo)
        return conninfo
    except ProgrammingError as error:
        reason = why(error, whole(url)).strip()
    # Not while the error is handled: its own text may show the password.
    raise InvalidArgument(f"{masked(whole(url))!r} is not a PostgreSQL URL: {reason}")


def port_of(url: SplitResult) -> int | None:
    """Return the port of a URL; None if it has none.

    Raises:
        InvalidArgument: it is no number that a port can have.
    """
    try:
        return url.port
    except ValueError as error:
        reason = str(error)
    # Not while the error is handled: its own text may show a part of the password.
    raise InvalidArgument(f"{place_of(url)}: {reason}")


PREFIX = "interlock_"  # of the execution options of an engine that are for its locks


class _Arguments(Exception):
    """With what the driver of an engine would have been called."""


_asking: ContextVar[bool] = ContextVar("_asking", default=False)


def engine_of(client: object, drivers: Collection[str], scheme: str, library: str) -> Any:
    """Return the `Engine` that the program has given, behind an `AsyncEngine` too; it says where its database is.

    Args:
        client: what the program has given.
        drivers: the names of the drivers whose arguments the library takes.
        scheme: of the URL that does it with any other driver.
        library: what the locks connect by.

    Raises:
        InvalidArgument: it is none, is of another driver, or connects by a function of the program, which may return
            the program's own connection.
    """
    from sqlalchemy.engine import Engine

    engine = getattr(client, "sync_engine", client)
    if not isinstance(engine, Engine):
        raise InvalidArgument(
            f"{described(client)} is not an Engine or AsyncEngine. Pass the engine, because locks need their own "
            f"connections: claims in an open transaction are invisible to others."
        )
    dialect = engine.dialect
    if dialect.driver not in drivers:
        raise InvalidArgument(
            f"Locks need an engine of {dialect.name}+{' or '.join(drivers)}, not {dialect.name}+{dialect.driver}. "
            f"Pass the URL {scheme}://…; interlock then connects with {library}, independent of the program's driver."
        )
    if getattr(engine.pool._creator, "__qualname__", "") != "create_engine.<locals>.connect":
        raise InvalidArgument(
            "This engine has a `creator`, which hides its database and may return the program's own connection. "
            "Pass the URL instead, with password= or dial= for settings that a URL cannot contain."
        )
    return engine


def given_by(engine: Any) -> list[tuple[str, str]]:
    """Return what the execution options of an engine say about its locks, as a URL says it.

    Args:
        engine: an `Engine`, or what `engine.execution_options(interlock_table=…)` made of one.
    """
    return [
        (name.removeprefix(PREFIX), str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in engine.get_execution_options().items()
        if name.startswith(PREFIX)
    ]


def arguments_of(engine: Any) -> dict[str, Any]:
    """Return with what an engine calls its driver now, after the program's hooks on `do_connect`.

    Raises:
        InvalidArgument: such a hook connects by itself.
    """
    from sqlalchemy import event

    if not event.contains(engine, "do_connect", _answer):
        event.listen(engine, "do_connect", _answer)
    token = _asking.set(True)
    try:
        engine.pool.recreate().connect().invalidate()
    except _Arguments as answer:
        given: dict[str, Any] = answer.args[0]
        return given
    except Exception as error:
        if type(error).__name__ != "MissingGreenlet":  # an async_creator of the program was called
            raise
    finally:
        _asking.reset(token)
    raise InvalidArgument("A hook of this engine makes its own connections. Pass the URL, with password= or dial=.")


def _answer(dialect: object, record: object, args: object, given: dict[str, Any]) -> None:
    """Be asked for a connection: as the last hook, or anybody else's way to connect goes on."""
    if _asking.get():
        raise _Arguments(dict(given))


def place_of_engine(engine: Any) -> str:
    """Return which database an engine is for, without a password."""
    return masked(str(engine.url.set(query={}).render_as_string(hide_password=True)))
