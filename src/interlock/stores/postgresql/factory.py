"""How to connect: by a URL, or as an SQLAlchemy engine does that the program has already."""

import asyncio
import encodings.idna  # noqa: F401 - else the first host name loads it, which hangs in a child forked meanwhile
import math
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import SplitResult

import psycopg
from psycopg._conninfo_attempts import conninfo_attempts
from psycopg._conninfo_attempts_async import conninfo_attempts_async
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, PGconn, PollingStatus

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.redaction import UNTOLD, is_torn, masked, place_of, read, whole
from interlock.runtime.polling import READABLE, WRITABLE, poller
from interlock.stores.sql.ddl import GRACE, TABLE, ddl
from interlock.stores.sql.engines import detached, limit, place_of_engine
from interlock.stores.sql.problems import Refused, Unreachable, advice, refusal
from interlock.stores.sql.urls import check, conninfo_of, options_in

PATIENCE = 5.0  # seconds to wait for an answer
MOST = 4  # connections of a process for its steps, besides the one that listens
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
        where: the database, without a password.
        torn: True if what libpq says may repeat a part of the password.
    """

    table: str = TABLE
    schema: str = ""
    create: bool = False
    most: int = MOST
    io_timeout: float = PATIENCE
    grace: float = GRACE
    where: str = ""
    torn: bool = False


def options_of(url: SplitResult) -> tuple[Options, str]:
    """Return what a URL says about the store, and the URL that is left for libpq.

    Raises:
        InvalidArgument: a value makes no sense, or stands there twice.
    """
    return read(url, _options_of)


def _options_of(url: SplitResult) -> tuple[Options, str]:
    ours: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for name, value in options_in(url):
        if name not in _OURS:
            others.append((name, value))
        elif name in ours or not value:
            raise InvalidArgument(f"{masked(whole(url))!r}: give {name} one value")
        else:
            ours[name] = value
    options = Options(
        ours.get("table", TABLE), ours.get("schema", ""), _flag(ours.get("create", "false")),
        _number(ours.get("max_connections", str(MOST))), _seconds(ours.get("timeout", str(PATIENCE))),
        _grace(ours.get("grace", str(GRACE))), place_of(url._replace(scheme="postgresql")), is_torn(url),
    )  # fmt: skip
    ddl(options.table, options.schema, options.grace)  # which refuses what makes no sense
    left = conninfo_of(url, others)
    check(left, url)
    return options, left


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
        self.where = options.where
        self.options = options
        self.io_timeout = options.io_timeout

    @property
    def _how(self) -> dict[str, Any]:
        return {
            "client_encoding": "utf8", "connect_timeout": max(2, math.ceil(self.io_timeout)),
            "application_name": "interlock", "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        }  # fmt: skip

    def dial(self) -> Any:
        """Return a new connection, with libpq's own as its `pgconn`, for a thread.

        Raises:
            Unreachable: nobody answers, or not now.
            Refused: the database does not let us in.
        """
        try:
            return _connected(make_conninfo(self._url, **self._how), self.io_timeout)
        except (psycopg.Error, UnicodeError) as error:
            if not self.options.torn:
                raise not_connected(error, self.where) from error
        raise Unreachable(f"{self.where} can't be reached; {UNTOLD}")

    async def adial(self) -> Any:
        """As `dial`, for a task."""
        try:
            return await _aconnected(make_conninfo(self._url, **self._how), self.io_timeout)
        except (psycopg.Error, UnicodeError) as error:
            if not self.options.torn:
                raise not_connected(error, self.where) from error
        raise Unreachable(f"{self.where} can't be reached; {UNTOLD}")


def _connected(conninfo: str, io_timeout: float) -> "_Connection":
    """Return a connection to the first host and address that lets us in.

    libpq itself, which is asked in steps here, would wait for the first one without a limit.
    """
    until, failed = monotonic() + io_timeout, []
    attempts = conninfo_attempts(conninfo_to_dict(conninfo))
    for number, attempt in enumerate(attempts, 1):
        try:
            return _Connection(make_conninfo("", **attempt), _share(until, number == len(attempts)))
        except psycopg.OperationalError as error:
            failed.append(str(error).strip())
    raise psycopg.OperationalError("; ".join(dict.fromkeys(failed)))


async def _aconnected(conninfo: str, io_timeout: float) -> Any:
    """As `_connected`, for a task."""
    until, failed = monotonic() + io_timeout, []
    attempts = await conninfo_attempts_async(conninfo_to_dict(conninfo))
    for number, attempt in enumerate(attempts, 1):
        share = _share(until, number == len(attempts))
        try:
            async with asyncio.timeout(share):
                return await psycopg.AsyncConnection.connect(
                    make_conninfo("", **attempt), autocommit=True, prepare_threshold=None
                )
        except TimeoutError:
            failed.append(f"no answer within {share:.3g} s")
        except psycopg.OperationalError as error:
            failed.append(str(error).strip())
    raise psycopg.OperationalError("; ".join(dict.fromkeys(failed)))


def _share(until: float, last: bool) -> float:
    """Return how long one address may take: half of what is left, so that the step is done in time as well."""
    return max(0.0, until - monotonic()) / (1 if last else 2)


class _Connection:
    """A connection of libpq alone: one of psycopg that an interrupt takes from its thread warns when it is collected.

    Args:
        conninfo: as libpq reads it.
        io_timeout: seconds until it must be there.
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
                raise psycopg.OperationalError(f"no answer within {io_timeout:.3g} s")
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
        self.where = place_of_engine(engine)
        self.options = options
        self.io_timeout = options.io_timeout
        self._limits = {"connect_timeout": max(2, math.ceil(self.io_timeout))}
        limit(getattr(engine, "sync_engine", engine))

    def dial(self) -> Any:
        """As `UrlFactory.dial`."""
        try:
            return detached(self._engine, self._limits)
        except Exception as error:
            raise not_connected(getattr(error, "orig", None) or error, self.where) from error

    async def adial(self) -> Any:
        """As `UrlFactory.adial`."""
        from sqlalchemy.util import greenlet_spawn

        try:
            return await greenlet_spawn(detached, self._engine.sync_engine, self._limits)
        except Exception as error:
            raise not_connected(getattr(error, "orig", None) or error, self.where) from error


__all__ = ["MOST", "PATIENCE", "UrlFactory", "EngineFactory", "Options", "Refused", "options_of"]
