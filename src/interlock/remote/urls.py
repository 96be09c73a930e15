"""URLs of servers, and how libpq reads them."""

from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, quote, urlencode

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import masked, place_of, whole, why


def options_in(url: SplitResult) -> list[tuple[str, str]]:
    """Return the options of a URL, in which a + is a +."""
    return parse_qsl(url.query.replace("+", "%2B"), keep_blank_values=True)


def conninfo_of(url: SplitResult, options: Iterable[tuple[str, str]]) -> str:
    """Return a URL for libpq.

    Args:
        url: where the server is; the last @ ends the password, as on all stores.
        options: what stands behind the ? instead.
    """
    login, at, hosts = url.netloc.rpartition("@")
    netloc = login.replace("@", "%40") + at + hosts
    query = urlencode(list(options), quote_via=quote)
    return whole(url._replace(scheme="postgresql", netloc=netloc, query=query))


def check(conninfo: str, given: SplitResult) -> None:
    """Check that libpq can read a URL.

    Args:
        conninfo: the URL.
        given: what it was made of.

    Raises:
        InvalidArgument: it can't.
        ImportError: psycopg is not installed.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(conninfo)
        return
    except ProgrammingError as error:
        reason = why(error, whole(given)).strip()
    # Not while the error is handled: its own text may show the password.
    raise InvalidArgument(f"{masked(whole(given))!r} is no URL of PostgreSQL: {reason}")


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
