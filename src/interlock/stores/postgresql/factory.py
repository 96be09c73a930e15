"""How to connect: by a URL, or as an SQLAlchemy engine does that the program has already."""

import math
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode

import psycopg
from psycopg.pq import ConnStatus, PGconn, PollingStatus

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.redaction import masked
from interlock.runtime.polling import READABLE, WRITABLE, poller
from interlock.stores.sql.ddl import GRACE, TABLE, ddl
from interlock.stores.sql.problems import Refused, Unreachable, advice, refusal

PATIENCE = 5.0  # seconds to wait for an answer
MOST = 4  # connections of a process for its steps, besides the one that listens
_OF_PSYCOPG = ("autocommit", "prepare_threshold")
_OURS = ("table", "schema", "create", "grace", "max_connections", "timeout")
_LASTING = {"28P01": "password authentication failed", "28000": "pg_hba.conf", "3D000": "does not exist"}


class Options(NamedTuple):
    """What a URL says about a store.

    Attributes:
        table, schema: where the lines are kept.
        create: True to make the table and the functions if they are not there.
        most: connections for steps.
        patience: seconds to wait for an answer.
        grace: seconds, as for `ddl`, where the table is made.
    """

    table: str = TABLE
    schema: str = ""
    create: bool = False
    most: int = MOST
    io_timeout: float = PATIENCE
    grace: float = GRACE


def options_of(url: SplitResult) -> tuple[Options, str]:
    """Return what a URL says about the store, and the URL that is left for libpq.

    Raises:
        InvalidArgument: a value makes no sense, or stands there twice.
    """
    ours: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name not in _OURS:
            others.append((name, value))
        elif name in ours or not value:
            raise InvalidArgument(f"{masked(url.geturl())!r}: give {name} one value")
        else:
            ours[name] = value
    options = Options(
        ours.get("table", TABLE), ours.get("schema", ""), _flag(ours.get("create", "false")),
        _number(ours.get("max_connections", str(MOST))), _seconds(ours.get("timeout", str(PATIENCE))),
        _grace(ours.get("grace", str(GRACE))),
    )  # fmt: skip
    ddl(options.table, options.schema, options.grace)  # which refuses what makes no sense
    left = url._replace(scheme="postgresql", query=urlencode(others))
    return options, left.geturl() if url.netloc else f"postgresql://{left.geturl().partition(':')[2]}"


def _flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise InvalidArgument(f"create is true or false, not {said(value)}")
    return value == "true"


def _number(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise InvalidArgument(f"max_connections is a whole number from 1, not {said(value)}")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidArgument(f"timeout is a number of seconds above 0, not {said(value)}")
    return seconds


def _grace(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidArgument(f"grace is a number of seconds, not {said(value)}") from None


class UrlFactory:
    """What makes connections by a URL.

    Args:
        url: as libpq reads it.
        options: what the URL says about the store.
    """

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self.where = masked(url.partition("?")[0])
        self.options = options
        self.io_timeout = options.io_timeout
        try:
            # libpq tries several hosts one after the other, each without a limit of time; psycopg has one for each.
            self._many = "," in str(psycopg.conninfo.conninfo_to_dict(url).get("host", ""))
        except psycopg.ProgrammingError as error:
            failed = str(error).strip() if masked(url) == url else "libpq can't read it"
        else:
            return
        raise InvalidArgument(f"{masked(url)!r} is no URL of PostgreSQL: {failed}")

    @property
    def _how(self) -> dict[str, Any]:
        return {
            "autocommit": True, "client_encoding": "utf8", "connect_timeout": max(2, math.ceil(self.io_timeout)),
            "prepare_threshold": None, "application_name": "interlock", "keepalives_idle": 30,
            "keepalives_interval": 10, "keepalives_count": 3,
        }  # fmt: skip

    def dial(self) -> Any:
        """Return a new connection of psycopg, for a thread.

        Raises:
            Unreachable: nobody answers, or not now.
            Refused: the database does not let us in.
        """
        try:
            if self._many:
                return psycopg.connect(self._url, **self._how)
            how = {
                name: value for name, value in self._how.items() if name not in ("autocommit", "prepare_threshold")
            }
            return _Connection(psycopg.conninfo.make_conninfo(self._url, **how), self.io_timeout)
        except psycopg.Error as error:
            raise not_connected(error, self.where) from error

    async def adial(self) -> Any:
        """As `dial`, for a task."""
        try:
            return await psycopg.AsyncConnection.connect(self._url, **self._how)
        except psycopg.Error as error:
            raise not_connected(error, self.where) from error


class _Connection:
    """A connection of libpq alone: one of psycopg that an interrupt takes from its thread warns when it is collected.

    Args:
        conninfo: as libpq reads it.
        patience: seconds until it must be there.
    """

    def __init__(self, conninfo: str, io_timeout: float) -> None:
        deadline = monotonic() + io_timeout
        self.pgconn = PGconn.connect_start(conninfo.encode())
        wanted: int = PollingStatus.WRITING
        while wanted != PollingStatus.OK:
            if wanted == PollingStatus.FAILED or self.pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError(self.pgconn.error_message.decode(errors="replace"))
            poll = poller()
            poll.register(self.pgconn.socket, READABLE if wanted == PollingStatus.READING else WRITABLE)
            left = deadline - monotonic()
            if left <= 0 or not poll.poll(left * 1000 + 0.5):
                raise psycopg.OperationalError(f"no answer within {io_timeout:g} s")
            wanted = self.pgconn.connect_poll()


def not_connected(error: BaseException, where: str) -> StoreError:
    """Return what a failure to connect means; libpq tells by words only."""
    text = str(error).strip()
    code = str(getattr(error, "sqlstate", None) or "")
    for each, words in _LASTING.items():
        if words in text and "FATAL" in text:
            code = code or each
    if "too many clients" in text or "remaining connection slots" in text or "no more connections" in text:
        code = "53300"
    if code and not code.startswith("08"):
        return refusal(code, text, where)
    return Unreachable(f"{where} can't be reached: {text or type(error).__name__}; {advice('')}")


class EngineFactory:
    """What makes connections as an SQLAlchemy engine does: with its arguments, creator and hooks, not from its pool.

    Args:
        engine: an `Engine`, or for tasks an `AsyncEngine`, of psycopg 3; it stays the program's.
        options: where the lines are, and how many connections.
    """

    def __init__(self, engine: Any, options: Options) -> None:
        self._engine = engine
        self.where = str(engine.url.set(query={}).render_as_string(hide_password=True))
        self.options = options
        self.io_timeout = options.io_timeout

    def dial(self) -> Any:
        """As `UrlFactory.dial`."""
        try:
            return self._detached(self._engine.pool.recreate())
        except Exception as error:
            raise not_connected(getattr(error, "orig", None) or error, self.where) from error

    async def adial(self) -> Any:
        """As `UrlFactory.adial`."""
        from sqlalchemy.util import greenlet_spawn

        try:
            return await greenlet_spawn(self._detached, self._engine.sync_engine.pool.recreate())
        except Exception as error:
            raise not_connected(getattr(error, "orig", None) or error, self.where) from error

    @staticmethod
    def _detached(pool: Any) -> Any:
        """Return a connection of the driver, by a pool of our own: a full one of the program keeps nobody waiting."""
        fairy = pool.connect()
        connection = fairy.driver_connection
        fairy.detach()
        return connection


__all__ = ["MOST", "PATIENCE", "UrlFactory", "EngineFactory", "Options", "Refused", "options_of"]
