"""How to connect: by a URL, or as an SQLAlchemy engine does that the program has already."""

import math
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl

import pymysql  # type: ignore[import-untyped]

from interlock.core.claims import DEFAULT_TTL
from interlock.core.errors import InvalidArgument
from interlock.core.options import flag_in, number_in, seconds_in
from interlock.core.redaction import is_torn, place_of, read
from interlock.stores.mysql.dialling import arguments_in, dialled, failed
from interlock.stores.sql.engines import arguments_of, detached, given_by, limit, place_of_engine
from interlock.stores.sql.mysql import TABLE, checked_table

IO_TIMEOUT = 5.0  # seconds to wait for an answer
MOST = 4  # connections of a process
_NEAR = ("localhost", "127.0.0.1", "::1")
_TLS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity")
_OURS = ("table", "create", "max_connections", "timeout", "grace")


_OF_THEIRS = (
    "auth_plugin", "conv", "cursor_cls", "cursorclass", "echo", "loop", "password_creator", "query_callback", "sock",
    "stmt_cache_size",
)  # fmt: skip
"""Arguments of aiomysql and asyncmy that PyMySQL has not, or that are about values which locks don't have."""
_NAMES = {"db": "database", "passwd": "password"}


class Options(NamedTuple):
    """What a URL says about a store.

    Attributes:
        table: where the lines are kept.
        create: True to make the table if it is not there.
        most: connections of a process.
        io_timeout: seconds to wait for an answer.
        grace: seconds that nobody gets a lock after a start of a server that forgets commits in a crash.
    """

    table: str = TABLE
    create: bool = False
    most: int = MOST
    io_timeout: float = IO_TIMEOUT
    grace: float = DEFAULT_TTL


class UrlFactory:
    """What makes connections by a URL.

    Args:
        url: mysql://user:password@host:port/database?options.

    Raises:
        InvalidArgument: it says what such a URL does not say.
    """

    def __init__(self, url: SplitResult) -> None:
        self.where = place_of(url)
        self._torn = is_torn(url)
        self.options, self._how = read(url, self._read)
        self.io_timeout = self.options.io_timeout

    def _read(self, url: SplitResult) -> tuple[Options, dict[str, Any]]:
        given = self._given(url)
        options = options_of(given)
        how = arguments_in(url)
        if not how["database"]:
            raise InvalidArgument(f"{self.where}: which database? mysql://user:password@host/database")
        how |= {
            "unix_socket": given.get("unix_socket"),
            "charset": "utf8mb4",
            **_limits(options.io_timeout),
            "program_name": "interlock",
            "autocommit": True,
        }
        tls = {name: given[name] for name in _TLS if name in given}
        how |= {name: flag_in(name, text) if "verify" in name else text for name, text in tls.items()}
        if not tls and (how["host"] in _NEAR or "unix_socket" in given):
            how["ssl_disabled"] = True  # else PyMySQL reads all certificates of the machine for each connection
        return options, how

    def _given(self, url: SplitResult) -> dict[str, str]:
        given: dict[str, str] = {}
        for name, value in parse_qsl(url.query, keep_blank_values=True):
            if name not in (*_OURS, *_TLS, "unix_socket"):
                raise InvalidArgument(
                    f"{self.where}: there is no option {name}; there are {', '.join((*_OURS, *_TLS, 'unix_socket'))}"
                )
            if name in given or not value:
                raise InvalidArgument(f"{self.where}: give {name} one value")
            given[name] = value
        if url.fragment:
            raise InvalidArgument(f"{self.where}: a # in a password is written %23")
        return given

    def dial(self) -> Any:
        """Return a new connection of PyMySQL.

        Raises:
            Unreachable: nobody answers, or not now.
            Refused: the server does not let us in.
        """
        return dialled(self._how, self.where, self._torn)


def _limits(io_timeout: float) -> dict[str, int]:
    return dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), math.ceil(io_timeout))


def options_of(given: dict[str, str]) -> Options:
    """Return what a URL says about the store.

    Raises:
        InvalidArgument: a value makes no sense.
    """
    return Options(
        checked_table(given.get("table", TABLE)), flag_in("create", given.get("create", "false")),
        number_in("max_connections", given.get("max_connections", str(MOST))),
        seconds_in("timeout", given.get("timeout", str(IO_TIMEOUT))),
        seconds_in("grace", given.get("grace", str(DEFAULT_TTL))),
    )  # fmt: skip


class EngineFactory:
    """What makes connections as an SQLAlchemy engine does: with its arguments, creator and hooks, not from its pool.

    For an `AsyncEngine`, with its arguments as hooks on `do_connect` leave them; hooks on `connect` are not called.

    Args:
        engine: an `Engine` of PyMySQL, or an `AsyncEngine` of aiomysql or asyncmy; it stays the program's.
    """

    def __init__(self, engine: Any) -> None:
        self.where = place_of_engine(engine)
        self.options = options_of(given_by(engine, _OURS))
        self.io_timeout = self.options.io_timeout
        self._engine = getattr(engine, "sync_engine", engine)
        limit(self._engine)

    def dial(self) -> Any:
        """As `UrlFactory.dial`."""
        try:
            if not self._engine.dialect.is_async:
                return detached(self._engine, _limits(self.io_timeout))
            given = arguments_of(self._engine, _limits(self.io_timeout))
            if given is not None:
                return pymysql.connect(**_translated(given))
        except Exception as error:
            raise failed(error, self.where) from error
        raise InvalidArgument(
            f"{self.where}: locks of tasks are taken by PyMySQL, and this engine makes its connections itself "
            f"(async_creator, or a hook on do_connect): give aconnect() the URL mysql://…, or "
            f"create_engine('mysql+pymysql://…')"
        )


def _translated(given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of aiomysql or asyncmy, which are those of PyMySQL but for some, for PyMySQL."""
    creator = given.get("password_creator")  # of asyncmy
    wanted = given if creator is None else given | {"password": creator()}
    return {
        _NAMES.get(name, name): value
        for name, value in wanted.items()
        if value is not None and name not in _OF_THEIRS
    }
