"""Server addresses in URLs, SQLAlchemy engines and libpq."""

from collections.abc import Collection, Iterable
from contextvars import ContextVar
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode

from interlock.core.errors import InvalidArgument
from interlock.core.options import Options
from interlock.core.redaction import described, masked, place_of, whole, why


def options_in(url: SplitResult) -> list[tuple[str, str]]:
    """Return the options of a URL, in which + is not decoded as a space."""
    return parse_qsl(url.query.replace("+", "%2B"), keep_blank_values=True)


def conninfo_of(url: SplitResult, options: Iterable[tuple[str, str]]) -> str:
    """Return a URL in the form of libpq.

    Args:
        url: the URL; the last @ ends the password, as on all stores.
        options: the options in place of the URL's own.

    Raises:
        InvalidArgument: libpq cannot parse the URL.
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
    # Raised here, because inside the handler the chained error could show the password.
    raise InvalidArgument(f"{masked(whole(url))!r} is not a PostgreSQL URL: {reason}")


def port_of(url: SplitResult) -> int | None:
    """Return the port of a URL; None if it has none.

    Raises:
        InvalidArgument: the port is not a valid number.
    """
    try:
        return url.port
    except ValueError as error:
        reason = str(error)
    # Raised here, because inside the handler the chained error could show part of the password.
    raise InvalidArgument(f"{place_of(url)}: {reason}")


OPTION_PREFIX = "interlock_"  # prefix of the engine's execution options for its locks


class _Arguments(Exception):
    """The arguments with which an engine would have called its driver."""


_asking: ContextVar[bool] = ContextVar("_asking", default=False)


def engine_of(client: object, drivers: Collection[str], scheme: str, library: str) -> object:
    """Return the `Engine` of the program, also from an `AsyncEngine`.

    Args:
        client: the object of the program.
        drivers: the names of the drivers whose arguments the library accepts.
        scheme: the URL scheme to recommend with another driver.
        library: the library with which the locks connect.

    Raises:
        InvalidArgument: the object is not an engine, has another driver, or connects by a function of the program,
            which may return the program's own connection.
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
    """Return an engine's execution options for its locks, like options of a URL.

    Args:
        engine: an `Engine`, also with `engine.execution_options(interlock_table=…)`.
    """
    return [
        (name.removeprefix(OPTION_PREFIX), str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in engine.get_execution_options().items()
        if name.startswith(OPTION_PREFIX)
    ]


def arguments_of(engine: Any) -> Options:
    """Return the driver arguments of an engine, after the program's `do_connect` hooks.

    Raises:
        InvalidArgument: such a hook makes its own connections.
    """
    from sqlalchemy import event

    if not event.contains(engine, "do_connect", _answer):
        event.listen(engine, "do_connect", _answer)
    token = _asking.set(True)
    try:
        engine.pool.recreate().connect().invalidate()
    except _Arguments as answer:
        given: Options = answer.args[0]
        return given
    except Exception as error:
        if type(error).__name__ != "MissingGreenlet":  # the program's async_creator was called
            raise
    finally:
        _asking.reset(token)
    raise InvalidArgument("A hook of this engine makes its own connections. Pass the URL, with password= or dial=.")


def _answer(dialect: object, record: object, args: object, given: Options) -> None:
    """Raise the arguments in the last hook; otherwise let the program connect."""
    if _asking.get():
        raise _Arguments(dict(given))


def place_of_engine(engine: Any) -> str:
    """Return the database of an engine for messages, without a password."""
    return masked(str(engine.url.set(query={}).render_as_string(hide_password=True)))
